from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.hosts.helper.box import CLAIM, PARKED, UNIT, Box, Inside
from tests.unit.hosts.helper.claiming import arm, park, renew, state_of
from workers.hosts.helper import deadman as deadman_module


def test_arming_writes_a_lasting_timer_and_what_to_bring_back(inside: Inside) -> None:
    answer = arm(inside)
    assert answer["first"] is True
    assert answer["deadline"] == "2027-01-15T08:10:00Z"
    record = answer["record"]
    assert record["parked"] == [{"unit": PARKED, "sha256": record["parked"][0]["sha256"], "live_argv": ["a"], "proof": {}}]
    assert (record["seconds_left"], record["boot_id"], record["fired_at"]) == (600.0, "boot-1", None)
    timer = (inside.box.root / "etc/systemd/system/expctl-deadman.timer").read_text()
    assert "OnBootSec=30\nOnUnitActiveSec=30\nAccuracySec=1s\n" in timer
    assert "WantedBy=timers.target" in timer
    service = (inside.box.root / "etc/systemd/system/expctl-deadman.service").read_text()
    assert "ExecStart=/usr/local/sbin/expctl-host deadman\n" in service
    assert inside.box.calls("enable") == [["expctl-deadman.timer"]]
    assert inside.box.units()["expctl-deadman.timer"]["ActiveState"] == "active"
    assert inside.good("hello")["armed"] is True


@pytest.mark.parametrize(("ttl_s", "tick"), [(2, 1), (40, 10), (120, 30), (86_400, 30)])
def test_the_timer_ticks_as_often_as_the_deadline_needs(inside: Inside, ttl_s: int, tick: int) -> None:
    arm(inside, ttl_s=ttl_s)
    assert f"OnUnitActiveSec={tick}\n" in (inside.box.root / "etc/systemd/system/expctl-deadman.timer").read_text()


def test_renewing_moves_the_deadline_and_leaves_the_timer_alone(inside: Inside) -> None:
    arm(inside)
    calls = len(inside.box.calls("restart"))
    inside.clock.pass_(500)
    assert renew(inside)["deadline"] == "2027-01-15T08:18:20Z"
    assert len(inside.box.calls("restart")) == calls
    inside.clock.pass_(500)
    assert inside.good("deadman") == {"fired": False, "settled": False}


def test_a_timer_that_somebody_stopped_is_started_again(inside: Inside) -> None:
    arm(inside)
    inside.box.set_unit("expctl-deadman.timer", ActiveState="inactive")
    renew(inside)
    assert inside.box.units()["expctl-deadman.timer"]["ActiveState"] == "active"


def test_a_first_arm_that_cannot_set_the_timer_is_no_promise(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise deadman_module.Refused("remote_command_failed", "no bus")

    sha256 = inside.good("source", {"unit": PARKED})["sha256"]
    monkeypatch.setattr(deadman_module, "_set_timer", broken)
    wanted = {"claim": CLAIM, "ttl_s": 600, "record": {"parked": [{"unit": PARKED, "sha256": sha256}]}}
    assert inside.bad("arm", wanted)["reason"] == "remote_command_failed"
    assert inside.good("hello")["record"] is None


def test_the_record_is_the_first_ones(inside: Inside) -> None:
    arm(inside)
    again = inside.good("source", {"unit": PARKED})["sha256"]
    wanted = {"parked": [{"unit": PARKED, "sha256": again, "live_argv": ["other"]}]}
    answer = inside.good("arm", {"claim": CLAIM, "ttl_s": 600, "record": wanted})
    assert (answer["first"], answer["record"]["parked"][0]["live_argv"]) == (False, ["a"])
    assert inside.bad("arm", {"claim": CLAIM, "ttl_s": 600, "record": {"parked": []}})["reason"] == "remote_command_failed"


def test_without_a_record_there_is_nothing_to_renew(inside: Inside) -> None:
    assert renew(inside)["reason"] == "remote_command_failed"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"parked": [{"unit": "sshd.service", "sha256": "0" * 64}]}, "permission_denied"),
        ({"parked": [{"unit": PARKED, "sha256": "0" * 64}]}, "stale_unit_definition"),
        ({"parked": [{"unit": PARKED, "sha256": "x"}]}, "permission_denied"),
        ({"parked": [{"unit": PARKED, "sha256": "0" * 64, "exec": "rm"}]}, "misuse"),
        ({"parked": [{"unit": PARKED, "sha256": "0" * 64}] * 2}, "misuse"),
        ({"parked": None}, "misuse"),
        ({"parked": [], "then": []}, "misuse"),
    ],
)
def test_records_that_are_none(inside: Inside, record: dict[str, Any], reason: str) -> None:
    assert inside.bad("arm", {"claim": CLAIM, "ttl_s": 600, "record": record})["reason"] == reason
    assert inside.good("hello")["record"] is None


