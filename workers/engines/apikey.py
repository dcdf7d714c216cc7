"""API keys: written in files by reference, resolved at the last moment, shown nowhere."""

from __future__ import annotations

import re
from collections.abc import Mapping

from service.domain.errors import UsageError

REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
OURS = "EXPCTL_"
"""The service's own secrets (its database, its broker, a token) are nobody's API key."""


def resolve_api_key(reference: str | None, environ: Mapping[str, str]) -> str | None:
    """The key that `env:NAME` refers to; None where there is no reference."""
    return None if reference is None else _referred(reference, environ, "the API key", "engine.api_key")


def resolve_env(env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """An engine's environment, with what `env:NAME` refers to in the place of each such value."""
    return {
        name: _referred(value, environ, f"engine.env.{name}:", f"engine.env.{name}") if REFERENCE.fullmatch(value) else value
        for name, value in env.items()
    }


def _referred(reference: str, environ: Mapping[str, str], what: str, key: str) -> str:
    name = reference.removeprefix("env:")
    if name.startswith(OURS):
        todo = "put the engine's key into a variable of its own, and name that"
        raise UsageError(f"{what} {reference} is refused", f"{name} belongs to the service itself and may be its own secret", todo)
    value = environ.get(name, "")
    if not value:
        raise UsageError(
            f"{what} {reference} cannot be resolved",
            f"the environment variable {name} is not set where the worker runs",
            f"set {name} in the worker's environment and start the worker again, or leave out {key}",
        )
    return value


def bearer(key: str | None) -> dict[str, str]:
    """The header that carries a key."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}
