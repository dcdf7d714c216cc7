from __future__ import annotations

import getpass
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.hosts.helper.box import UNIT, Box, Inside
from workers.hosts.helper.processes import Processes
from workers.hosts.helper.programs import run
from workers.hosts.helper.refusals import Refused

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def listens(box: Box, *rows: tuple[str, str, str, str]) -> None:
    """(table, address:port in hexadecimal, state, inode)."""
    for table in ("tcp", "tcp6"):
        lines = [f"   0: {local} 00000000:0000 {state} 0:0 0:0 0 0 0 {inode} 1\n" for name, local, state, inode in rows if name == table]
        box.write(f"proc/net/{table}", HEAD + "".join(lines))


def process(box: Box, pid: int, unit: str, *inodes: str, title: str = "engine") -> None:
    box.write(f"proc/{pid}/stat", f"{pid} (engine (x) y) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid}00 0 0\n")
    box.write(f"proc/{pid}/cmdline", f"{title}\0--port\0008000\0")
    box.write(f"proc/{pid}/cgroup", f"0::/system.slice/{unit}\n")
    box.write(f"proc/{pid}/status", "Name:\tx\nUid:\t65534\t65534\t65534\t65534\n")
    folder = box.root / f"proc/{pid}/fd"
    folder.mkdir()
    for number, inode in enumerate(inodes):
        (folder / str(number)).symlink_to(f"socket:[{inode}]")


def test_who_listens_on_a_port(box: Box) -> None:
    listens(box, ("tcp", "0100007F:1F40", "0A", "11"), ("tcp6", "0" * 32 + ":1F40", "0A", "12"), ("tcp", "0100007F:1F40", "01", "13"))
    process(box, 100, UNIT, "11")
    process(box, 200, "ssh.service", "12", "99", title="sshd")
    assert box.good("port", {"port": 8000})["owners"] == [
        {"pid": 100, "pids": [100], "argv0": "engine", "command": "engine --port 8000", "unit": UNIT, "user": "nobody"},
        {"pid": 200, "pids": [200], "argv0": "sshd", "command": "sshd --port 8000", "unit": "ssh.service", "user": "nobody"},
    ]
    assert box.good("port", {"port": 8001})["owners"] == []


def test_a_socket_whose_process_is_not_to_be_seen_is_somebodys(inside: Inside) -> None:
    listens(inside.box, ("tcp", "00000000:1F40", "0A", "11"))
    (owner,) = inside.good("port", {"port": 8000})["owners"]
    assert (owner["pid"], owner["unit"]) == (None, None)


def test_a_socket_that_several_share_is_one_owner(inside: Inside) -> None:
    listens(inside.box, ("tcp", "00000000:1F40", "0A", "11"))
    process(inside.box, 50, "", "11")
    process(inside.box, 60, UNIT, "11")
    (owner,) = inside.good("port", {"port": 8000})["owners"]
    assert (owner["pid"], owner["pids"], owner["unit"]) == (60, [50, 60], UNIT)


def test_looking_is_a_status_a_port_and_processes_in_one(box: Box) -> None:
    listens(box, ("tcp", "00000000:1F40", "0A", "11"), ("tcp", "0100007F:1F40", "0A", "12"))
    process(box, 60, UNIT, "11")
    process(box, 70, "x.service", "12")
    answer = box.good("look", {"unit": UNIT, "port": 8000, "pids": [70, 71]})
    assert answer["status"] == box.good("status", {"unit": UNIT})
    assert answer["owners"] == box.good("port", {"port": 8000})["owners"]
    assert answer["processes"] == box.good("processes", {"pids": [70]})["processes"]
    assert box.good("look", {"unit": UNIT}) == {"status": answer["status"], "owners": [], "processes": []}


def test_the_units_own_processes_are_asked_first(inside: Inside) -> None:
    """So that a poll does not read every descriptor of a host with a thousand processes."""
    listens(inside.box, ("tcp", "00000000:1F40", "0A", "11"))
    process(inside.box, 60, UNIT, "11")
    process(inside.box, 50, "x.service", "11")
    assert inside.good("look", {"unit": UNIT, "port": 8000})["owners"][0]["pids"] == [60]


def test_processes_in_full(inside: Inside) -> None:
    process(inside.box, 60, "docker-1.scope/init.scope")
    assert inside.good("processes", {"pids": [60, 61]})["processes"] == [
        {
            "pid": 60,
            "name": "engine (x) y",
            "user": "nobody",
            "unit": "docker-1.scope",
            "state": "S",
            "start_ticks": 6000,
            "ppid": 1,
            "cmdline": ["engine", "--port", "8000"],
            "unit_lives": False,
        }
    ]


@pytest.mark.parametrize(
    ("init", "cgroup", "unit"),
    [
        ("0::/init.scope", "0::/system.slice/a.service", "a.service"),
        ("0::/init.scope", "0::/user.slice/user@1.service/app.slice/b.service", "user@1.service"),
        ("0::/x.slice/docker-1.scope/init.scope", "0::/x.slice/docker-1.scope/system.slice/a.service", "a.service"),
        ("0::/x.slice/docker-1.scope/init.scope", "0::/y.slice/other.scope", None),
        ("0::/", "0::/system.slice/a.service", "a.service"),
        ("", "5:memory:/m.service\n1:name=systemd:/system.slice/a.service", "a.service"),
        ("", "0::/\n", None),
    ],
)
def test_the_unit_of_a_process(tmp_path: Path, init: str, cgroup: str, unit: str | None) -> None:
    for pid, text in ((1, init), (9, cgroup)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text + "\n")
    assert Processes(tmp_path).unit(9) == unit


