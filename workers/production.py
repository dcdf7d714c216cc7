"""Production: park what serves on a host, bring exactly that back, and prove that it serves.

Both may be cut at any point and are taken up again from what was written down: every act here may be repeated.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import structlog

from service.domain.events import EventType
from service.domain.host_config import HostConfig
from service.domain.masking import masked_words
from service.domain.reasons import Reason
from service.store.hosts import NOT_RESTORED
from workers.hosts.base import DeadManFired, HostError, ParkedUnit, ProductionHost, RestoredUnit, UnitPhase
from workers.hosts.commandof import is_command_line
from workers.serving import Serving, serves, survey

log = structlog.get_logger()

POLL_S = 5.0
GPU_PATIENCE_S = 120.0
"""How long memory that is on its way back may take before production is started all the same: started too early, a large model finds
out only minutes into its load, and those are minutes that it does not serve."""
LEAVING = frozenset({"D", "Z", "X"})
"""States of a process that is about to be gone, once the driver has done with it."""
SHOWN = 500


class Book(Protocol):
    """What a shift writes down, and where it learns that it should stop."""

    def check(self) -> None:
        """Raise HandOver or ClaimLost where there is cause."""

    def wait(self, seconds: float) -> None:
        """Let time pass; may end early."""

    def parked(self) -> dict[str, Any]:
        """What is known of the parked production."""

    def note(self, phase: str | None = None, **parked: Any) -> None:
        """Write down how far parking or restoring is."""

    def emit(self, kind: EventType, **data: Any) -> None:
        """Tell what happened."""

    def now(self) -> float:
        """Seconds since 1970."""

    def block(self, why: str | None) -> None:
        """Let nothing start on the host, or let it again."""


class NotParked(Exception):
    """Production could not be parked. `touched` is true where some of it was stopped, so that it has to be restored."""

    def __init__(self, reason: str, detail: str, *, touched: bool) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail, self.touched = reason, detail, touched


@dataclass(frozen=True)
class Production:
    """The units that serve on one host by day."""

    host: ProductionHost
    config: HostConfig
    address: str
    """Where the host's servers are reached, without a port."""
    headers: Mapping[str, str]
    book: Book

    def park(self) -> None:
        """Stop production, with everything in place that brings it back. NotParked where that is not possible.

        DeadManFired where the host has given it back meanwhile; then it has to be restored all the same.
        """
        units = self._known() or self._survey()
        names = [unit.name for unit in units]
        touched = bool(self.book.parked().get("armed"))
        try:
            self.host.arm(self.config.dead_man, [ParkedUnit(unit.name, unit.sha256, unit.live_argv) for unit in units])
            self.book.note(armed=True)
            touched = True
            for name in reversed(names):
                self.book.check()
                self.host.stop_unit(name, grace_s=120.0)
            living = self.host.running(names)
        except DeadManFired:
            raise
        except HostError as error:
            raise NotParked(error.reason, error.evidence, touched=touched) from error
        if living:
            raise NotParked(Reason.PRODUCTION_STARTED_BY_HAND, f"{', '.join(living)} was started while it was parked", touched=True)
        self.book.note("parked", parked_at=self.book.now())
        warnings = {"warnings": told} if (told := [f"{unit.name}: {unit.warning}" for unit in units if unit.warning]) else {}
        self.book.emit(EventType.PRODUCTION_PARKED, units=names, proven={unit.name: unit.detail for unit in units}, **warnings)

    def restore(self) -> None:
        """End what is ours, start what was parked, wait until it serves. Does not return before production is back.

        Where it takes longer than `restore_timeout`, or the host cannot be reached for so long, the alarm is raised once, the
        host is blocked, and it is tried on.
        """
        since = self._begin_restoring()
        units = self._known()
        made_room = False
        while True:
            self.book.check()
            try:
                if not made_room:
                    self._make_room()
                    made_room = True
                missing = self._missing(units)
                if not missing:
                    self._settle(units)
                    return
            except HostError as error:
                missing = [error.evidence]
            if self.book.now() - since > self.config.restore_timeout:
                self._alarm(missing)
            self.book.wait(POLL_S)

    def _known(self) -> list[Serving]:
        return [Serving.from_json(unit) for unit in self.book.parked().get("units", [])]

    def _survey(self) -> list[Serving]:
        """What serves now; written down before anything is touched."""
        try:
            units = survey(self.host, self.config, self.address, self.headers)
            boot_id = self.host.unit(self.config.park[0]).boot_id
        except HostError as error:
            raise NotParked(error.reason, error.evidence, touched=False) from error
        silent = [unit for unit in units if unit.base_url is not None and not unit.proven]
        if silent:
            why = "; ".join(f"{unit.name}: {unit.detail}" for unit in silent)
            raise NotParked(
                Reason.ENGINE_UNRESPONSIVE, f"{why}. What is not proven to serve before could not be proven after", touched=False
            )
        if self.config.hooks.before_park:
            self.book.note(hooked=True)  # before it runs: whoever takes over has to undo it, however far it came
            self._hook("before_park", self.config.hooks.before_park)
        self.book.note("parking", units=[asdict(unit) for unit in units], boot_id=boot_id, bystanders=self._bystanders())
        return units

    def _bystanders(self) -> list[int]:
        """Processes that hold GPU memory while production serves: they have never kept it from starting."""
        try:
            return sorted({holder.pid for holder in self.host.gpus().holders})
        except HostError:
            return []

    def leave_as_it_is(self) -> None:
        """Production was not parked after all: undo what the hook did."""
        if self.book.parked().get("hooked"):
            self._after_restore()
            self.book.note(hooked=False)

    def _hook(self, name: str, argv: list[str]) -> None:
        """NotParked where it does not end with 0."""
        if not argv:
            return
        environ = {**os.environ, "EXPCTL_HOST": self.host.name}
        try:
            done = subprocess.run(  # noqa: S603 - the host's own setting, made by an admin
                argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=self.config.hooks.timeout, check=False
            )
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-SHOWN:]
            failed = "" if done.returncode == 0 else f"ended with status {done.returncode}{said and f': {said}'}"
        except subprocess.TimeoutExpired:
            failed = f"did not end within {self.config.hooks.timeout:.0f} s"
        except OSError as error:
            failed = f"could not be started: {error}"
        if failed:
            raise NotParked(Reason.HOOK_FAILED, f"{name} ({argv[0]}) {failed}", touched=False)

    def _begin_restoring(self) -> float:
        """Since when it is tried, whoever began."""
        since = float(self.book.parked().get("restoring_since") or self.book.now())
        self.book.note("restoring", restoring_since=since)
        return since

    def _make_room(self) -> None:
        """End every unit of ours and give the GPUs a while. Whatever fails here, production is started all the same."""
        trouble: list[str] = []
        try:
            for state in self.host.units():
                if state.phase == UnitPhase.ACTIVE or state.left_over_pids:
                    self.book.check()
                    self.host.stop_unit(state.name)
        except HostError as error:
            trouble.append(error.evidence)
        deadline = self.book.now() + GPU_PATIENCE_S
        while not self.host.running([unit.name for unit in self._known()]):
            leaving, staying = self._holders()
            if not leaving or self.book.now() > deadline:
                trouble += leaving + staying
                break
            self.book.check()
            self.book.wait(1.0)
        if trouble:
            self.book.note(not_clean="; ".join(trouble))

    def _holders(self) -> tuple[list[str], list[str]]:
        """Who holds GPUs, in words: whose memory is on its way back, and who stays, so that waiting for him would help nobody.

        Both empty where the GPUs are free, or where nothing can be known by waiting.
        """
        reading = self.host.gpus()
        known = set(self.book.parked().get("bystanders", ()))
        leaving: list[str] = []
        staying: list[str] = []
        for one in reading.holders if reading.known else ():
            ours = one.name is None or one.state in LEAVING or (one.unit or "").startswith("expctl-")
            place = leaving if ours and one.pid not in known else staying
            place.append(f"pid {one.pid} {one.name or 'unknown'} of {one.owner or 'unknown'}")
        return leaving, staying

    def _missing(self, units: list[Serving]) -> list[str]:
        """What does not serve yet, in words; starts what does not even run."""
        if not units:
            return []
        restored = self.host.restore()
        return [self._in_words(unit) for unit in restored if not unit.active] or self._unproven(units)

    def _in_words(self, unit: RestoredUnit) -> str:
        return f"{unit.name} is not active{f' ({unit.message})' if unit.message else ''}"

    def _unproven(self, units: list[Serving]) -> list[str]:
        """Units that run and do not answer with a token."""
        answers = [(unit, serves(self.host, unit, self.headers)) for unit in units]
        return [f"{unit.name}: {answer.detail}" for unit, answer in answers if not answer.ready]

    def _alarm(self, missing: list[str]) -> None:
        if self.book.parked().get("not_restored_at") is None:
            why = "; ".join(missing)
            self.book.note(not_restored_at=self.book.now())
            self.book.block(f"{NOT_RESTORED}: {why}")
            self.book.emit(EventType.PRODUCTION_NOT_RESTORED, units=self.config.park, why=why, tried_for_s=self.config.restore_timeout)

    def _settle(self, units: list[Serving]) -> None:
        parked = self.book.parked()
        after_s = round(self.book.now() - float(parked.get("restoring_since") or self.book.now()), 1)
        away_s = round(self.book.now() - float(parked.get("parked_at") or self.book.now()), 1)
        fired = self.host.given_back()
        if fired is not None:
            self.book.note(given_back_by_host=fired.story)  # disarmed, the host knows no more of it
            parked = self.book.parked()
        self.host.disarm(force=not units)
        if parked.get("not_restored_at") is not None:
            self.book.block(None)
        if parked.get("restored_at") is None:
            # Before the event, so that whoever reads of it finds the figures.
            self.book.note(restored_at=self.book.now(), restored_after_s=after_s, away_s=away_s)
            changed = [unit.name for unit in units if not self._as_before(unit)]
            proof = {unit.name: serves(self.host, unit, self.headers).detail for unit in units}
            extra = {key: parked[key] for key in ("not_clean", "host_rebooted", "given_back_by_host") if parked.get(key)}
            self.book.emit(
                EventType.PRODUCTION_RESTORED,
                units=[unit.name for unit in units], after_s=after_s, away_s=away_s, proof=proof, changed=changed, **extra,
            )  # fmt: skip
        self._after_restore()

    def _after_restore(self) -> None:
        try:
            self._hook("after_restore", self.config.hooks.after_restore)
        except NotParked as failed:
            self.book.note(after_restore=failed.detail)
            log.warning("hook failed", host=self.host.name, why=failed.detail)

    def _as_before(self, unit: Serving) -> bool:
        """The same files, and the same command line as far as it can still be read."""
        source = self.host.source(unit.name)
        told = is_command_line(source.live_argv) and is_command_line(unit.live_argv)
        return source.sha256 == unit.sha256 and (not told or masked_words(source.live_argv) == masked_words(unit.live_argv))
