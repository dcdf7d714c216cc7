from __future__ import annotations

import os
import pwd
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.hosts.helper.box import CLAIM, PARKED, UNIT, Box, Inside
from tests.unit.hosts.helper.claiming import arm
from workers.hosts.helper.places import Caller

HERE = {"claim": CLAIM, "unit": UNIT}
OWN = pwd.getpwuid(os.getuid()).pw_name


def write(inside: Inside, **changed: Any) -> None:
    inside.good("write-unit", {**HERE, "argv": ["/bin/engine", "${A}", "$B", "$$C"], **changed})


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_unit_is_started_and_looked_at(box: Box) -> None:
    box.good("write-unit", {**HERE, "argv": ["/bin/engine", "a b"], "env": {"A": "1", "SECRET": "2"}})
    answer = box.good("start", HERE)
    assert answer["started"] is True
    assert answer["show"]["ActiveState"] == "active"
    assert answer["seen_argv"] == answer["argv"] == ["/bin/engine", "a b"]
    assert answer["pids"] == [int(answer["show"]["MainPID"])]
    assert answer["variables"] == {}
    assert "--no-block" in box.calls("start")[0]
    assert box.calls("reset-failed") == [[UNIT]]


def test_of_the_variables_only_those_that_the_command_refers_to_are_told(inside: Inside) -> None:
    inside.box.source(PARKED, "[Service]\nUser=nobody\nExecStart=/bin/a\n")
    fork = {"from_unit": PARKED, "words": ["/bin/engine", "${A}", "$B", "$$C"]}
    write(inside, argv=None, fork=fork, env={"A": "1", "B": "2", "C": "3", "D": "4"})
    assert inside.good("start", HERE)["variables"] == {"A": "1", "B": "2"}


def test_what_was_seen_first_is_kept_when_the_program_renames_itself(inside: Inside) -> None:
    fork = {"from_unit": PARKED, "words": ["/bin/engine", "${A}"]}
    write(inside, argv=None, fork=fork, env={"A": "1"})
    first = inside.good("start", HERE)
    folder = inside.box.root / "proc" / first["show"]["MainPID"]
    (folder / "cmdline").write_bytes(b"VLLM::APIServer\0")
    (folder / "environ").write_bytes(b"")
    again = inside.good("start", HERE)
    assert (again["started"], again["argv"], again["seen_argv"]) == (False, ["VLLM::APIServer"], ["/bin/engine", "${A}"])
    assert again["variables"] == {"A": "1"}
    assert inside.good("status", {"unit": UNIT})["seen_argv"] == ["/bin/engine", "${A}"]
    assert len(inside.box.calls("start")) == 1


def test_what_was_seen_of_one_start_is_not_told_of_the_next(inside: Inside) -> None:
    write(inside)
    inside.good("start", HERE)
    inside.good("stop", HERE)
    assert inside.good("status", {"unit": UNIT})["seen_argv"][0] == "/bin/engine"
    inside.box.behave(UNIT, start="fail")
    assert inside.good("start", HERE)["seen_argv"] == []


