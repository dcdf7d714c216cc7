"""How production is brought back, and what does not keep it away."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.hosts.helper.box import CLAIM, OTHER_SERVICE, PARKED, UNIT, Inside
from tests.unit.hosts.helper.claiming import SECOND, claim, park, renew, state_of
from workers.hosts.helper import deadman as deadman_module
from workers.hosts.helper import main as helper
from workers.hosts.helper.config import NOTHING
from workers.hosts.helper.context import context_for
from workers.hosts.helper.state import State


def test_production_that_serves_already_is_accepted(inside: Inside) -> None:
    park(inside)
    inside.box.systemctl("start", PARKED)
    starts = len(inside.box.calls("start"))
    inside.clock.pass_(600)
    answer = inside.good("deadman")
    assert [(one["how"], one["active"]) for one in answer["restored"]] == [("already_active", True)]
    assert len(inside.box.calls("start")) == starts


def test_the_order_is_the_recorded_one_and_one_that_fails_does_not_stop_the_next(inside: Inside) -> None:
    park(inside, SECOND, PARKED)
    inside.box.behave(SECOND, start="refuse")
    inside.clock.pass_(600)
    answer = inside.good("deadman")
    assert [(one["unit"], one["how"]) for one in answer["restored"]] == [(SECOND, "failed"), (PARKED, "started")]
    assert "told to refuse" in answer["restored"][0]["message"]
    assert answer["restored_at"] is None


def test_it_never_gives_up(inside: Inside) -> None:
    park(inside, SECOND, PARKED)
    inside.box.behave(SECOND, start="fail")
    inside.clock.pass_(600)
    for _ in range(3):
        inside.clock.pass_(30)
        answer = inside.good("deadman")
        assert (answer["fired"], answer["settled"], answer["restored_at"]) == (True, False, None)
    inside.box.behave(SECOND, start="run")
    assert [one["active"] for one in inside.good("deadman")["restored"]] == [True, True]
    assert ["--no-block", SECOND] in inside.box.calls("start")
    assert [SECOND] in inside.box.calls("reset-failed")


def test_production_that_dies_again_soon_is_started_again(inside: Inside) -> None:
    """As it does where the experiment's GPU memory was not free yet."""
    park(inside)
    inside.clock.pass_(600)
    inside.good("deadman")
    inside.clock.pass_(60)
    inside.box.set_unit(PARKED, ActiveState="failed", Result="exit-code")
    answer = inside.good("deadman")
    assert (answer["restored"][0]["how"], answer["restored"][0]["active"]) == ("started", True)


