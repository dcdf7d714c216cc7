"""LocalHost with real processes."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from service.domain.reasons import Reason
from tests.unit.hosts.programs import FOREVER, STUBBORN_FAMILY, UNIT, MakeUnit, WaitUntil, log_text, record
from workers.hosts import supervise
from workers.hosts.base import HostError, UnitDefinition, UnitPhase
from workers.hosts.local import LocalHost
from workers.hosts.process import environment_value, read_process
from workers.hosts.usage import age_s


def test_a_unit_that_was_never_started_is_not_found(host: LocalHost) -> None:
    assert host.unit(UNIT).phase == UnitPhase.NOT_FOUND
    assert host.stop_unit(UNIT).phase == UnitPhase.NOT_FOUND
    assert host.read_log(UNIT, None).lines == ()
    assert host.units() == ()


def test_start_and_observe(host: LocalHost, python: MakeUnit, wait_until: WaitUntil) -> None:
    state = host.start_unit(python(FOREVER, COLOUR="blue"))
    assert state.phase == UnitPhase.ACTIVE
    assert state.main_pid is not None
    assert state.argv[-1] == FOREVER
    assert environment_value(state.main_pid, "COLOUR") == "blue"
    assert os.getsid(state.main_pid) == state.main_pid
    assert [unit.name for unit in host.units()] == [UNIT]
    wait_until(lambda: log_text(host) == "up")


def test_the_workers_own_settings_do_not_reach_the_engine(host: LocalHost, python: MakeUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPCTL_TOKEN", "hush")
    state = host.start_unit(python(FOREVER))
    assert environment_value(state.main_pid, "EXPCTL_TOKEN") is None
    assert environment_value(state.main_pid, supervise.MARKER) == f"{UNIT}:{state.invocation_id}"


def test_values_of_the_environment_are_not_written_down(host: LocalHost, python: MakeUnit, tmp_path: Path) -> None:
    host.start_unit(python(FOREVER, VLLM_API_KEY="hush-hush"))
    for path in (tmp_path / "units" / UNIT).iterdir():
        assert "hush-hush" not in path.read_text()


def test_exit_status_is_known(host: LocalHost, python: MakeUnit, wait_until: WaitUntil) -> None:
    host.start_unit(python("import sys; sys.exit(3)"))
    wait_until(lambda: host.unit(UNIT).phase == UnitPhase.ENDED)
    wait_until(lambda: host.unit(UNIT).exit_status == 3)
    assert host.unit(UNIT).left_over_pids == ()


def test_the_signal_that_ended_it_is_known(host: LocalHost, python: MakeUnit, wait_until: WaitUntil) -> None:
    state = host.start_unit(python(FOREVER))
    os.kill(state.main_pid, signal.SIGKILL)
    wait_until(lambda: host.unit(UNIT).signal == signal.SIGKILL)
    assert host.unit(UNIT).exit_status is None


def test_the_same_definition_is_adopted_by_another_worker(host: LocalHost, python: MakeUnit, tmp_path: Path) -> None:
    first = host.start_unit(python(FOREVER))
    other = LocalHost("here", tmp_path)
    assert other.unit(UNIT) == first
    assert other.start_unit(python(FOREVER)) == first


def test_two_workers_that_start_it_at_once_start_one(host: LocalHost, python: MakeUnit, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        states = list(pool.map(lambda _: LocalHost("here", tmp_path).start_unit(python(FOREVER)), range(4)))
    assert {state.invocation_id for state in states} == {host.unit(UNIT).invocation_id}


def test_a_supervisor_that_became_our_child_is_reaped(host: LocalHost, python: MakeUnit, tmp_path: Path, wait_until: WaitUntil) -> None:
    """As in a container, where the worker is process 1 and every orphan becomes its child."""
    supervise.adopt_orphans()
    try:
        host.start_unit(python("pass"))
        wait_until(lambda: host.unit(UNIT).exit_status == 0 and read_process(int(str(record(tmp_path)["supervisor_pid"]))) is None)
    finally:
        ctypes.CDLL(None).prctl(supervise.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.mark.parametrize("changed", [{"code": FOREVER + "  # other"}, {"code": FOREVER, "A": "b"}])
def test_another_definition_of_a_running_unit_is_refused(host: LocalHost, python: MakeUnit, changed: dict[str, str]) -> None:
    first = host.start_unit(python(FOREVER))
    with pytest.raises(HostError) as caught:
        host.start_unit(python(**changed))
    assert caught.value.reason == Reason.STALE_UNIT_DEFINITION
    assert host.unit(UNIT) == first


def test_a_program_that_is_not_there(host: LocalHost, tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        host.start_unit(UnitDefinition(UNIT, ("/no/such/vllm", "serve")))
    assert caught.value.reason == Reason.EXEC_FAILED
    assert "/no/such/vllm" in caught.value.evidence
    assert host.unit(UNIT).exit_status == 127

    (tmp_path / "plain").write_text("not a program")
    with pytest.raises(HostError) as caught:
        host.start_unit(UnitDefinition(UNIT, (str(tmp_path / "plain"),)))
    assert caught.value.reason == Reason.EXEC_FAILED
    assert host.unit(UNIT).exit_status == 126


def test_a_folder_that_is_not_there_is_named(host: LocalHost) -> None:
    with pytest.raises(HostError) as caught:
        host.start_unit(UnitDefinition(UNIT, ("true",), cwd="/no/such/folder"))
    assert "/no/such/folder" in caught.value.evidence


@pytest.mark.parametrize("name", ["", "..", "a/b", "../x", "-x", "a b"])
def test_names_that_would_leave_the_folder_are_refused(host: LocalHost, name: str) -> None:
    with pytest.raises(HostError) as caught:
        host.unit(name)
    assert caught.value.reason == Reason.UNIT_SYNTAX


def test_stop_ends_a_family_that_ignores_term(host: LocalHost, python: MakeUnit, wait_until: WaitUntil) -> None:
    host.start_unit(python(STUBBORN_FAMILY))
    wait_until(lambda: "parent" in log_text(host) and "grandchild" in log_text(host))
    pids = [int(line.split()[1]) for line in log_text(host).splitlines()]
    state = host.stop_unit(UNIT, grace_s=0.2)
    assert state.phase == UnitPhase.ENDED
    assert state.signal == signal.SIGKILL
    assert state.left_over_pids == ()
    assert all(process is None or not process.alive for process in map(read_process, pids))


def test_term_comes_first(host: LocalHost, python: MakeUnit, wait_until: WaitUntil) -> None:
    host.start_unit(python("import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); signal.pause()"))
    wait_until(lambda: "up" in log_text(host))
    assert host.stop_unit(UNIT).exit_status == 7
    assert host.stop_unit(UNIT).exit_status == 7


def test_units_of_another_data_folder_are_not_ours(host: LocalHost, python: MakeUnit, tmp_path: Path) -> None:
    state = host.start_unit(python(FOREVER))
    other = LocalHost("there", tmp_path / "other")
    other.start_unit(python(FOREVER))
    other.stop_unit(UNIT)
    assert host.unit(UNIT) == state


def test_units_of_another_host_in_the_same_folder_are_not_this_ones(host: LocalHost, python: MakeUnit, tmp_path: Path) -> None:
    """One `up` has a worker for each host, and what each finds left over before it starts its own, it ends."""
    state = host.start_unit(python(FOREVER))
    assert LocalHost("there", tmp_path).units() == ()
    assert host.units() == (state,)
    file = tmp_path / "units" / UNIT / "unit.json"
    kept = json.loads(file.read_text())
    del kept["host"]
    file.write_text(json.dumps(kept))
    assert [one.name for one in LocalHost("there", tmp_path).units()] == [UNIT], "where it was not noted, it may be anybody's"


def test_a_full_disk_has_its_name(host: LocalHost, python: MakeUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(HostError) as caught:
        host.start_unit(python(FOREVER))
    assert caught.value.reason == Reason.DISK_FULL


def test_a_survivor_of_kill_is_reported(tmp_path: Path, python: MakeUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    host = LocalHost("here", tmp_path, kill_timeout_s=0.1)
    host.start_unit(python(FOREVER))
    monkeypatch.setattr("workers.hosts.local.send_signal", lambda *_: None)
    with pytest.raises(HostError) as caught:
        host.stop_unit(UNIT, grace_s=0.0)
    assert caught.value.reason == Reason.UNKILLABLE_PROCESS
    monkeypatch.undo()
    assert host.stop_unit(UNIT).phase == UnitPhase.ENDED


def test_facts_name_the_machine(host: LocalHost) -> None:
    facts = host.facts()
    assert facts["kernel"] == os.uname().release
    assert facts["cpus"] == os.cpu_count()
    assert int(str(facts["memory_mib"])) > 0


BUSY = """
import os, signal
with open('/dev/zero', 'rb', buffering=0) as zeros:
    zeros.read(40 << 20)
end = os.times()[0] + 0.05
while os.times()[0] < end:
    pass
print('up', flush=True)
signal.pause()
"""


def test_what_the_processes_have_used(host: LocalHost, python: MakeUnit, wait_until: WaitUntil) -> None:
    """Children are counted, too: engines work in processes of their own."""
    host.start_unit(python(f"import os\nif os.fork() == 0:\n  exec({BUSY!r})\nos.wait()"))
    wait_until(lambda: host.read_log(UNIT, None).lines == ("up",))
    used = host.unit(UNIT).used
    assert used is not None
    assert used.cpu_s is not None
    assert used.cpu_s >= 0.05
    assert used.read_bytes is not None
    assert 40 << 20 <= used.read_bytes < 60 << 20


def test_how_long_a_process_has_run() -> None:
    first = read_process(1)
    assert first is not None
    with Path("/proc/uptime").open(encoding="ascii") as told:
        up_s = float(told.read().split()[0])
    began_s = first.start_ticks / os.sysconf("SC_CLK_TCK")
    assert age_s(first) == pytest.approx(up_s - began_s, abs=5)
    assert age_s(replace(first, start_ticks=10**12)) == 0.0
