"""A recorder, an engine and a clock in memory, for tests of the steps and of what runs them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from service.domain.errors import ClaimLost
from service.domain.measurement import PhaseSummary, RequestResult
from service.domain.reasons import Reason
from service.domain.speculation import EngineCounters, Speculation
from service.domain.status import StepName
from workers.engines.base import Launch, LoadLog, LoadPhase, LoadProgress, Readiness
from workers.steps.base import PhaseKind


class FakeClock:
    """Time that passes only when somebody waits, and what is to happen meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Let something happen at a time."""
        self._due.append((seconds, next(self._order), action))
        self._due.sort(key=lambda item: item[:2])

    def every(self, seconds: float, action: Callable[[], object], until: float) -> None:
        """Let something happen again and again."""
        moment = self.now + seconds
        while moment <= until:
            self.at(moment, action)
            moment += seconds

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self.now

    def wait(self, seconds: float) -> None:
        """Move on, and let happen what is due by then."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            moment, _, action = self._due.pop(0)
            self.now = max(self.now, moment)
            action()
        self.now = end


class FakeLoadLog:
    """Reads `PHASE weights_loading 3/8` and `FATAL cuda_out_of_memory words`; every other line is talk."""

    def __init__(self) -> None:
        self._progress = LoadProgress()

    @property
    def progress(self) -> LoadProgress:
        """Where the load is by the lines seen so far."""
        return self._progress

    def feed(self, lines: Iterable[str]) -> LoadProgress:
        """Take in more lines."""
        for line in lines:
            word, _, rest = line.partition(" ")
            first, _, more = rest.partition(" ")
            if word == "PHASE":
                done, _, total = more.partition("/")
                percent = 100 * int(done) / int(total) if total else None
                self._progress = replace(
                    self._progress,
                    phase=LoadPhase(first),
                    done=int(done) if total else None,
                    total=int(total) if total else None,
                    percent=percent,
                )
            elif word == "FATAL":
                self._progress = replace(self._progress, reason=Reason(first), evidence=more)
        return self._progress


@dataclass
class FakeEngine:
    """Serves at once unless `readiness` or `readinesses` say otherwise. `owns_process=False` makes it an endpoint."""

    kind: str = "fake"
    owns_process: bool = True
    argv: tuple[str, ...] = ("fake-engine", "serve")
    port: int = 8001
    readiness: Readiness = field(
        default_factory=lambda: Readiness(True, detail="m answered", engine_version="1.0", models=("m",), token="ok")  # noqa: S106 - what the model said
    )
    readinesses: list[Readiness] = field(default_factory=list)
    """Given one a probe, in order, before `readiness`."""
    probed: list[str] = field(default_factory=list)
    """The address of every probe."""

    def launch(self) -> Launch | None:
        """How to start it."""
        return Launch(argv=self.argv, env={"FAKE": "1"}, cwd=None, port=self.port) if self.owns_process else None

    def load_log(self) -> LoadLog:
        """A fresh reader."""
        return FakeLoadLog()

    def api_base(self, address: str) -> str:
        """The OpenAI base URL."""
        return f"{address}/v1"

    def served_model(self, probe: Readiness) -> str:
        """The first model listed."""
        return probe.models[0] if probe.models else "m"

    def probe(self, address: str) -> Readiness:
        """The next look."""
        self.probed.append(address)
        return self.readinesses.pop(0) if self.readinesses else self.readiness

    def counters(self, address: str) -> Callable[[], EngineCounters | None]:
        """None are reported."""
        del address
        return lambda: None

    def headers(self) -> dict[str, str]:
        """No key."""
        return {}


@dataclass
class FakePhase:
    """A bench phase as it was recorded."""

    kind: PhaseKind
    concurrency: int
    requests: list[RequestResult] = field(default_factory=list)
    ended: bool = False
    summary: PhaseSummary | None = None
    speculation: Speculation | None = None


