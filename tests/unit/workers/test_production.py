"""Parking what serves, on a host in memory; only the look at the server's API is replaced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.domain.events import EventType
from service.domain.reasons import Reason
from tests.unit.workers.production_rig import ADDRESS, OTHER, PROD, Rig, living, title
from workers import serving
from workers.engines.base import Readiness
from workers.production import NotParked


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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"NeedDaemonReload": "yes"}, "daemon-reload"),
        ({"TriggeredBy": "vllm-prod.socket"}, "vllm-prod.socket"),
        ({"LoadState": "not-found"}, "no such unit"),
        ({"Id": "kimi.service"}, "--park kimi.service"),
        ({"CanStart": "no"}, "RefuseManualStart"),
        ({"CanStop": "no"}, "RefuseManualStop"),
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"missing": ("/etc/default/kimi",)}, "/etc/default/kimi, which is gone"),
        ({"taken_along": ("gateway.service",)}, "--park vllm-prod.service --park gateway.service"),
        ({"changed": ("/etc/x",), "written_variables": {"A": "2"}, "variables": {"A": "1"}}, "restart it yourself first, or undo"),
    ],
)
def test_what_would_come_back_as_something_else_is_not_stopped(rig: Rig, changes: dict[str, Any], words: str) -> None:
    file = ("/etc/x", "[Service]\nExecStart=/opt/vllm/bin/vllm serve m --port 8000\n")
    rig.host.sources[PROD] = replace(rig.host.sources[PROD], files=(file,), **changes)
    with pytest.raises(NotParked, match=words) as caught:
        rig.production.park()
    assert (caught.value.reason, caught.value.touched, living(rig)) == (Reason.STALE_UNIT_DEFINITION, False, (PROD,))


def test_a_doubt_is_told_and_production_is_parked(rig: Rig) -> None:
    rig.host.sources[PROD] = replace(rig.host.sources[PROD], changed=("/etc/x",))
    rig.production.park()
    [told] = rig.book.told[-1][1]["warnings"]
    assert "/etc/x changed after it was started" in told


def test_what_is_parked_with_it_is_brought_back_with_it(rig: Rig) -> None:
    rig.production = replace(rig.production, config=rig.production.config.model_copy(update={"park": [PROD, OTHER]}))
    rig.host.serve(OTHER, 8002)
    rig.host.sources[PROD] = replace(rig.host.sources[PROD], taken_along=(OTHER,))
    rig.production.park()
    assert rig.book.phase == "parked"
    assert rig.book.told[-1][1].get("warnings") is None


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


def hooked(rig: Rig, tmp_path: Path, before: str) -> Path:
    """Hooks that leave a trace: drained, and what undoes it."""
    trace = tmp_path / "trace"
    hooks = {
        "before_park": ["/bin/sh", "-c", f"echo drained >> {trace}; {before}"],
        "after_restore": ["/bin/sh", "-c", f"echo back >> {trace}"],
    }
    config = rig.production.config
    rig.production = replace(rig.production, config=config.model_copy(update={"hooks": config.hooks.model_copy(update=hooks)}))
    return trace


@pytest.mark.parametrize("before", ["exit 0", "exit 3"])
def test_what_the_hook_did_is_undone_where_production_is_not_parked(rig: Rig, tmp_path: Path, before: str) -> None:
    trace = hooked(rig, tmp_path, before)
    rig.host.fail("arm", Reason.CLAIM_LOST, "held by worker-b of another installation")
    with pytest.raises(NotParked):
        rig.production.park()
    rig.production.leave_as_it_is()
    rig.production.leave_as_it_is()
    assert trace.read_text() == "drained\nback\n"


def test_the_hooks_run_once_around_a_shift(rig: Rig, tmp_path: Path) -> None:
    trace = hooked(rig, tmp_path, "exit 0")
    rig.production.park()
    assert trace.read_text() == "drained\n"
    rig.production.restore()
    assert trace.read_text() == "drained\nback\n"


def test_without_a_hook_nothing_is_undone(rig: Rig, tmp_path: Path) -> None:
    trace = hooked(rig, tmp_path, "exit 0")
    rig.production.leave_as_it_is()
    assert not trace.exists()


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


def test_behind_a_title_the_port_is_the_one_in_the_unit_s_files(rig: Rig) -> None:
    rig.host.serve(PROD, 8123)
    title(rig, "VLLM::APIServer")
    rig.production.park()
    assert rig.book.known["units"][0]["base_url"] == f"{ADDRESS}:8123/v1"
    rig.production.restore()
    assert rig.book.told[-1][1]["proof"] == {PROD: "m answered"}


@pytest.mark.parametrize(("address", "port"), [("http://lb:8000", 8000), ("http://lb:9000", None), ("http://lb", None)])
def test_who_owns_the_port_matters_only_where_production_answers_there(rig: Rig, address: str, port: int | None) -> None:
    rig.production = replace(rig.production, config=rig.production.config.model_copy(update={"production_address": address}))
    rig.production.park()
    unit = rig.book.known["units"][0]
    assert (unit["base_url"], unit["port"], unit["proven"]) == (f"{address}/v1", port, True)


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
