from __future__ import annotations

import fcntl
import json
import threading
import time
from typing import Any

from tests.unit.hosts.helper.box import CLAIM, OTHER_SERVICE, PARKED, SERVICE, UNIT, Box, Inside
from tests.unit.hosts.helper.claiming import arm, claim

OTHERS = {"service": OTHER_SERVICE, "owner": "worker@there", "fence": 1}


def stop(inside: Inside, who: dict[str, Any]) -> dict[str, Any]:
    return inside.ask("stop", {"claim": who, "unit": UNIT})


def test_the_first_who_asks_is_the_holder(inside: Inside) -> None:
    stop(inside, CLAIM)
    assert inside.good("hello")["holder"] == {**CLAIM, "since": "2027-01-15T08:00:00Z"}


def test_a_newer_fence_takes_over_and_the_older_is_shut_out(inside: Inside) -> None:
    stop(inside, claim(7))
    stop(inside, claim(8, "worker@new"))
    answer = stop(inside, claim(7))
    assert answer["reason"] == "claim_lost"
    assert (answer["holder"]["owner"], answer["holder"]["fence"]) == ("worker@new", 8)
    assert "worker@new" in answer["message"]


def test_the_same_claim_stays_the_holder_since_it_came(inside: Inside) -> None:
    stop(inside, CLAIM)
    inside.clock.pass_(100)
    stop(inside, CLAIM)
    assert inside.good("hello")["holder"]["since"] == "2027-01-15T08:00:00Z"


def test_another_installation_is_refused_while_the_holder_is_armed(inside: Inside) -> None:
    arm(inside)
    answer = stop(inside, OTHERS)
    assert answer["reason"] == "claim_lost"
    assert SERVICE in answer["message"]
    assert "worker@here" in answer["message"]
    assert "2027-01-15T08:00:00Z" in answer["message"]
    assert answer["holder"] == {**CLAIM, "since": "2027-01-15T08:00:00Z"}
    assert inside.bad("arm", {"claim": OTHERS, "ttl_s": 600, "record": {"parked": []}})["reason"] == "claim_lost"


def test_another_installation_takes_what_is_not_armed(inside: Inside) -> None:
    stop(inside, CLAIM)
    stop(inside, OTHERS)
    assert inside.good("hello")["holder"]["service"] == OTHER_SERVICE


def test_another_installation_takes_what_was_disarmed(inside: Inside) -> None:
    arm(inside)
    inside.good("disarm", {"claim": CLAIM, "force": True})
    assert inside.good("hello")["holder"] is None
    stop(inside, OTHERS)
    assert inside.good("hello")["holder"]["service"] == OTHER_SERVICE


def test_another_installation_takes_a_host_whose_deadline_passed_but_does_not_arm_over_what_is_parked(inside: Inside) -> None:
    arm(inside, ttl_s=600)
    inside.clock.pass_(601)
    stop(inside, OTHERS)
    answer = inside.bad("arm", {"claim": OTHERS, "ttl_s": 600, "record": {"parked": []}})
    assert answer["reason"] == "remote_command_failed"
    assert "about to bring back" in answer["message"]


def test_the_fence_is_remembered_after_disarming(inside: Inside) -> None:
    stop(inside, claim(8))
    inside.good("disarm", {"claim": claim(8)})
    assert stop(inside, claim(7))["reason"] == "claim_lost"
    stop(inside, claim(8))
    assert inside.good("hello")["holder"]["fence"] == 8


def test_reading_needs_no_claim_and_takes_none(inside: Inside) -> None:
    for verb, request in [("status", {"unit": UNIT}), ("units", {}), ("source", {"unit": PARKED}), ("look", {"unit": UNIT})]:
        inside.good(verb, request)
    assert inside.good("hello")["holder"] is None


def test_a_claim_that_is_unreadable_is_nobodys_until_disarmed(inside: Inside) -> None:
    arm(inside)
    inside.box.write("var/lib/expctl-host/claim.json", "{")
    assert stop(inside, CLAIM)["reason"] in ("misuse", "internal_error")
    inside.clock.pass_(601)
    assert inside.good("deadman")["fired"]
    stop(inside, CLAIM)


def test_whoever_waits_for_the_lock_is_checked_after_the_wait(box: Box) -> None:
    """A worker that hangs in the lock's queue while a newer one takes the host over must not act."""
    box.good("stop", {"claim": claim(7), "unit": UNIT})
    answers: list[tuple[int, dict[str, Any]]] = []
    waiting = threading.Thread(target=lambda: answers.append(box.ask("stop", {"claim": claim(7), "unit": UNIT})))
    with (box.root / "var/lib/expctl-host/work.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting.start()
        time.sleep(1.0)
        kept = box.root / "var/lib/expctl-host/claim.json"
        kept.write_text(json.dumps({**json.loads(kept.read_text()), "fence": 8}))
    waiting.join(30)
    assert answers[0][1]["reason"] == "claim_lost"