@dataclass
class FakeRecorder:
    """Keeps everything that a step tells it. Also what the runner calls is here."""

    clock: FakeClock
    evidence: dict[str, Any] = field(default_factory=dict)
    unit: str | None = None
    invocation_id: str | None = None
    launched_s_ago: float = 0.0
    """How long before the clock's zero launch began, in another worker."""
    longest: dict[str | None, float] = field(default_factory=dict)
    """How long each phase of a load took at most."""
    launch_evidence: dict[str, Any] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    log_cursor: str | None = None
    shown: list[dict[str, Any]] = field(default_factory=list)
    """Progress, in order."""
    provenance: dict[str, Any] = field(default_factory=dict)
    phases: list[FakePhase] = field(default_factory=list)
    begun: list[StepName] = field(default_factory=list)
    done: set[StepName] = field(default_factory=set)
    checks: int = 0
    lost: bool = False
    """Another worker has the host, and no check has noticed yet."""
    _interruptions: list[tuple[float, Exception]] = field(default_factory=list)

    def interrupt(self, error: Exception, after_s: float = 0.0) -> None:
        """Let the first check at or after this time raise: Cancelled, HandOver, ClaimLost."""
        self._interruptions.append((after_s, error))

    def begin(self, name: StepName) -> None:
        """Begin a step or take it up again."""
        self.begun.append(name)

    def end(self) -> None:
        """End the step that was begun last."""
        self.done.add(self.begun[-1])

    def finished(self, name: StepName) -> bool:
        """Whether a step was done before."""
        return name in self.done

    def confirm(self) -> None:
        """ClaimLost where the host is no longer ours."""
        if self.lost:
            raise ClaimLost("somebody else holds the host")

    def check(self) -> None:
        """Raise what is due."""
        self.checks += 1
        for item in self._interruptions:
            if self.clock.now >= item[0]:
                self._interruptions.remove(item)
                raise item[1]

    def note(self, *, evidence: dict[str, Any] | None = None, unit: str | None = None, invocation_id: str | None = None) -> None:
        """Keep what was found."""
        self.evidence |= evidence or {}
        self.unit = unit or self.unit
        self.invocation_id = invocation_id or self.invocation_id

    def launched(self) -> dict[str, Any]:
        """What launch noted."""
        return self.launch_evidence

    def invocation(self) -> str | None:
        """What launch recorded."""
        return self.invocation_id

    def since_launch_s(self, ran_s: float | None = None) -> float:
        """By the clock, and by what another worker used before: the host's word for it, else what was set."""
        return self.launched_s_ago + self.clock.now if ran_s is None else ran_s

    def longest_s(self, phase: str | None) -> float | None:
        """What was set for the phase."""
        return self.longest.get(phase)

    def cursor(self) -> str | None:
        """How far the log was copied."""
        return self.log_cursor

    def copy_log(self, lines: tuple[str, ...], cursor: str) -> None:
        """Keep lines and cursor."""
        self.log.extend(lines)
        self.log_cursor = cursor

    def copied_log(self) -> Iterable[str]:
        """Every line."""
        return list(self.log)

    def progress(self, data: dict[str, Any], *, event: Literal["load", "bench", "stalled"]) -> None:
        """Keep it."""
        self.shown.append({"event": event, **data})

    def facts(self, data: dict[str, Any]) -> None:
        """Add provenance."""
        self.provenance |= data

    def measured_levels(self) -> set[int]:
        """Levels with an ended phase."""
        return {phase.concurrency for phase in self.phases if phase.kind == "measured" and phase.ended}

    def begin_phase(self, kind: PhaseKind, concurrency: int) -> int:
        """Begin a phase; its number is its place."""
        self.phases.append(FakePhase(kind, concurrency))
        return len(self.phases) - 1

    def add_request(self, phase: int, result: RequestResult) -> None:
        """Keep one request."""
        self.phases[phase].requests.append(result)

    def end_phase(self, phase: int, summary: PhaseSummary | None, speculation: Speculation | None) -> None:
        """End a phase."""
        found = self.phases[phase]
        found.ended, found.summary, found.speculation = True, summary, speculation

    def failed_requests(self) -> list[RequestResult]:
        """Of ended measured phases."""
        measured = [phase for phase in self.phases if phase.kind == "measured" and phase.ended]
        return [request for phase in measured for request in phase.requests if not request.ok]
