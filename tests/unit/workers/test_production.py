"""Parking and giving back, on a host in memory; only the look at the server's API is replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from service.domain.events import EventType
from service.domain.host_config import HostConfig
from service.domain.reasons import Reason
from workers import serving
from workers.engines.base import Readiness
from workers.hosts.base import DeadManFired, GpuHolder, GpuMemory, GpuReading, HostError, UnitDefinition, UnitPhase
from workers.hosts.fake_production import FakeProductionHost
from workers.production import NotParked, Production
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


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    host, book = FakeProductionHost("gpu0"), Book()
    config = HostConfig(ssh="gpu0", units="systemd", park=[PROD], restore_timeout=600, dead_man=1800)
    made = Rig(host, book, Production(host, config, ADDRESS, {}, book))

    def probe(base_url: str, model: str, headers: Mapping[str, str], token_s: float) -> Readiness:
        del model, headers, token_s
        return made.answers.get(base_url) or ANSWERED

    monkeypatch.setattr(serving, "probe", probe)
    host.serve(PROD)
    return made


def living(rig: Rig) -> tuple[str, ...]:
    return rig.host.running(list(rig.host.states))


def test_what_serves_is_proven_and_recorded_before_it_is_stopped(rig: Rig) -> None:
    rig.production.park()
    unit = rig.book.known["units"][0]
    assert (unit["name"], unit["base_url"], unit["model"], unit["proven"]) == (PROD, f"{ADDRESS}:8000/v1", "m", True)
    assert rig.host.armed is not None
    assert [one.name for one in rig.host.armed] == [PROD]
    calls = [name for name, _ in rig.host.calls if name in {"arm", "stop_unit"}]
    assert calls == ["arm", "stop_unit"], "the dead-man is armed before anything is stopped"
    assert (rig.book.phase, living(rig)) == ("parked", ())
    assert rig.book.kinds() == [EventType.PRODUCTION_PARKED]


def test_it_comes_back_and_is_proven(rig: Rig) -> None:
    rig.production.park()
    rig.book.time += 3600
    rig.production.restore()
    assert living(rig) == (PROD,)
    kind, data = rig.book.told[-1]
    assert kind == EventType.PRODUCTION_RESTORED
    assert (data["units"], data["away_s"], data["proof"], data["changed"]) == ([PROD], 3600.0, {PROD: "m answered"}, [])
    assert rig.host.armed is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"NeedDaemonReload": "yes"}, "daemon-reload"),
        ({"TriggeredBy": "vllm-prod.socket"}, "vllm-prod.socket"),
        ({"LoadState": "not-found"}, "no such unit"),
    ],
)
def test_what_would_not_come_back_as_it_is_is_not_stopped(rig: Rig, changes: dict[str, str], words: str) -> None:
    source = rig.host.sources[PROD]
    rig.host.sources[PROD] = replace(source, properties={**source.properties, **changes})
    with pytest.raises(NotParked, match=words) as caught:
        rig.production.park()
    assert (caught.value.reason, caught.value.touched) == (Reason.STALE_UNIT_DEFINITION, False)
    assert living(rig) == (PROD,)
    assert rig.host.armed is None


def test_what_is_not_proven_to_serve_is_not_stopped(rig: Rig) -> None:
    rig.answers[f"{ADDRESS}:8000/v1"] = Readiness(False, detail="503 loading")
    with pytest.raises(NotParked, match="503 loading") as caught:
        rig.production.park()
    assert (caught.value.reason, caught.value.touched, living(rig)) == (Reason.ENGINE_UNRESPONSIVE, False, (PROD,))


def test_what_did_not_run_is_not_started_afterwards(rig: Rig) -> None:
    rig.production = replace(rig.production, config=rig.production.config.model_copy(update={"park": [PROD, OTHER]}))
    rig.host.serve(OTHER, 8002)
    rig.host.end(OTHER)
    rig.production.park()
    rig.production.restore()
    assert living(rig) == (PROD,)


def test_units_stop_in_reverse_order(rig: Rig) -> None:
    rig.production = replace(rig.production, config=rig.production.config.model_copy(update={"park": [PROD, OTHER]}))
    rig.host.serve(OTHER, 8002)
    rig.production.park()
    assert [about for name, about in rig.host.calls if name == "stop_unit"] == [OTHER, PROD]


def test_a_hook_that_fails_leaves_production_alone(rig: Rig) -> None:
    hooks = rig.production.config.hooks.model_copy(update={"before_park": ["/bin/sh", "-c", "echo no; exit 3"]})
    rig.production = replace(rig.production, config=rig.production.config.model_copy(update={"hooks": hooks}))
    with pytest.raises(NotParked, match="status 3: no") as caught:
        rig.production.park()
    assert (caught.value.reason, caught.value.touched, living(rig)) == (Reason.HOOK_FAILED, False, (PROD,))


def test_one_that_was_started_while_it_was_parked_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.host, "stop_unit", lambda name, **_: rig.host.unit(name))
    with pytest.raises(NotParked) as caught:
        rig.production.park()
    assert (caught.value.reason, caught.value.touched) == (Reason.PRODUCTION_STARTED_BY_HAND, True)


def test_a_second_installation_is_refused_and_nothing_is_stopped(rig: Rig) -> None:
    rig.host.fail("arm", Reason.CLAIM_LOST, "held by worker-b of another installation")
    with pytest.raises(NotParked, match="held by worker-b") as caught:
        rig.production.park()
    assert (caught.value.touched, living(rig)) == (False, (PROD,))


def test_parking_that_was_cut_is_taken_up_from_what_was_recorded(rig: Rig) -> None:
    rig.host.fail("stop_unit", Reason.CONNECTION_LOST)
    with pytest.raises(NotParked):
        rig.production.park()
    rig.host.sources.clear()  # a second survey would fail
    rig.production.park()
    assert (rig.book.phase, living(rig)) == ("parked", ())


def test_restoring_that_was_cut_is_taken_up(rig: Rig) -> None:
    rig.production.park()
    rig.answers[f"{ADDRESS}:8000/v1"] = Readiness(False, detail="503 loading")
    rig.book.began, rig.book.stop_after_s = rig.book.time, 20.0
    with pytest.raises(HandOver):
        rig.production.restore()
    assert (rig.book.phase, rig.host.armed is not None) == ("restoring", True)
    rig.book.stop_after_s = None
    del rig.answers[f"{ADDRESS}:8000/v1"]
    rig.production.restore()
    assert rig.book.kinds().count(EventType.PRODUCTION_RESTORED) == 1
    assert rig.host.armed is None


def test_ours_end_before_production_starts(rig: Rig) -> None:
    rig.production.park()
    rig.host.start_unit(UnitDefinition("expctl-1-x", ("x",)))
    rig.production.restore()
    assert living(rig) == (PROD,)
    assert rig.host.states["expctl-1-x"].phase == UnitPhase.ENDED


def test_gpus_that_stay_held_are_told_and_production_is_started_all_the_same(rig: Rig) -> None:
    rig.production.park()
    holder = GpuHolder(42, "GPU-0", 100, "python", "somebody")
    rig.host.gpu_reading = GpuReading(known=True, tool="nvidia-smi", gpus=(GpuMemory(0, "GPU-0", "card", 100, 1000),), holders=(holder,))
    rig.production.restore()
    assert living(rig) == (PROD,)
    assert "pid 42 python of somebody" in rig.book.told[-1][1]["not_clean"]


def test_not_restored_is_told_once_and_tried_on(rig: Rig) -> None:
    rig.production.park()
    rig.host.stays_down.add(PROD)
    rig.book.began, rig.book.stop_after_s = rig.book.time, 2000.0
    with pytest.raises(HandOver):
        rig.production.restore()
    assert rig.book.kinds().count(EventType.PRODUCTION_NOT_RESTORED) == 1
    assert rig.book.blocked is not None
    assert rig.book.blocked.startswith("NOT RESTORED: vllm-prod.service is not active (exit-code)")
    rig.host.stays_down.clear()
    rig.book.stop_after_s = None
    rig.production.restore()
    assert rig.book.kinds()[-1] == EventType.PRODUCTION_RESTORED
    assert rig.book.blocked is None


def test_a_server_that_runs_and_does_not_answer_is_not_restored(rig: Rig) -> None:
    rig.production.park()
    rig.answers[f"{ADDRESS}:8000/v1"] = Readiness(False, detail="no token came back")
    rig.book.began, rig.book.stop_after_s = rig.book.time, 2000.0
    with pytest.raises(HandOver):
        rig.production.restore()
    assert EventType.PRODUCTION_NOT_RESTORED in rig.book.kinds()
    assert "no token came back" in (rig.book.blocked or "")


def title(rig: Rig, text: str) -> None:
    """Let production's process show a title, and its file say what it runs."""
    file = ("/etc/systemd/system/vllm-prod.service", f"[Service]\nExecStart=/v serve m --port {8123}\n")
    rig.host.sources[PROD] = replace(rig.host.sources[PROD], files=(file,), live_argv=(text,))


