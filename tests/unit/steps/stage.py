"""A step's whole world in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from service.domain.measurement import Distribution, PhaseResult, PhaseSummary, RequestResult
from service.domain.reasons import Reason
from service.domain.spec import Spec
from workers.bench.run import PhaseRun
from workers.hosts.base import UnitDefinition, UnitPhase, UnitState
from workers.hosts.fake import FakeHost
from workers.hosts.gpu_reading import GpuHolder, GpuMemory, GpuReading
from workers.steps.base import StepContext
from workers.steps.fake import FakeClock, FakeEngine, FakeRecorder

UNIT = "expctl-1-x"
ADDRESS = "http://127.0.0.1:8001"


def make_spec(**changes: Any) -> Spec:
    base = {"name": "x", "engine": {"kind": "vllm", "model": "m"}, "load": {"timeout": 600, "stall": 60}}
    base["bench"] = {"concurrency": [1, 2], "repeat": 1, "warmup": 2}
    return Spec.model_validate({**base, **changes})


@dataclass
class Stage:
    spec: Spec = field(default_factory=make_spec)
    host: FakeHost = field(default_factory=FakeHost)
    engine: FakeEngine = field(default_factory=FakeEngine)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.recorder = FakeRecorder(self.clock)

    @property
    def ctx(self) -> StepContext:
        return StepContext(1, self.spec, UNIT, 8001, ADDRESS, self.host, self.engine, self.recorder, self.clock)

    def start(self, name: str = UNIT, *, listening: bool = False, recorded: bool = True) -> UnitState:
        """Our unit, running as launch left it."""
        wanted = self.engine.launch()
        assert wanted is not None
        state = self.host.start_unit(UnitDefinition(name, wanted.argv, wanted.env, wanted.cwd))
        if recorded:
            self.recorder.note(unit=name, invocation_id=state.invocation_id)
        if listening:
            self.host.listen(name, 8001)
        return state

    def restart_by_somebody(self) -> None:
        self.host.end(UNIT)
        self.start(recorded=False)

    def lose_sight(self, name: str = UNIT) -> None:
        self.host.states[name] = UnitState(name, UnitPhase.UNKNOWN)

    def called(self, call: str) -> list[str]:
        return [about for name, about in self.host.calls if name == call]


def gpus(*used: int | None, holders: tuple[GpuHolder, ...] = ()) -> GpuReading:
    memory = tuple(GpuMemory(index, f"GPU-{index}", "card", mib, 97_000) for index, mib in enumerate(used))
    return GpuReading(known=True, tool="nvidia-smi", gpus=memory, holders=holders, driver="570.1")


def request(prompt: str = "code", *, ok: bool = True, reason: Reason | None = None, **more: Any) -> RequestResult:
    return RequestResult(prompt=prompt, repeat=0, ok=ok, reason=reason if ok else reason or Reason.TRUNCATED_STREAM, **more)


def phase_run(level: int, requests: list[RequestResult]) -> PhaseRun:
    nothing = Distribution()
    failed = sum(not one.ok for one in requests)
    summary = PhaseSummary(
        requests=len(requests), failed=failed, valid=not failed, duration_s=1.0, output_tokens=None, output_tps=None,
        ttft_ms=nothing, tpot_ms=nothing, itl_ms=nothing, e2e_ms=nothing, tps=nothing,
    )  # fmt: skip
    return PhaseRun(PhaseResult(concurrency=level, requests=requests, summary=summary), 1.5)


def holder(name: str | None, of: str | None, pid: int = 77, gpu: int = 0, mib: int | None = 500) -> GpuHolder:
    return GpuHolder(pid=pid, gpu_uuid=f"GPU-{gpu}", used_mib=mib, name=name, owner=of)
