"""What every verb works with."""

from __future__ import annotations

from dataclasses import dataclass

from workers.hosts.helper.config import Config
from workers.hosts.helper.places import Caller, Clock, Places
from workers.hosts.helper.processes import Processes
from workers.hosts.helper.state import State
from workers.hosts.helper.systemd import Systemd


@dataclass(frozen=True)
class Context:
    """This host, this caller, these limits."""

    places: Places
    caller: Caller
    config: Config
    clock: Clock
    systemd: Systemd
    processes: Processes
    state: State


def context_for(places: Places, caller: Caller, config: Config, clock: Clock | None = None) -> Context:
    """Everything that follows from these."""
    clock = clock or Clock(places)
    return Context(places, caller, config, clock, Systemd(places), Processes(places.proc), State(places, clock))
