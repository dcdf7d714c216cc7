"""A host in memory that serves by day, for tests of what parks it: with a dead-man that fires when told to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from service.domain.reasons import Reason
from workers.hosts.base import DeadManFired, HostError, ParkedUnit, PortOwner, RestoredUnit, UnitPhase, UnitSource, UnitState
from workers.hosts.fake import FakeHost

LOADED = {"LoadState": "loaded", "NeedDaemonReload": "no", "TriggeredBy": ""}


@dataclass
class FakeProductionHost(FakeHost):
    """`serve` a unit, then let it be parked and restored; `boot` and `fire` are what may happen meanwhile."""

    armed: tuple[ParkedUnit, ...] | None = None
    ttl_s: float | None = None
    fired_at: str | None = None
    boot_id: str = "boot1"
    stays_down: set[str] = field(default_factory=set)
    """Units that do not start again."""
    folders: set[str] = field(default_factory=set)
    """Units that have a folder to work in."""
    _ports: dict[str, int] = field(default_factory=dict)

    def serve(self, name: str, port: int = 8000) -> None:
        """Let a unit of production run."""
        argv = ("/opt/vllm/bin/vllm", "serve", "m", "--port", str(port))
        self._ports[name] = port
        self.sources.setdefault(name, UnitSource(name, (), "sha", dict(LOADED), argv))
        self._starts += 1
        self.states[name] = UnitState(name, UnitPhase.ACTIVE, f"invocation{self._starts}", 500 + self._starts, argv=argv)
        self.port_owners[port] = PortOwner(port, 500 + self._starts, "vllm", None, service=name)

    def fire(self, at: str = "2026-01-01T03:00:00Z") -> None:
        """The dead-man: ours end, production runs again."""
        self.fired_at = at
        self.restore()

    def reboot(self, *, enabled: bool) -> None:
        """Every unit is gone; production comes back by itself where it is enabled."""
        self.boot_id += "x"
        names = list(self._ports)
        self.states = {name: UnitState(name, UnitPhase.NOT_FOUND) for name in names}
        self.port_owners = {}
        if enabled:
            for name in names:
                self.serve(name, self._ports[name])

    def unit(self, name: str) -> UnitState:
        """As the fake host has it, in this boot."""
        return replace(super().unit(name), boot_id=self.boot_id)

    def arm(self, ttl_s: float, parked: Sequence[ParkedUnit] | None = None) -> None:
        """Remember what to restore."""
        self._called("arm", "first" if parked is not None else "again")
        if self.fired_at is not None:
            raise DeadManFired(Reason.CONNECTION_LOST, "the dead-man has fired", self.fired_at, "deadline")
        if self.armed is None:
            if parked is None:
                raise HostError(Reason.REMOTE_COMMAND_FAILED, "nothing is armed")
            self.armed = tuple(parked)
        self.ttl_s = ttl_s

    def given_back(self) -> DeadManFired | None:
        """Whether it was told to fire."""
        self._called("given_back", "")
        return None if self.fired_at is None else DeadManFired(Reason.CONNECTION_LOST, "the dead-man has fired", self.fired_at, "deadline")

    def restore(self) -> tuple[RestoredUnit, ...]:
        """Start what was parked."""
        self._called("restore", "")
        for name in [name for name in self.states if name.startswith("expctl-")]:
            self.stop_unit(name)
        made = []
        for unit in self.armed or ():
            if unit.name in self.stays_down:
                made.append(RestoredUnit(unit.name, active=False, message="exit-code"))
                continue
            if self._state(unit.name).phase != UnitPhase.ACTIVE:
                self.serve(unit.name, self._ports[unit.name])
            made.append(RestoredUnit(unit.name, active=True))
        return tuple(made)

    def disarm(self, *, force: bool = False) -> None:
        """Forget it."""
        self._called("disarm", "forced" if force else "")
        self.armed = self.fired_at = None

    def work_folders(self) -> tuple[str, ...]:
        """What was set."""
        self._called("work_folders", "")
        return tuple(sorted(self.folders))

    def remove_work_folder(self, name: str) -> bool:
        """Forget it."""
        self._called("remove_work_folder", name)
        there = name in self.folders
        self.folders.discard(name)
        return there
