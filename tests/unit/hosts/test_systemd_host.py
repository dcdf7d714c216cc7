"""What is made of the helper's answers, and of its silence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from service.domain.reasons import Reason
from workers.hosts.base import DeadManFired, HostBusy, HostError, ParkedUnit, UnitDefinition, UnitPhase, Usage
from workers.hosts.gpus import GpuTools
from workers.hosts.helper_client import Claim, Helper, HelperRefused
from workers.hosts.systemd import SystemdHost, state_of
from workers.hosts.transport import CommandResult

UNIT = "expctl-1-x"
MINE = Claim("s", "me", 3)
ARGV = ["/opt/vllm/bin/vllm", "serve", "m"]


def status(**show: Any) -> dict[str, Any]:
    pids = show.pop("pids", [])
    seen = show.pop("seen_argv", [])
    base = {"ActiveState": "active", "SubState": "running", "LoadState": "loaded", "MainPID": "42", "InvocationID": "abc", "NRestarts": "0"}
    return {"unit": f"{UNIT}.service", "show": {**base, **show}, "argv": [], "seen_argv": seen, "pids": pids, "boot_id": "b1"}


@dataclass
class Wire:
    """Answers by verb; `raw` is what is printed instead."""

    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    raw: CommandResult | None = None

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", deadline_s: float = 0, limit_bytes: int = 0) -> CommandResult:
        del deadline_s, limit_bytes
        verb = argv[-1]
        self.asked.append((verb, json.loads(stdin)))
        if self.raw is not None:
            return self.raw
        waiting = self.answers[verb]
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return CommandResult(0 if answer["ok"] else 1, None, json.dumps(answer).encode(), b"")

    def close(self) -> None:
        """Nothing is open."""

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]


def host(wire: Wire, claim: Claim | None = MINE) -> SystemdHost:
    return SystemdHost("gpu0", Helper(wire, claim), GpuTools(wire))


@pytest.mark.parametrize(
    ("show", "phase", "exit_status", "signal"),
    [
        ({}, UnitPhase.ACTIVE, None, None),
        ({"ActiveState": "activating", "MainPID": "0"}, UnitPhase.ACTIVE, None, None),
        ({"ActiveState": "deactivating"}, UnitPhase.ACTIVE, None, None),
        ({"ActiveState": "failed", "ExecMainCode": "1", "ExecMainStatus": "3", "MainPID": "0"}, UnitPhase.ENDED, 3, None),
        ({"ActiveState": "failed", "ExecMainCode": "2", "ExecMainStatus": "9", "MainPID": "0"}, UnitPhase.ENDED, None, 9),
        ({"ActiveState": "inactive", "ExecMainCode": "1", "ExecMainStatus": "0", "MainPID": "0"}, UnitPhase.ENDED, 0, None),
        ({"ActiveState": "inactive", "InvocationID": "", "ExecMainCode": "0"}, UnitPhase.NOT_FOUND, None, None),
        ({"ActiveState": ""}, UnitPhase.UNKNOWN, None, None),
        ({"ActiveState": "something new"}, UnitPhase.UNKNOWN, None, None),
    ],
)
def test_a_state_is_read_as_systemd_means_it(show: dict[str, str], phase: UnitPhase, exit_status: int | None, signal: int | None) -> None:
    state = state_of(status(**show))
    assert (state.name, state.phase, state.exit_status, state.signal) == (UNIT, phase, exit_status, signal)


def test_a_unit_is_written_started_and_proven() -> None:
    gone = {"ok": True, **status(ActiveState="inactive", InvocationID="", ExecMainCode="0")}
    started = {"ok": True, **status(seen_argv=["/usr/bin/python3", *ARGV]), "started": True, "variables": {}}
    wire = Wire({"status": [gone], "write-unit": [{"ok": True}], "start": [started]})
    state = host(wire).start_unit(UnitDefinition(UNIT, tuple(ARGV), conflicts=("p.service",)))
    assert (state.phase, state.invocation_id) == (UnitPhase.ACTIVE, "abc")
    assert wire.verbs() == ["status", "write-unit", "start"]
    written = wire.asked[1][1]
    assert (written["argv"], written["conflicts"], written["claim"]) == (ARGV, ["p.service"], {"service": "s", "owner": "me", "fence": 3})


def test_one_that_runs_something_else_is_stopped_at_once() -> None:
    gone = {"ok": True, **status(ActiveState="inactive", InvocationID="", ExecMainCode="0")}
    started = {"ok": True, **status(seen_argv=[*ARGV, "--oops"]), "started": True, "variables": {}}
    stopped = {"ok": True, **status(ActiveState="inactive")}
    wire = Wire({"status": [gone], "write-unit": [{"ok": True}], "start": [started], "stop": [stopped]})
    with pytest.raises(HostError) as caught:
        host(wire).start_unit(UnitDefinition(UNIT, tuple(ARGV)))
    assert caught.value.reason == Reason.UNIT_SYNTAX
    assert wire.verbs()[-1] == "stop"


def test_one_that_runs_already_is_not_written_again() -> None:
    running = {"ok": True, **status(seen_argv=ARGV), "started": False, "variables": {}}
    wire = Wire({"status": [running], "start": [running]})
    host(wire).start_unit(UnitDefinition(UNIT, tuple(ARGV)))
    assert wire.verbs() == ["status", "start"]


def test_a_refusal_keeps_its_reason() -> None:
    wire = Wire({"stop": [{"ok": False, "reason": "claim_lost", "message": "held by other", "holder": {"owner": "other"}}]})
    with pytest.raises(HelperRefused) as caught:
        host(wire).stop_unit(UNIT)
    assert (caught.value.reason, caught.value.evidence, caught.value.answer["holder"]) == (
        "claim_lost",
        "held by other",
        {"owner": "other"},
    )


def test_a_reason_of_a_newer_helper_is_a_failed_command() -> None:
    wire = Wire({"stop": [{"ok": False, "reason": "of_tomorrow", "message": "?"}]})
    with pytest.raises(HostError) as caught:
        host(wire).stop_unit(UNIT)
    assert caught.value.reason == Reason.REMOTE_COMMAND_FAILED


@pytest.mark.parametrize(
    ("status", "err", "reason"),
    [
        (127, b"sh: 1: exec: /usr/local/sbin/expctl-host: not found", Reason.HELPER_MISSING),
        (1, b"sudo: a password is required", Reason.SUDO_PASSWORD_REQUIRED),
        (1, b"", Reason.REMOTE_COMMAND_FAILED),
    ],
)
def test_silence_is_explained(status: int, err: bytes, reason: Reason) -> None:
    with pytest.raises(HostError) as caught:
        host(Wire(raw=CommandResult(status, None, b"", err))).unit(UNIT)
    assert caught.value.reason == reason


def test_nothing_is_changed_without_a_claim() -> None:
    wire = Wire()
    with pytest.raises(HostError, match="claim"):
        host(wire, None).stop_unit(UNIT)
    assert wire.asked == []


def owner(**changes: Any) -> dict[str, Any]:
    return {"pid": 7, "argv0": "vllm", "command": "vllm serve", "unit": f"{UNIT}.service", "user": "vllm", **changes}


@pytest.mark.parametrize(
    ("owners", "unit", "shared"),
    [
        ([owner()], UNIT, False),
        ([owner(unit="nginx.service")], None, False),
        ([owner(), owner(unit="nginx.service", pid=8)], None, True),
        ([owner(unit=None)], None, False),
    ],
)
def test_only_a_unit_of_ours_owns_its_port(owners: list[dict[str, Any]], unit: str | None, shared: bool) -> None:
    found = host(Wire({"port": [{"ok": True, "owners": owners}]})).port_owner(8001)
    assert found is not None
    assert (found.unit, found.shared) == (unit, shared)


def test_nobody_on_a_port() -> None:
    assert host(Wire({"port": [{"ok": True, "owners": []}]})).port_owner(8001) is None


def test_a_log_goes_on_in_the_invocation_that_its_cursor_belongs_to() -> None:
    piece = {"ok": True, "lines": ["a\0b"], "cursor": "c1", "at_end": False, "gap": True, "invocation_id": "abc"}
    wire = Wire({"journal": [piece]})
    chunk = host(wire).read_log(UNIT, None)
    assert (chunk.lines, chunk.cursor, chunk.at_end) == (("[expctl: the journal has lost lines here]", "a�b"), "abc|c1", False)
    host(wire).read_log(UNIT, chunk.cursor)
    assert (wire.asked[1][1]["invocation_id"], wire.asked[1][1]["cursor"]) == ("abc", "c1")


def test_a_dead_man_that_has_fired_is_told_apart() -> None:
    fired = {"ok": False, "reason": "connection_lost", "message": "fired", "fired_at": "2026-01-01T00:00:00Z", "fired_why": "deadline"}
    wire = Wire({"arm": [fired]})
    with pytest.raises(DeadManFired) as caught:
        host(wire).arm(1800, [ParkedUnit("p.service", "sha", ("vllm",))])
    assert (caught.value.fired_at, caught.value.why) == ("2026-01-01T00:00:00Z", "deadline")
    assert wire.asked[0][1]["record"]["parked"][0]["unit"] == "p.service"


def test_experiments_run_as_whoever_runs_production() -> None:
    source = {"ok": True, "unit": "p.service", "files": [], "sha256": "s", "show": {"User": "vllm"}, "live_argv": [], "variables": {}}
    wire = Wire({"source": [source]})
    made = SystemdHost("gpu0", Helper(wire), GpuTools(wire), like="p.service")
    assert (made.run_as, made.run_as) == ("vllm", "vllm")
    assert wire.verbs() == ["source"], "asked once"


def test_a_helper_that_is_at_work_for_somebody_else_is_told_from_one_that_refuses() -> None:
    answer = {"ok": False, "reason": "remote_command_failed", "message": "another call has been at work for over 20 s", "busy": True}
    with pytest.raises(HostBusy, match="at work"):
        host(Wire({"stop": [answer]})).stop_unit(UNIT)


@pytest.mark.parametrize("record", [None, {"fired_at": None}])
def test_a_host_that_has_given_nothing_back(record: dict[str, Any] | None) -> None:
    assert host(Wire({"hello": [{"ok": True, "record": record}]})).given_back() is None


def test_a_host_that_has_given_production_back_by_itself() -> None:
    fired = host(Wire({"hello": [{"ok": True, "record": {"fired_at": "2026-01-01T03:00:00Z", "fired_why": "deadline"}}]})).given_back()
    assert fired is not None
    assert fired.story == "the host gave production back by itself at 2026-01-01T03:00:00Z (deadline)"


@pytest.mark.parametrize(("more", "age_s"), [({"age_s": 5400.5}, 5400.5), ({"age_s": None}, None), ({}, None)])
def test_how_long_it_runs_is_the_host_s_word(more: dict[str, Any], age_s: float | None) -> None:
    assert state_of({**status(), **more}).age_s == age_s
    assert state_of({**status(ActiveState="failed", Result="exit-code"), **more}).age_s is None


@pytest.mark.parametrize(
    ("show", "read_bytes", "used"),
    [
        ({"CPUUsageNSec": "2500000000", "IOReadBytes": "4096"}, None, Usage(2.5, 4096)),
        ({"CPUUsageNSec": "2500000000", "IOReadBytes": "4096"}, 8192, Usage(2.5, 8192)),
        ({"CPUUsageNSec": "[not set]", "IOReadBytes": "18446744073709551615"}, None, Usage(None, None)),
        ({}, None, Usage(None, None)),
        ({"CPUUsageNSec": "18446744073709551615", "ActiveState": "inactive"}, 5, None),
    ],
)
def test_what_a_unit_has_used(show: dict[str, str], read_bytes: int | None, used: Usage | None) -> None:
    assert state_of({**status(**show), "read_bytes": read_bytes}).used == used


GONE = {"ok": True, **status(ActiveState="inactive", InvocationID="", ExecMainCode="0")}
EXITED = {"ok": True, **status(SubState="exited", MainPID="0", ExecMainCode="1", ExecMainStatus="0")}


def test_what_runs_once_has_its_ending_kept_and_a_folder_made_for_it() -> None:
    wire = Wire({"status": [GONE], "write-unit": [{"ok": True}], "start": [EXITED]})
    made = host(wire)
    state = made.start_unit(UnitDefinition(UNIT, ("python3", "train.py"), cwd=made.work_folder(UNIT), once=""))
    assert (state.phase, state.exit_status, state.invocation_id) == (UnitPhase.ENDED, 0, "abc")
    written = wire.asked[1][1]
    assert (written["once"], written["cwd"], written["argv"]) == (True, None, ["/usr/bin/env", "python3", "train.py"])
    assert made.work_folder(UNIT) == f"/var/lib/expctl-work/{UNIT}"


def test_folders_of_commands_are_named_and_removed_by_unit() -> None:
    wire = Wire({"work-folders": [{"ok": True, "units": [f"{UNIT}.service"]}], "remove-work": [{"ok": True, "removed": True}]})
    made = host(wire)
    assert made.work_folders() == (UNIT,)
    assert made.remove_work_folder(UNIT)
    assert wire.asked[-1] == ("remove-work", {"claim": MINE.as_json(), "unit": f"{UNIT}.service"})


def test_what_runs_once_is_not_started_again_by_a_call_that_is_repeated() -> None:
    for now in (EXITED, {"ok": True, **status()}, {"ok": True, **status(ActiveState="failed", ExecMainCode="1", ExecMainStatus="3")}):
        wire = Wire({"status": [now]})
        host(wire).start_unit(UnitDefinition(UNIT, ("/bin/true",), once=""))
        assert wire.verbs() == ["status"]
    ended_before = Wire({"status": [EXITED], "write-unit": [{"ok": True}], "start": [EXITED]})
    host(ended_before).start_unit(UnitDefinition(UNIT, ("/bin/true",), once="abc"))
    assert ended_before.verbs() == ["status", "write-unit", "start"]


def test_production_that_is_meant_to_have_exited_is_active() -> None:
    show = {**EXITED, "unit": "compose.service"}
    assert state_of(show).phase == UnitPhase.ACTIVE


def test_artifacts_need_a_place() -> None:
    with pytest.raises(HostError, match="no place for the artifacts"):
        host(Wire()).collect_files(["*"], "/x", "1", 10, lambda: None)
