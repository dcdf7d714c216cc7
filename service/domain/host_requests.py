"""What somebody may want done on a host: the host's worker does it, for nobody else reaches the host."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

PATIENCE = timedelta(hours=1)
"""How long a request waits for a worker. A rehearsal that nobody took in the morning must not stop production in the afternoon."""

QUICK_PATIENCE = timedelta(minutes=2)
"""Of a pre-flight: whoever asks for one sits there and waits."""

Fingerprint = Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")]
LoginName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,31}$")]


class RequestKind(StrEnum):
    """Each may be done twice without harm: one whose worker died is done again by the next."""

    CHECK = "check"
    TRUST = "trust"
    INSTALL = "install"
    REHEARSE = "rehearse"
    PREFLIGHT = "preflight"


def patience(kind: str) -> timedelta:
    """How long a request of a kind waits for a worker."""
    return QUICK_PATIENCE if kind == RequestKind.PREFLIGHT else PATIENCE


class RequestStatus(StrEnum):
    """Where a request is."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"


class TrustArgs(BaseModel):
    """Which keys to trust from now on."""

    model_config = ConfigDict(extra="forbid")

    pin: list[Fingerprint] = Field(default_factory=list, max_length=20)
    """Exactly these, if the host shows them. None: only fetch what it shows."""


class PreflightArgs(BaseModel):
    """Experiments to look at, as far as the look needs them: names and engines."""

    model_config = ConfigDict(extra="forbid")

    experiments: list[dict[str, Any]] = Field(min_length=1, max_length=20)


class InstallArgs(BaseModel):
    """How the helper gets onto the host."""

    model_config = ConfigDict(extra="forbid")

    apply: bool = False
    """Let the worker install it, which needs a login as root. Otherwise it only says what an admin would do."""
    user: LoginName | None = None
    """Who is to call the helper by sudo. None: whoever the worker logs in as."""
