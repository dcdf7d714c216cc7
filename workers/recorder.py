"""The steps' Recorder on the real store: every write is fenced, each in a transaction of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, Literal

from sqlmodel import Session

from service.domain.errors import ClaimLost
from service.domain.events import EventType
from service.domain.masking import LooksMask
from service.domain.measurement import PhaseSummary, RequestResult
from service.domain.speculation import Speculation
from service.domain.status import Status, StepName
from service.store import durations, events, experiments, history, hosts, progressing, results, steps
from service.store.database import Database
from service.store.hosts import Lease
from service.store.tables import StepRow, utc_now
from workers.curfew import Curfew
from workers.heart import Heart
from workers.loadphases import LoadPhases
from workers.steps.base import Cancelled, PhaseKind

STATUS_EVERY_S = 1.0
"""How often the status is read to see a cancel."""
STEPPED_S = 2.0
"""The wall clock went otherwise than time did by more than this: it was set meanwhile, and what it says of a step is no duration."""
WALL_BELIEVED_S = 24 * 3600.0
"""How long ago a launch may be by the wall clock alone."""


class StoreRecorder:
    """Writes down one experiment's attempt."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        heart: Heart,
        stop: threading.Event,
        experiment_id: int,
        attempt: int,
        mask: LooksMask | None = None,
        curfew: Curfew | None = None,
    ) -> None:
        self._curfew = curfew
        self._mask = mask or LooksMask(())
        self._database, self._lease, self._heart, self._stop = database, lease, heart, stop
        self._id, self._attempt = experiment_id, attempt
        self._step: StepRow | None = None
        self._taken_up = False
        self._phases = LoadPhases()
        self._cursor: str | None = None
        self._looked = float("-inf")
        self._begun = (utc_now(), time.monotonic())
        self._launched_at: float | None = None
        """When launch began, where this very worker began it; by the clock that nobody sets."""
        self._taken_over: tuple[float, float] | None = None

    # What the runner calls.

    def begin(self, name: StepName) -> None:
        """Begin a step or take it up again."""
        with self._database.write() as session:
            self._taken_up = steps.find(session, self._id, self._attempt, name) is not None
            self._step = steps.begin(session, self._lease, self._id, self._attempt, name)
            if name == StepName.LOAD:
                self._phases = LoadPhases(experiments.get(session, self._id).progress if self._taken_up else None)
            if name == StepName.LAUNCH and not self._taken_up:
                self._launched_at = time.monotonic()
            self._begun = (utc_now(), time.monotonic())
            found = [row.cursor for row in steps.every(session, self._id) if row.attempt == self._attempt and row.cursor]
        self._cursor = found[-1] if found else None

    def end(self) -> None:
        """End the step that was begun, and write down what it took."""
        with self._database.write() as session:
            ended = steps.end(session, self._lease, self._row.id or 0)
            if ended is not None and not self._stepped():
                durations.of_step(session, ended, taken_up=self._taken_up)

    def _stepped(self) -> bool:
        """Whether the wall clock was set since the step was begun or taken up here."""
        wall, moment = self._begun
        return abs((utc_now() - wall).total_seconds() - (time.monotonic() - moment)) > STEPPED_S

    def finished(self, name: StepName) -> bool:
        """Whether a step was done before."""
        with self._database.read() as session:
            row = steps.find(session, self._id, self._attempt, name)
        return row is not None and row.finished_at is not None

    def confirm(self) -> None:
        """Raise ClaimLost unless the host is ours at this moment."""
        with self._database.write() as session:
            hosts.guard(session, self._lease)

    @property
    def _row(self) -> StepRow:
        if self._step is None:
            raise RuntimeError("no step was begun")
        return self._step

    # What the steps call.

    def check_claim(self) -> None:
        """See whether this worker is still the one, whatever becomes of the experiment."""
        self._heart.check(self._stop)

    def check(self) -> None:
        """See whether to stop."""
        self.check_claim()
        if time.monotonic() - self._looked < STATUS_EVERY_S:
            return
        with self._database.read() as session:
            if not hosts.holds(session, self._lease):
                raise ClaimLost(f"{self._lease.owner} no longer holds {self._lease.host}")
            status = experiments.status_of(session, self._id)
            over = self._curfew.over(session) if self._curfew is not None else None
        self._looked = time.monotonic()
        if status == Status.STOPPING:
            raise Cancelled
        if over is not None:
            raise over

    def note(self, *, evidence: dict[str, Any] | None = None, unit: str | None = None, invocation_id: str | None = None) -> None:
        """Keep what was found."""
        values = {key: value for key, value in (("unit", unit), ("invocation_id", invocation_id)) if value is not None}
        with self._database.write() as session:
            steps.note(session, self._lease, self._row.id or 0, evidence=self._mask(evidence), **values)

    def _launched(self) -> StepRow | None:
        with self._database.read() as session:
            return steps.find(session, self._id, self._attempt, StepName.LAUNCH)

    def invocation(self) -> str | None:
        """The invocation that launch recorded."""
        row = self._launched()
        return row.invocation_id if row else None

    def launched(self) -> dict[str, Any]:
        """Evidence of the launch step."""
        row = self._launched()
        return dict(row.evidence) if row else {}

    def since_launch_s(self, ran_s: float | None = None) -> float:
        """Seconds since launch began: by this worker's own clock, else by the host's (`ran_s`).

        The wall clock is only the last resort, since somebody may set it: what it says is taken once, and where it cannot be, time
        counts from here.
        """
        now = time.monotonic()
        if self._launched_at is not None:
            return now - self._launched_at
        if ran_s is not None:
            return ran_s
        if self._taken_over is None:
            row = self._launched()
            if row is None:
                return 0.0
            before_s = (utc_now() - row.started_at).total_seconds()
            self._taken_over = (now, before_s if 0 <= before_s <= WALL_BELIEVED_S else 0.0)
        return self._taken_over[1] + now - self._taken_over[0]

    def longest_s(self, phase: str | None) -> float | None:
        """The longest that a phase of such a load took on this host."""
        with self._database.read() as session:
            row = experiments.get(session, self._id)
            found = history.parts(session, row.host_id, row, durations.READY)
        part = f"{durations.LOAD_PREFIX}{phase or durations.ENGINE_INIT}"
        return max((run[part] for run in found[0] if part in run), default=None) if found else None

    def cursor(self) -> str | None:
        """How far the log was copied."""
        return self._cursor

    def copy_log(self, lines: tuple[str, ...], cursor: str) -> None:
        """Copy log lines and move the cursor at once."""
        lines = tuple(self._mask.text(line) for line in lines)
        with self._database.write() as session:
            steps.append_log(session, self._lease, self._row, lines, cursor)
        self._cursor = cursor

    def copied_log(self) -> Iterable[str]:
        """Every line copied so far in this attempt."""
        after = 0
        while True:
            with self._database.read() as session:
                pieces = steps.log_after(session, self._id, after)
            if not pieces:
                return
            for piece in pieces:
                after = piece.id or after
                if piece.attempt == self._attempt:
                    yield from piece.text.split("\n")

    def progress(self, data: dict[str, Any], *, event: Literal["load", "bench", "stalled"]) -> None:
        """Show how far it is."""
        data = self._mask(data)
        kind = {"load": EventType.LOAD_PROGRESS, "bench": EventType.BENCH_PROGRESS, "stalled": EventType.LOAD_STALLED}[event]
        with self._database.write() as session:
            shown = data if event == "bench" else data | self._phases.see(data.get("phase"))
            experiments.note_progress(session, self._lease, self._id, shown)
            told = data | {"eta": self._eta(session)} if event == "load" else data
            events.emit(session, kind, f"worker:{self._lease.owner}", host=self._lease.host, experiment_id=self._id, data=told)

    def _eta(self, session: Session) -> dict[str, Any] | None:
        """What is left of the load, by history; None where there is none."""
        row = experiments.get(session, self._id)
        session.refresh(row)
        left = progressing.left(session, row, utc_now())
        return None if left is None else left.load_json(row.progress)

    def facts(self, data: dict[str, Any]) -> None:
        """Add provenance."""
        with self._database.write() as session:
            experiments.add_facts(session, self._lease, self._id, self._mask(data))

    def measured_levels(self) -> set[int]:
        """Levels measured whole."""
        with self._database.read() as session:
            return {phase.concurrency for phase in results.phases(session, self._id, self._attempt)}

    def begin_phase(self, kind: PhaseKind, concurrency: int) -> int:
        """Begin a bench phase."""
        with self._database.write() as session:
            return results.begin_phase(session, self._lease, self._id, self._attempt, kind, concurrency)

    def add_request(self, phase: int, result: RequestResult) -> None:
        """Keep one request."""
        shown = result.model_copy(
            update={name: self._mask.known(getattr(result, name)) for name in ("text", "reasoning_text", "error_message", "tool_calls")}
        )
        with self._database.write() as session:
            results.add_request(session, self._lease, phase, shown)

    def end_phase(self, phase: int, summary: PhaseSummary | None, speculation: Speculation | None) -> None:
        """End a bench phase."""
        with self._database.write() as session:
            results.end_phase(session, self._lease, phase, summary, speculation)

    def failed_requests(self) -> list[RequestResult]:
        """Measured requests that were not ok."""
        with self._database.read() as session:
            measured = results.phases(session, self._id, self._attempt)
        return [request for phase in measured for request in phase.requests if not request.ok]