def test_behind_a_title_the_port_is_the_one_in_the_unit_s_files(rig: Rig) -> None:
    rig.host.serve(PROD, 8123)
    title(rig, "VLLM::APIServer")
    rig.production.park()
    assert rig.book.known["units"][0]["base_url"] == f"{ADDRESS}:8123/v1"
    rig.production.restore()
    assert rig.book.told[-1][1]["proof"] == {PROD: "m answered"}


def test_a_title_that_is_not_there_yet_is_no_change(rig: Rig) -> None:
    rig.host.serve(PROD, 8123)
    title(rig, "VLLM::APIServer")
    rig.production.park()
    rig.host.sources[PROD] = replace(rig.host.sources[PROD], live_argv=("/v", "serve", "m", "--port", "8123"))
    rig.production.restore()
    assert rig.book.told[-1][1]["changed"] == []


@pytest.mark.parametrize(("address", "port"), [("http://lb:8000", 8000), ("http://lb:9000", None), ("http://lb", None)])
def test_who_owns_the_port_matters_only_where_production_answers_there(rig: Rig, address: str, port: int | None) -> None:
    rig.production = replace(rig.production, config=rig.production.config.model_copy(update={"production_address": address}))
    rig.production.park()
    unit = rig.book.known["units"][0]
    assert (unit["base_url"], unit["port"], unit["proven"]) == (f"{address}/v1", port, True)


