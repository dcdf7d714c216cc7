"""A shift's book and a host in memory, for tests of parking and giving back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from service.domain.events import EventType
from workers.engines.base import Readiness
from workers.hosts.fake_production import FakeProductionHost
from workers.production import Production
from workers.steps.base import HandOver

PROD = "vllm-prod.service"
OTHER = "vllm-other.service"
ADDRESS = "http://gpu0"
ANSWERED = Readiness(True, detail="m answered", models=("m",), token="ok")  # noqa: S106 - what the model said


@dataclass
class Book:
    """What a shift writes down, in memory, with a clock that moves when somebody waits."""

    phase: str = "open"
    known: dict[str, Any] = field(default_factory=dict)
    told: list[tuple[EventType, dict[str, Any]]] = field(default_factory=list)
    blocked: str | None = None
    time: float = 1000.0
    stop_after_s: float | None = None
    began: float = 1000.0

    def check(self) -> None:
        if self.stop_after_s is not None and self.time - self.began >= self.stop_after_s:
            raise HandOver

    def wait(self, seconds: float) -> None:
        self.time += seconds

    def now(self) -> float:
        return self.time

    def parked(self) -> dict[str, Any]:
        return dict(self.known)

    def note(self, phase: str | None = None, **parked: Any) -> None:
        self.phase = phase or self.phase
        self.known |= parked

    def emit(self, kind: EventType, **data: Any) -> None:
        self.told.append((kind, data))

    def block(self, why: str | None) -> None:
        self.blocked = why

    def kinds(self) -> list[EventType]:
        return [kind for kind, _ in self.told]


@dataclass
class Rig:
    host: FakeProductionHost
    book: Book
    production: Production
    answers: dict[str, Readiness] = field(default_factory=dict)


def living(rig: Rig) -> tuple[str, ...]:
    return rig.host.running(list(rig.host.states))


def title(rig: Rig, text: str) -> None:
    """Let production's process show a title, and its file say what it runs."""
    file = ("/etc/systemd/system/vllm-prod.service", f"[Service]\nExecStart=/v serve m --port {8123}\n")
    rig.host.sources[PROD] = replace(rig.host.sources[PROD], files=(file,), live_argv=(text,))
