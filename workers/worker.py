"""Who works, on what, and how it is asked to look and to go."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from service.domain.endpoint_rule import EndpointRule
from service.store.database import Database
from service.store.hosts import HEARTBEAT_S, LEASE_S


@dataclass(frozen=True)
class Worker:
    """One worker process."""

    database: Database
    owner: str
    data_dir: Path
    environ: dict[str, str] = field(repr=False)
    stop: threading.Event
    lease_s: float = LEASE_S
    heartbeat_s: float = HEARTBEAT_S
    woken: threading.Event = field(default_factory=threading.Event)
    """Look now. Whoever sets `stop` sets this too, so that a worker that waits goes at once."""
    endpoints: EndpointRule = field(default_factory=EndpointRule)
    """Which servers it may ask for an experiment of kind endpoint."""