def test_another_program_on_its_port_is_no_proof(rig: Rig) -> None:
    rig.production.park()
    rig.host.serve("imposter.service", 8000)
    unit = serving.Serving.from_json(rig.book.known["units"][0])
    answer = serving.serves(rig.host, unit, {})
    assert not answer.ready
    assert "not by vllm-prod.service" in answer.detail


def test_the_dead_man_s_work_is_accepted(rig: Rig) -> None:
    rig.production.park()
    rig.host.fire()
    rig.production.restore()
    assert (living(rig), rig.book.kinds()[-1]) == ((PROD,), EventType.PRODUCTION_RESTORED)


def test_parking_after_the_dead_man_has_fired_has_to_be_undone(rig: Rig) -> None:
    rig.production.park()
    rig.host.fire()
    rig.book.phase = "parking"
    with pytest.raises(DeadManFired):
        rig.production.park()
    rig.production.restore()
    assert "by itself at 2026-01-01T03:00:00Z" in rig.book.known["given_back_by_host"]


@pytest.mark.parametrize(
    ("argv", "port"),
    [
        (("vllm", "serve", "m", "--port", "8123"), 8123),
        (("vllm", "serve", "m", "--port=8123"), 8123),
        (("/opt/vllm/bin/vllm", "serve", "m"), 8000),
        (("python", "-m", "sglang.launch_server"), 30000),
        (("/usr/bin/llama-server", "-m", "x"), 8080),
        (("/usr/sbin/nginx",), None),
        (("vllm", "serve", "m", "--port"), None),
        (("vllm", "serve", "m", "--port", "1", "--port", "8123"), 8123),
        (("/bin/bash", "-c", "exec vllm serve m --port '8123'"), 8123),
        (("vllm", "serve", "m", "--config", "/etc/vllm.yaml"), None),
        (("vllm", "serve", "m", "--config=/etc/vllm.yaml", "--port", "8123"), 8123),
        (("vllm", "serve", "m", "--uds", "/run/vllm"), None),
    ],
)
def test_the_port_is_read_from_the_command_line(argv: tuple[str, ...], port: int | None) -> None:
    assert serving.port_of(argv) == port


def test_a_host_that_is_out_of_reach_is_an_alarm_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.production.park()
    reachable = [False]

    def when_reachable(act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            if not reachable[0]:
                raise HostError(Reason.HOST_UNREACHABLE, "no answer for 30 s")
            return act(*given)

        return call

    for name in ("units", "running"):
        monkeypatch.setattr(rig.host, name, when_reachable(getattr(rig.host, name)))
    rig.book.began, rig.book.stop_after_s = rig.book.time, 2000.0
    with pytest.raises(HandOver):
        rig.production.restore()
    assert rig.book.blocked == "NOT RESTORED: no answer for 30 s"
    reachable[0], rig.book.stop_after_s = True, None
    rig.production.restore()
    assert (living(rig), rig.book.blocked) == ((PROD,), None)


def test_the_time_that_a_lost_worker_tried_counts(rig: Rig) -> None:
    rig.production.park()
    rig.answers[f"{ADDRESS}:8000/v1"] = Readiness(False, detail="503 loading")
    for _ in range(3):
        rig.book.began, rig.book.stop_after_s = rig.book.time, 300.0
        with pytest.raises(HandOver):
            rig.production.restore()
    assert rig.book.kinds().count(EventType.PRODUCTION_NOT_RESTORED) == 1
