"""Processes without a unit, and what they leave in shared memory. With real processes."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.domain.reasons import Reason
from workers.hosts import ending
from workers.hosts.base import HostError, UnitDefinition
from workers.hosts.ending import describe_processes, end_process
from workers.hosts.local import LocalHost
from workers.hosts.process import own_user, read_process
from workers.hosts.shm import shm_usage
from workers.hosts.units import unit_of

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
WAITS = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def start() -> Iterator[Callable[[str], tuple[int, int]]]:
    """Gives pid and start time."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(code: str) -> tuple[int, int]:
        process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        found = read_process(process.pid)
        assert found is not None
        return process.pid, found.start_ticks

    yield begin
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("code", "number"), [(WAITS, signal.SIGTERM), (STUBBORN, signal.SIGKILL)])
def test_term_and_then_kill(start: Callable[[str], tuple[int, int]], code: str, number: signal.Signals) -> None:
    pid, ticks = start(code)
    assert end_process(pid, ticks, grace_s=0.3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -number


def test_only_exactly_this_process(start: Callable[[str], tuple[int, int]]) -> None:
    pid, ticks = start(WAITS)
    assert not end_process(pid, ticks + 1)
    assert not end_process(999_999_999, 1)
    assert read_process(pid) is not None


def test_another_users_is_refused(monkeypatch: pytest.MonkeyPatch, start: Callable[[str], tuple[int, int]]) -> None:
    pid, ticks = start(WAITS)
    monkeypatch.setattr(ending, "owner", lambda _: "somebody")
    with pytest.raises(HostError) as caught:
        end_process(pid, ticks)
    assert (caught.value.reason, "belongs to somebody" in caught.value.evidence) == (Reason.PERMISSION_DENIED, True)
    assert read_process(pid) is not None


def test_one_that_survives_everything(monkeypatch: pytest.MonkeyPatch, start: Callable[[str], tuple[int, int]]) -> None:
    pid, ticks = start(WAITS)
    sent: list[int] = []
    monkeypatch.setattr(ending, "send_signal", lambda _, number: sent.append(number))
    with pytest.raises(HostError) as caught:
        end_process(pid, ticks, grace_s=0.0, kill_timeout_s=0.0)
    assert caught.value.reason == Reason.UNKILLABLE_PROCESS
    assert f"{pid} (" in caught.value.evidence
    assert sent == [signal.SIGTERM, signal.SIGKILL]


def test_a_refused_signal_is_named(monkeypatch: pytest.MonkeyPatch, start: Callable[[str], tuple[int, int]]) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(ending, "send_signal", refuse)
    with pytest.raises(HostError) as caught:
        end_process(*start(WAITS))
    assert caught.value.reason == Reason.PERMISSION_DENIED


def test_the_host_describes_and_ends(host: LocalHost, start: Callable[[str], tuple[int, int]]) -> None:
    pid, ticks = start(WAITS)
    info = host.processes([pid, 999_999_999])[pid]
    assert (info.name, info.owner, info.unit, info.start_ticks) == (sys.executable, own_user(), None, ticks)
    assert info.state in {"S", "R"}
    assert list(host.processes([pid, 999_999_999])) == [pid]
    assert host.run_as == own_user()
    assert host.end_process(pid, ticks, "test")


def test_a_title_and_no_arguments(start: Callable[[str], tuple[int, int]], tmp_path: Path) -> None:
    """An argument may be a key."""
    pid, _ = start(WAITS)
    assert "time" not in str(describe_processes([pid], tmp_path)[pid].name)


def test_whose_unit_a_process_is(
    host: LocalHost, python: Callable[..., UnitDefinition], tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    for number in (1, 2):
        host.start_unit(python("pass", f"expctl-{number}-over"))
    forks = "import os, time; os.fork(); time.sleep(600)"
    main = host.start_unit(python(forks, "expctl-3-test")).main_pid
    assert main is not None
    children = Path(f"/proc/{main}/task/{main}/children")
    wait_until(lambda: children.read_text().split())
    child = int(children.read_text().split()[0])
    assert [host.processes([pid])[pid].unit for pid in (main, child)] == ["expctl-3-test"] * 2
    assert unit_of(tmp_path / "units", os.getpid()) is None
    assert unit_of(tmp_path / "no-units", main) is None
    os.kill(main, signal.SIGKILL)
    wait_until(lambda: host.unit("expctl-3-test").left_over_pids)
    assert host.processes([child])[child].unit == "expctl-3-test", "also once the unit has ended"


def test_shared_memory(tmp_path: Path) -> None:
    for name in ("psm_1", "nccl-a", "sem.x", "other"):
        (tmp_path / name).write_bytes(b"x" * mmap.PAGESIZE)
    with (tmp_path / "psm_1").open("r+b") as file, mmap.mmap(file.fileno(), 0):
        usage = shm_usage(tmp_path)
    assert usage is not None
    assert usage.left_over == ("nccl-a", "sem.x")
    assert 0 < usage.used_mib <= usage.total_mib
    assert shm_usage(tmp_path / "none") is None


def test_the_hosts_shared_memory(host: LocalHost) -> None:
    usage = host.shm()
    assert usage is None or usage.total_mib >= usage.used_mib >= 0