def test_it_brings_production_back_when_nobody_renews(inside: Inside) -> None:
    park(inside)
    inside.clock.pass_(599)
    assert inside.good("deadman") == {"fired": False, "settled": False}
    inside.clock.pass_(1)
    answer = inside.good("deadman")
    assert (answer["fired"], answer["fired_why"], answer["fired_at"]) == (True, "deadline", "2027-01-15T08:10:00Z")
    (restored,) = answer["restored"]
    assert (restored["unit"], restored["active"], restored["how"]) == (PARKED, True, "started")
    assert (state_of(inside, UNIT), state_of(inside, PARKED)) == ("inactive", "active")
    hello = inside.good("hello")
    assert (hello["armed"], hello["holder"], hello["record"]["fired_why"]) == (False, None, "deadline")
    assert hello["record"]["restored_at"] is not None


def test_a_worker_that_comes_too_late_is_told_the_story(inside: Inside) -> None:
    park(inside)
    inside.clock.pass_(600)
    inside.good("deadman")
    for verb, request in [("arm", {"ttl_s": 600}), ("start", {"unit": UNIT}), ("write-unit", {"unit": UNIT, "argv": ["/bin/a"]})]:
        answer = inside.bad(verb, {"claim": CLAIM, **request})
        assert (answer["reason"], answer["fired_at"]) == ("connection_lost", "2027-01-15T08:10:00Z")
        assert answer["restored"][0]["unit"] == PARKED
    assert state_of(inside, PARKED) == "active"
    assert inside.good("disarm", {"claim": CLAIM}) == {"disarmed": True}
    arm(inside)


def test_a_late_heartbeat_before_the_tick_is_taken(inside: Inside) -> None:
    park(inside)
    inside.clock.pass_(610)
    assert "deadline" in renew(inside)
    assert inside.good("deadman")["fired"] is False


def test_after_a_reboot_the_walls_clock_counts(inside: Inside) -> None:
    park(inside)
    inside.clock.pass_(100)
    inside.clock.reboot(off_for_s=200)
    inside.box.set_unit(PARKED, ActiveState="inactive", MainPID="0")
    assert inside.good("deadman")["fired"] is False
    inside.clock.pass_(299)
    assert inside.good("deadman")["fired"] is False
    inside.clock.pass_(2)
    answer = inside.good("deadman")
    assert (answer["fired"], answer["fired_why"]) == (True, "reboot")
    assert renew(inside)["reason"] == "host_rebooted"


def test_after_a_reboot_with_a_wrong_clock_it_waits_no_longer_than_the_whole_time(inside: Inside) -> None:
    park(inside)
    inside.clock.reboot(off_for_s=-100_000_000)
    inside.clock.pass_(579)
    assert inside.good("deadman")["fired"] is False
    inside.clock.pass_(1)
    assert inside.good("deadman")["fired"] is True


def test_in_one_boot_nobody_can_move_the_deadline_by_setting_the_clock(inside: Inside) -> None:
    park(inside)
    inside.clock.now += 100_000_000
    assert inside.good("deadman")["fired"] is False
    inside.clock.now -= 200_000_000
    inside.clock.up += 600
    assert inside.good("deadman")["fired"] is True


def test_after_a_reboot_a_worker_may_renew(inside: Inside) -> None:
    park(inside)
    inside.clock.reboot(off_for_s=60)
    assert renew(inside)["record"]["boot_id"] == "boot-2"
    inside.clock.pass_(599)
    assert inside.good("deadman")["fired"] is False


def test_the_dead_man_as_a_program(box: Box) -> None:
    box.systemctl("start", PARKED)
    sha256 = box.good("source", {"unit": PARKED})["sha256"]
    box.good("arm", {"claim": CLAIM, "ttl_s": 2, "record": {"parked": [{"unit": PARKED, "sha256": sha256}]}})
    box.good("stop", {"claim": CLAIM, "unit": PARKED})
    kept = box.root / "var/lib/expctl-host/record.json"
    record = json.loads(kept.read_text())
    kept.write_text(json.dumps({**record, "deadline_since_boot": 0.0}))
    box.write("etc/expctl-host.json", "no config any more")
    answer = box.good("deadman")
    assert (answer["fired_why"], answer["restored"][0]["active"]) == ("deadline", True)