def test_it_rests_once_production_has_stayed(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    park(inside)
    inside.clock.pass_(600)
    inside.good("deadman")
    inside.box.set_unit(PARKED, ActiveEnterTimestampMonotonic=str(int(inside.clock.up * 1e6)))
    inside.clock.pass_(299)
    assert inside.good("deadman")["settled"] is False
    inside.clock.pass_(1)
    assert inside.good("deadman")["settled"] is True
    assert ["--now", "expctl-deadman.timer"] in inside.box.calls("disable")
    monkeypatch.setattr(deadman_module, "end_units", None)  # nothing is touched any more
    assert inside.good("deadman") == {"fired": False, "settled": True}


def test_what_somebody_stops_after_it_was_back_stays_stopped(inside: Inside) -> None:
    park(inside)
    inside.clock.pass_(600)
    inside.good("deadman")
    inside.box.set_unit(PARKED, ActiveState="inactive", Result="success", MainPID="0")
    answer = inside.good("deadman")
    assert (answer["restored"][0]["how"], answer["settled"]) == ("stopped_by_hand", True)
    assert state_of(inside, PARKED) == "inactive"


def test_a_unit_that_starts_slowly_is_waited_for_not_started_twice(inside: Inside) -> None:
    park(inside)
    inside.box.behave(PARKED, start="hang")
    inside.clock.pass_(600)
    assert inside.good("deadman")["restored"][0]["how"] == "starting"
    starts = len(inside.box.calls("start"))
    assert inside.good("deadman")["restored"][0]["active"] is False
    assert len(inside.box.calls("start")) == starts


def test_what_cannot_be_stopped_does_not_keep_production_away(inside: Inside) -> None:
    park(inside)
    pid, _ = inside.box.extra_process(UNIT, "VLLM::Worker", immortal=True)
    inside.clock.pass_(600)
    assert inside.good("deadman")["restored"][0]["active"] is True
    assert inside.good("hello")["record"]["left_over"] == [pid]


@pytest.mark.parametrize("text", ["{", "[]", '{"parked": 1}', '{"parked": [{"unit": "../x"}]}', ""])
def test_an_unreadable_record_brings_back_all_that_may_be_parked(inside: Inside, text: str) -> None:
    park(inside, SECOND, PARKED)
    path = inside.box.root / "var/lib/expctl-host/record.json"
    path.write_text(text)
    with pytest.raises(Exception, match=r"record\.json"):
        renew(inside)
    answer = inside.good("deadman")
    assert (answer["fired_why"], [one["unit"] for one in answer["restored"]]) == ("record_unreadable", [SECOND, PARKED])
    assert all(one["active"] for one in answer["restored"])
    assert path.with_name("record.unreadable.json").read_text() == text
    assert "record.json" in inside.good("hello")["record"]["note"]["unreadable"]


def test_a_record_that_others_could_have_written_is_not_believed(inside: Inside) -> None:
    park(inside)
    path = inside.box.root / "var/lib/expctl-host/record.json"
    forged = json.loads(path.read_text())
    forged["parked"][0]["unit"] = "sshd.service"
    path.write_text(json.dumps(forged))
    path.chmod(0o666)
    assert [one["unit"] for one in inside.good("deadman")["restored"]] == [PARKED]


def test_without_a_config_the_record_is_enough(inside: Inside) -> None:
    park(inside)
    inside.clock.pass_(600)
    context = context_for(inside.places, inside.caller, NOTHING, inside.clock)
    assert helper.answer("deadman", {}, context)["restored"][0]["active"] is True


def test_without_config_and_record_it_says_so_and_comes_again(inside: Inside) -> None:
    park(inside)
    path = inside.box.root / "var/lib/expctl-host/record.json"
    path.write_text("{")
    context = context_for(inside.places, inside.caller, NOTHING, inside.clock)
    with pytest.raises(deadman_module.Refused, match="does not say either"):
        helper.answer("deadman", {}, context)
    assert path.read_text() == "{"


def test_a_full_disk_does_not_keep_production_away(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    park(inside)
    inside.clock.pass_(600)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(State, "save", full)
    assert inside.good("deadman")["restored"][0]["active"] is True


def test_a_frozen_call_does_not_keep_production_away(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    park(inside)
    inside.clock.pass_(600)
    monkeypatch.setattr(deadman_module, "LOCK_PATIENCE_S", 0.1)
    with inside.context().state.working():
        assert inside.good("deadman")["restored"][0]["active"] is True


def test_a_deadman_that_waited_while_everything_was_brought_back_does_nothing(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    park(inside)
    inside.clock.pass_(600)

    @contextlib.contextmanager
    def had_by_another(self: State, _within_s: float) -> Iterator[None]:
        self.forget()  # the other has restored and disarmed
        yield

    monkeypatch.setattr(State, "working", had_by_another)
    starts = len(inside.box.calls("start"))
    inside.good("deadman")
    assert len(inside.box.calls("start")) == starts
    assert inside.good("hello")["record"] is None


def test_that_it_acts_is_written_before_it_acts(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping takes a minute; a heartbeat that comes in that minute must not believe that all is well."""
    park(inside)
    inside.clock.pass_(600)
    answers: list[dict[str, Any]] = []

    def stopping(*_: Any) -> list[int]:
        answers.append(renew(inside))
        return []

    monkeypatch.setattr(deadman_module, "end_units", stopping)
    inside.good("deadman")
    assert answers[0]["reason"] == "connection_lost"


def test_nothing_armed_nothing_done(inside: Inside) -> None:
    assert inside.good("deadman") == {"fired": False, "settled": False}


def test_restoring_by_request(inside: Inside) -> None:
    park(inside, SECOND, PARKED)
    answer = inside.good("restore", {"claim": CLAIM})
    assert [(one["unit"], one["active"]) for one in answer["restored"]] == [(SECOND, True), (PARKED, True)]
    assert (answer["all_active"], answer["stopped"], answer["left_over"]) == (True, [UNIT], [])
    assert state_of(inside, UNIT) == "inactive"
    assert inside.good("hello")["armed"] is True
    assert inside.good("disarm", {"claim": CLAIM}) == {"disarmed": True}
    assert not list((inside.box.root / "etc/systemd/system").glob("expctl-deadman*"))
    assert inside.good("disarm", {"claim": CLAIM}) == {"disarmed": False}


def test_restoring_tells_of_what_does_not_start(inside: Inside) -> None:
    park(inside, SECOND, PARKED)
    inside.box.behave(SECOND, start="fail")
    answer = inside.good("restore", {"claim": CLAIM})
    assert (answer["all_active"], [one["how"] for one in answer["restored"]]) == (False, ["failed", "started"])
    assert answer["restored"][0]["show"]["Result"] == "exit-code"
    refusal = inside.bad("disarm", {"claim": CLAIM})
    assert (refusal["reason"], refusal["units"]) == ("remote_command_failed", [SECOND])
    assert inside.good("hello")["armed"] is True
    assert inside.good("disarm", {"claim": CLAIM, "force": True}) == {"disarmed": True}


def test_restoring_needs_a_record_and_the_claim(inside: Inside) -> None:
    assert inside.bad("restore", {"claim": CLAIM})["reason"] == "remote_command_failed"
    park(inside)
    assert inside.bad("restore", {"claim": {**CLAIM, "service": OTHER_SERVICE}})["reason"] == "claim_lost"
    assert inside.good("restore", {"claim": claim(9, "worker@new")})["all_active"] is True
