"""LocalHost after something was killed, rebooted or cut: nothing is lost, and nobody else's is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.domain.reasons import Reason
from tests.unit.hosts.programs import FOREVER, STUBBORN_FAMILY, UNIT, MakeUnit, WaitUntil, log_text, record
from workers.hosts.base import HostError, UnitPhase
from workers.hosts.local import LocalHost
from workers.hosts.process import read_process

HIDES_ITS_ENVIRONMENT = """
import os, signal
child = os.fork()
if child == 0:
    os.execve('/bin/sleep', ['sleep', '600'], {})
print(child, flush=True)
signal.pause()
"""
LEAVES_A_DAEMON = """
import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve('/bin/sleep', ['sleep', '600'], {})
    os._exit(0)
os.wait()
print('parent', flush=True)
"""


def test_a_daemon_without_session_or_marker_is_found_and_ended(host: LocalHost, python: MakeUnit, wait_until: WaitUntil) -> None:
    host.start_unit(python(LEAVES_A_DAEMON))
    wait_until(lambda: host.unit(UNIT).phase == UnitPhase.ENDED)
    left = host.unit(UNIT).left_over_pids
    assert len(left) == 1
    with pytest.raises(HostError) as caught:
        host.start_unit(python(FOREVER))
    assert caught.value.reason == Reason.ORPHAN_PROCESS
    assert str(left[0]) in caught.value.evidence
    assert host.stop_unit(UNIT).left_over_pids == ()
    assert host.start_unit(python(FOREVER)).phase == UnitPhase.ACTIVE


def test_a_killed_main_process_leaves_its_children_visible(host: LocalHost, python: MakeUnit, wait_until: WaitUntil) -> None:
    state = host.start_unit(python(STUBBORN_FAMILY))
    wait_until(lambda: "grandchild" in log_text(host))
    os.kill(state.main_pid, signal.SIGKILL)
    wait_until(lambda: len(host.unit(UNIT).left_over_pids) == 2 and host.unit(UNIT).signal == signal.SIGKILL)
    assert host.stop_unit(UNIT, grace_s=0.0).left_over_pids == ()


def test_a_killed_supervisor_leaves_the_engine_findable(host: LocalHost, python: MakeUnit, tmp_path: Path, wait_until: WaitUntil) -> None:
    state = host.start_unit(python(FOREVER))
    os.kill(int(str(record(tmp_path)["supervisor_pid"])), signal.SIGKILL)
    assert host.unit(UNIT) == state
    os.kill(state.main_pid, signal.SIGKILL)
    wait_until(lambda: host.unit(UNIT).phase == UnitPhase.ENDED)
    ended = host.unit(UNIT)
    assert (ended.exit_status, ended.signal) == (None, None)
    assert host.start_unit(python(FOREVER)).invocation_id != state.invocation_id


def test_without_supervisor_and_marker_the_session_still_finds_a_child(
    host: LocalHost, python: MakeUnit, tmp_path: Path, wait_until: WaitUntil
) -> None:
    state = host.start_unit(python(HIDES_ITS_ENVIRONMENT))
    wait_until(lambda: log_text(host))
    child = int(log_text(host))
    wait_until(lambda: read_process(child).command == "sleep")
    os.kill(int(str(record(tmp_path)["supervisor_pid"])), signal.SIGKILL)
    os.kill(state.main_pid, signal.SIGKILL)
    wait_until(lambda: host.unit(UNIT).phase == UnitPhase.ENDED)
    assert host.unit(UNIT).left_over_pids == (child,)
    assert host.stop_unit(UNIT).left_over_pids == ()


def test_the_exit_status_is_known_after_the_starter_was_killed(host: LocalHost, tmp_path: Path, wait_until: WaitUntil) -> None:
    code = (
        "import os, signal, sys, pathlib\n"
        "from workers.hosts.base import UnitDefinition\n"
        "from workers.hosts.local import LocalHost\n"
        "script = 'import sys; sys.stdout.write(chr(10)); open(sys.argv[1]).read(); sys.exit(5)'\n"
        "host = LocalHost('here', pathlib.Path(sys.argv[1]))\n"
        f"host.start_unit(UnitDefinition({UNIT!r}, (sys.executable, '-S', '-c', script, sys.argv[2])))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    starter = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(gate)], cwd=Path(__file__).parents[3], check=False)
    assert starter.returncode == -signal.SIGKILL
    assert host.unit(UNIT).phase == UnitPhase.ACTIVE
    gate.write_text("go")  # the engine ends now
    wait_until(lambda: host.unit(UNIT).exit_status == 5)


def test_a_pid_that_is_anothers_now_is_never_touched(host: LocalHost, python: MakeUnit, tmp_path: Path) -> None:
    state = host.start_unit(python(FOREVER))
    path = tmp_path / "units" / UNIT / "unit.json"
    true_record = path.read_text()
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        old = {**json.loads(true_record), "pid": stranger.pid, "start_ticks": 1, "supervisor_pid": os.getpid(), "supervisor_ticks": 1}
        path.write_text(json.dumps({**old, "invocation_id": "f" * 32}))
        assert host.unit(UNIT).phase == UnitPhase.ENDED
        assert host.unit(UNIT).left_over_pids == ()
        host.stop_unit(UNIT, grace_s=0.0)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
    path.write_text(true_record)
    assert host.unit(UNIT) == state


def test_after_a_reboot_nothing_is_ours(host: LocalHost, python: MakeUnit, tmp_path: Path) -> None:
    state = host.start_unit(python(FOREVER))
    path = tmp_path / "units" / UNIT / "unit.json"
    true_record = path.read_text()
    path.write_text(json.dumps({**json.loads(true_record), "boot_id": "another"}))
    assert host.unit(UNIT).phase == UnitPhase.ENDED
    host.stop_unit(UNIT, grace_s=0.0)
    assert read_process(state.main_pid).alive
    path.write_text(true_record)


def test_a_start_cut_before_the_pid_was_written_is_not_lost(
    host: LocalHost, python: MakeUnit, tmp_path: Path, wait_until: WaitUntil
) -> None:
    state = host.start_unit(python(FOREVER))
    path = tmp_path / "units" / UNIT / "unit.json"
    cut = {**json.loads(path.read_text()), "pid": None, "start_ticks": None}
    os.kill(int(cut["supervisor_pid"]), signal.SIGKILL)
    path.write_text(json.dumps(cut))
    assert host.unit(UNIT) == state
    assert host.stop_unit(UNIT).phase == UnitPhase.NOT_FOUND
    wait_until(lambda: read_process(state.main_pid) is None or not read_process(state.main_pid).alive)