@pytest.mark.parametrize(
    ("state", "threads", "lives"), [("S", 1, True), ("D", 1, True), ("Z", 1, False), ("Z", 0, False), ("X", 1, False), ("Z", 5, True)]
)
def test_a_dead_process_has_ended_unless_threads_of_it_live(tmp_path: Path, state: str, threads: int, lives: bool) -> None:
    (tmp_path / "9").mkdir()
    (tmp_path / "9/stat").write_text(f"9 (a) {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 77 0\n")
    assert (Processes(tmp_path).read(9) is not None) is lives


def test_a_real_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()", "", "a b", ""], stdin=subprocess.PIPE) as child:
        described = Processes(Path("/proc")).describe(child.pid)
        while described is not None and not described["cmdline"]:  # as right after exec
            described = Processes(Path("/proc")).describe(child.pid)
        assert described is not None
        assert described["user"] == getpass.getuser()
        assert described["cmdline"][-3:] == ["", "a b", ""]
        child.kill()


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (b"VLLM::APIServer" + b"\0" * 5000, ["VLLM::APIServer"]),
        (b"sglang::server of a model", ["sglang::server of a model"]),
        (b"\0" * 9, []),
        (b"", []),
        (b"/v\0serve\0\0", ["/v", "serve", ""]),
    ],
)
def test_a_title_is_one_word_whatever_stood_there_before(tmp_path: Path, shown: bytes, words: list[str]) -> None:
    (tmp_path / "9").mkdir()
    (tmp_path / "9/cmdline").write_bytes(shown)
    assert Processes(tmp_path).command_line(9) == words


def test_facts(box: Box) -> None:
    box.write("proc/meminfo", "MemTotal:       2048000 kB\nMemAvailable: 1024000 kB\nCached: 512000 kB\n")
    box.write("proc/cpuinfo", "processor : 0\nmodel name\t: Fast CPU\nmodel name\t: Fast CPU\n")
    box.write(
        "proc/mounts",
        "/dev/sda1 /run/one-file ext4 rw 0 0\n/dev/sda1 / ext4 rw 0 0\nserver:/x /mnt nfs rw 0 0\n/dev/loop1 /snap squashfs ro 0 0\n",
    )
    box.write("etc/os-release", 'NAME="x"\nPRETTY_NAME="Some Linux 1"\n')
    found = box.good("facts")["facts"]
    assert (found["memory_mib"], found["memory_available_mib"], found["page_cache_mib"]) == (2000, 1000, 500)
    assert (found["cpu_model"], found["os"], found["systemd"], found["boot_id"]) == ("Fast CPU", "Some Linux 1", 252, "boot-1")
    assert [disk["mount"] for disk in found["disks"]] == ["/"]
    assert found["disks"][0]["free_mib"] > 0
    assert found["shm_total_mib"] is None


def test_a_program_that_hangs_is_ended() -> None:
    before = time.monotonic()
    with pytest.raises(Refused, match="did not end in time"):
        run(["/bin/sh", "-c", "sleep 60 & sleep 60"], 0.3)
    with pytest.raises(Refused, match="did not end in time"):
        run(["/bin/sh", "-c", "exec >&- 2>&-; sleep 60"], 0.3)
    assert time.monotonic() - before < 20


def test_a_program_that_prints_for_ever_is_ended() -> None:
    with pytest.raises(Refused, match="printed more than"):
        run(["/bin/sh", "-c", "yes"], 30)


def test_a_programs_environment_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_DEBUG_OUTPUT", "/srv/x")
    names = {line.partition("=")[0] for line in run(["/usr/bin/env"]).out.splitlines()}
    assert names == {"PATH", "LC_ALL", "SYSTEMD_COLORS", "SYSTEMD_PAGER"}


def test_what_a_unit_s_processes_have_read(inside: Inside) -> None:
    """From disks and by calls; a process that is another user's, or gone, says nothing."""
    for pid in (60, 61, 62):
        process(inside.box, pid, UNIT)
    inside.box.write("proc/60/io", "rchar: 1000\nwchar: 7\nread_bytes: 4096\nwrite_bytes: 9\ncancelled_write_bytes: 0\n")
    inside.box.write("proc/61/io", "rchar: 1\nread_bytes: 0\n")
    assert inside.good("status", {"unit": UNIT})["read_bytes"] == 5097
    assert inside.good("status", {"unit": "expctl-2-none.service"})["read_bytes"] is None


def test_how_long_a_unit_runs_is_told_by_the_clock_that_nobody_sets(inside: Inside) -> None:
    process(inside.box, 60, UNIT)
    began_us = int((inside.clock.monotonic() - 90) * 1e6)
    for stamp, age_s in ((began_us, pytest.approx(90, abs=0.01)), (0, None)):
        inside.box.set_unit(UNIT, ActiveState="active", MainPID="60", ExecMainStartTimestampMonotonic=str(stamp))
        assert inside.good("status", {"unit": UNIT})["age_s"] == age_s