def test_the_program_is_waited_for(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    inside.box.behave(UNIT, start="early")
    write(inside)

    def exec_now(seconds: float) -> None:
        inside.clock.pass_(seconds)
        for folder in (inside.box.root / "proc").glob("[0-9]*"):
            (folder / "exe").unlink()
            (folder / "exe").symlink_to("/bin/engine")

    monkeypatch.setattr(inside.clock, "sleep", exec_now)
    assert inside.good("start", HERE)["seen_argv"][0] == "/bin/engine"


def test_what_nobody_saw_in_time_is_not_made_up(inside: Inside) -> None:
    inside.box.behave(UNIT, start="early")
    write(inside)
    pid = inside.good("start", {**HERE, "deadline_s": 1})["show"]["MainPID"]
    (inside.box.root / "proc" / pid / "exe").unlink()
    (inside.box.root / "proc" / pid / "exe").symlink_to("/usr/bin/python3")
    (inside.box.root / "proc" / pid / "cmdline").write_bytes(b"VLLM::APIServer\0")
    inside.clock.pass_(60)
    assert inside.good("start", HERE)["seen_argv"] == []


def test_a_start_that_fails_is_an_answer(inside: Inside) -> None:
    inside.box.behave(UNIT, start="fail")
    write(inside)
    answer = inside.good("start", HERE)
    assert (answer["show"]["ActiveState"], answer["show"]["ExecMainStatus"], answer["argv"]) == ("failed", "203", [])


def test_a_start_that_takes_long_is_left_at_the_deadline(inside: Inside) -> None:
    inside.box.behave(UNIT, start="hang")
    write(inside)
    before = inside.clock.monotonic()
    answer = inside.good("start", {**HERE, "deadline_s": 2})
    assert 2 <= inside.clock.monotonic() - before < 3
    assert (answer["show"]["ActiveState"], answer["seen_argv"]) == ("activating", [])
    assert inside.good("start", {**HERE, "deadline_s": 1})["started"] is False
    assert len(inside.box.calls("start")) == 1


def test_the_managers_copy_is_not_taken_for_the_program(inside: Inside) -> None:
    inside.box.behave(UNIT, start="early")
    write(inside)
    assert inside.good("start", {**HERE, "deadline_s": 1})["seen_argv"] == []


def test_a_start_that_systemd_refuses(inside: Inside) -> None:
    inside.box.behave(UNIT, start="refuse")
    write(inside)
    answer = inside.bad("start", HERE)
    assert (answer["reason"], "told to refuse" in answer["message"]) == ("remote_command_failed", True)


def test_a_unit_that_was_never_written(inside: Inside) -> None:
    answer = inside.bad("start", HERE)
    assert (answer["reason"], "write it first" in answer["message"]) == ("remote_command_failed", True)


@pytest.mark.parametrize("state", ["active", "activating", "reloading", "deactivating"])
def test_production_is_not_stopped_by_starting_something_else(inside: Inside, state: str) -> None:
    write(inside, conflicts=[PARKED])
    inside.box.set_unit(PARKED, ActiveState=state)
    assert inside.bad("start", HERE)["reason"] == "production_started_by_hand"
    assert inside.box.calls("start") == []
    inside.box.set_unit(PARKED, ActiveState="failed")
    assert inside.good("start", HERE)["started"]


def test_stopping_ends_every_process(box: Box) -> None:
    box.good("write-unit", {**HERE, "argv": ["/bin/engine"]})
    pid = int(box.good("start", HERE)["show"]["MainPID"])
    worker, _ = box.extra_process(UNIT, "VLLM::Worker")
    assert set(box.good("status", {"unit": UNIT})["pids"]) == {pid, worker}
    answer = box.good("stop", HERE)
    assert (answer["show"]["ActiveState"], answer["pids"], answer["left_over"]) == ("inactive", [], [])
    assert not alive(pid)
    assert not alive(worker)
    assert "--no-block" in box.calls("stop")[0]


def test_who_ignores_term_is_killed_after_the_grace(inside: Inside) -> None:
    inside.box.behave(UNIT, stubborn=True)
    write(inside)
    pid = int(inside.good("start", HERE)["show"]["MainPID"])
    time.sleep(0.3)  # until its shell ignores TERM
    before = inside.clock.monotonic()
    answer = inside.good("stop", {**HERE, "grace_s": 3})
    assert inside.clock.monotonic() - before >= 3
    assert answer["pids"] == []
    assert not alive(pid)


def test_left_over_processes_of_an_ended_unit_are_ended_too(inside: Inside) -> None:
    write(inside)
    left, _ = inside.box.extra_process(UNIT, "VLLM::EngineCore")
    assert inside.good("status", {"unit": UNIT})["pids"] == [left]
    before = inside.clock.monotonic()
    assert inside.good("stop", HERE)["pids"] == []
    assert inside.clock.monotonic() - before < 15  # TERM was enough
    assert inside.box.calls("stop") == []  # systemd has nothing to stop any more


def test_a_process_that_nothing_ends_is_named(inside: Inside) -> None:
    write(inside)
    inside.good("start", HERE)
    pid, _ = inside.box.extra_process(UNIT, "VLLM::Worker", immortal=True)
    answer = inside.bad("stop", {**HERE, "grace_s": 1})
    assert (answer["reason"], answer["pids"], answer["status"]["pids"]) == ("unkillable_process", [pid], [pid])
    assert str(pid) in answer["message"]


def test_stopping_what_does_not_exist_is_fine(inside: Inside) -> None:
    answer = inside.good("stop", HERE)
    assert (answer["show"]["LoadState"], answer["left_over"]) == ("not-found", [])


def test_production_is_stopped_only_while_its_restoring_is_promised(inside: Inside) -> None:
    inside.box.systemctl("start", PARKED)
    wanted = {"claim": CLAIM, "unit": PARKED}
    assert inside.bad("stop", wanted)["reason"] == "permission_denied"
    arm(inside, units=())
    assert inside.bad("stop", wanted)["reason"] == "permission_denied"
    inside.good("disarm", {"claim": CLAIM})
    arm(inside)
    assert inside.good("stop", wanted)["show"]["ActiveState"] == "inactive"
    inside.clock.pass_(601)
    inside.good("deadman")
    assert inside.bad("stop", wanted)["reason"] == "permission_denied"


def test_what_may_only_be_forked_is_never_stopped(inside: Inside) -> None:
    inside.box.configure(fork=["other.service"])
    arm(inside)
    assert inside.bad("stop", {"claim": CLAIM, "unit": "other.service"})["reason"] == "permission_denied"


def end_process(inside: Inside, pid: int, ticks: int, **changed: Any) -> dict[str, Any]:
    return inside.ask("end-process", {"claim": CLAIM, "pid": pid, "start_ticks": ticks, "why": "holds GPU memory", **changed})


@pytest.fixture
def mine(inside: Inside) -> Inside:
    """The processes of tests are those of whoever runs them; that may be root."""
    inside.box.configure(run_as=["nobody", OWN] if OWN != "root" else ["nobody"], allow_root=OWN == "root")
    return inside


def test_a_left_over_process_of_a_unit_of_ours_is_ended(mine: Inside) -> None:
    pid, ticks = mine.box.extra_process(UNIT, "whatever")
    assert end_process(mine, pid, ticks) == {"ended": True, "signal": "TERM"}
    assert not alive(pid)
    assert end_process(mine, pid, ticks) == {"ended": False, "signal": None}


@pytest.mark.parametrize("title", ["VLLM::EngineCore", "sglang::scheduler_TP0"])
def test_an_engines_process_in_an_ended_unit_is_ended(mine: Inside, title: str) -> None:
    pid, ticks = mine.box.extra_process(PARKED, title, stubborn=True)
    assert end_process(mine, pid, ticks) == {"ended": True, "signal": "KILL"}


def test_another_process_with_the_same_pid_is_left_alone(mine: Inside) -> None:
    pid, ticks = mine.box.extra_process(UNIT, "VLLM::EngineCore")
    assert end_process(mine, pid, ticks - 1) == {"ended": False, "signal": None}
    assert alive(pid)


@pytest.mark.parametrize(
    ("unit", "title"), [("ssh.service", "sshd: /usr/sbin/sshd"), (PARKED, "/bin/x VLLM::EngineCore"), ("a.scope", "bash")]
)
def test_what_is_no_engines_process_is_left_alone(mine: Inside, unit: str, title: str) -> None:
    pid, ticks = mine.box.extra_process(unit, title)
    assert end_process(mine, pid, ticks)["reason"] == "permission_denied"
    assert alive(pid)


@pytest.mark.parametrize("path", [UNIT, PARKED, "user@1000.service/app.slice/x.service", "docker-1.scope/init.scope"])
def test_a_process_of_a_living_unit_is_left_alone(mine: Inside, path: str) -> None:
    mine.box.set_unit(path.partition("/")[0], ActiveState="active", LoadState="loaded")
    pid, ticks = mine.box.extra_process(path, "VLLM::EngineCore")
    answer = end_process(mine, pid, ticks)
    assert (answer["reason"], "which lives" in answer["message"]) == ("permission_denied", True)
    assert alive(pid)


def test_a_process_of_a_user_that_is_not_allowed_is_left_alone(inside: Inside) -> None:
    pid, ticks = inside.box.extra_process(UNIT, "VLLM::EngineCore")
    assert end_process(inside, pid, ticks)["reason"] == "permission_denied"
    assert alive(pid)
    inside.caller = Caller(0, "root", root=True)
    assert end_process(inside, pid, ticks)["ended"] is True


def test_a_process_that_nothing_ends_is_unkillable(mine: Inside) -> None:
    pid, ticks = mine.box.extra_process(UNIT, "VLLM::EngineCore", immortal=True)
    answer = end_process(mine, pid, ticks)
    assert (answer["reason"], answer["pids"]) == ("unkillable_process", [pid])


def test_why_is_a_sentence_for_the_log(mine: Inside) -> None:
    pid, ticks = mine.box.extra_process(UNIT, "x")
    for why in ("", "a\nb", None):
        assert end_process(mine, pid, ticks, why=why)["reason"] in ("permission_denied", "misuse")
    assert alive(pid)


def test_units_are_all_of_ours_and_only_those(box: Box) -> None:
    box.good("write-unit", {**HERE, "argv": ["/bin/a"]})
    box.write("run/systemd/system/expctl-9-no-reload.service", "")
    box.write("run/systemd/system/expctl-deadman.service", "")
    box.set_unit("expctl-5.service", ActiveState="failed", LoadState="not-found")
    found = box.good("units")["units"]
    assert [one["unit"] for one in found] == [UNIT, "expctl-5.service", "expctl-9-no-reload.service"]
    assert [one["show"]["ActiveState"] for one in found] == ["inactive", "failed", "inactive"]
