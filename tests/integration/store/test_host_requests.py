from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import col, update

from service.domain.errors import ClaimLost, Conflict, NotFound
from service.domain.host_requests import PATIENCE, RequestKind
from service.domain.spec import Spec
from service.store import events, hostrequests, hosts, hostsettings, openings, shifts, submission
from service.store.database import Database
from service.store.hosts import Lease
from service.store.tables import HostRequestRow, HostRow, utc_now

REAL = {"ssh": "admin@llm-two", "units": "systemd", "park": ["vllm-kimi.service"]}


@pytest.fixture(autouse=True)
def _hosts(database: Database) -> None:
    with database.write() as session:
        hosts.register(session, "local", "local", {})
        hostsettings.save(session, "llm-two", REAL, "ann")


def claim(database: Database, owner: str = "w", host: str = "llm-two") -> Lease:
    with database.write() as session:
        lease = hosts.claim(session, host, owner)
    assert lease is not None
    return lease


def expire(database: Database) -> None:
    with database.write() as session:
        session.execute(text("UPDATE hosts SET lease_expires = lease_expires - 100000"))


def ask(database: Database, kind: RequestKind = RequestKind.CHECK, host: str = "llm-two", **args: Any) -> int:
    with database.write() as session:
        return hostrequests.ask(session, host, kind, args, "ann").id or 0


def take(database: Database, lease: Lease) -> int | None:
    with database.write() as session:
        row = hostrequests.take(session, lease)
        return row.id if row else None


def answer(database: Database, lease: Lease, number: int, *, ok: bool = True, **found: Any) -> None:
    with database.write() as session:
        hostrequests.answer(session, lease, number, ok=ok, answer=found)


def row(database: Database, number: int, host: str = "llm-two") -> HostRequestRow:
    with database.read() as session:
        return hostrequests.get(session, host, number)


def told(database: Database) -> list[tuple[str, str, dict[str, Any]]]:
    with database.read() as session:
        return [(event.type.value, event.actor, event.data) for event in events.since(session) if event.host == "llm-two"]


def open_shift(database: Database, lease: Lease) -> None:
    with database.write() as session:
        shifts.open_or_resume(session, lease)


def test_asked_taken_and_answered(database: Database) -> None:
    number = ask(database)
    asked = row(database, number)
    assert (asked.status, asked.ok, asked.created_by, asked.kind, asked.args) == ("queued", None, "ann", "check", {})
    lease = claim(database)
    assert take(database, lease) == number
    begun = row(database, number)
    assert (begun.status, begun.fence, begun.started_at is not None) == ("running", lease.fence, True)
    assert take(database, lease) is None, "what this lease works on is not given twice"
    answer(database, lease, number, ok=False, checks=[{"name": "ssh", "ok": False}])
    done = row(database, number)
    assert (done.status, done.ok, done.answer, done.finished_at is not None) == (
        "finished", False, {"checks": [{"name": "ssh", "ok": False}]}, True,
    )  # fmt: skip
    assert told(database)[1:] == [
        ("host.asked", "ann", {"request": number, "kind": "check"}),
        ("host.answered", "worker:w", {"request": number, "kind": "check", "ok": False}),
    ]


def test_a_check_is_what_is_known_of_the_host(database: Database) -> None:
    lease = claim(database)
    for kind, found in ((RequestKind.CHECK, {"checks": [1]}), (RequestKind.TRUST, {"keys": []})):
        number = ask(database, kind)
        assert take(database, lease) == number
        answer(database, lease, number, **found)
    with database.read() as session:
        report = hosts.by_name(session, "llm-two").report
    assert report == {"checks": [1], "ok": True, "at": report["at"]}


def test_the_oldest_comes_first_and_only_of_the_own_host(database: Database) -> None:
    other = ask(database, host="local")
    first, second = ask(database), ask(database, RequestKind.TRUST)
    lease = claim(database)
    assert [take(database, lease), take(database, lease), take(database, lease)] == [first, second, None]
    assert take(database, claim(database, host="local")) == other


def test_what_a_dead_worker_left_is_taken_again_and_the_dead_one_can_answer_nothing(database: Database) -> None:
    number = ask(database)
    old = claim(database)
    assert take(database, old) == number
    later = ask(database, RequestKind.TRUST)
    expire(database)
    new = claim(database, "b")
    assert take(database, new) == number
    assert row(database, number).fence == new.fence
    for write in (lambda: answer(database, old, number), lambda: take(database, old)):
        with pytest.raises(ClaimLost):
            write()
    answer(database, new, number)
    with pytest.raises(ClaimLost):
        answer(database, new, number)
    assert take(database, new) == later


@pytest.mark.parametrize("other", [99, "queued", "of another host"])
def test_only_what_was_taken_can_be_answered(database: Database, other: object) -> None:
    lease = claim(database)
    number = ask(database) if other == "queued" else ask(database, host="local")
    if other == "of another host":
        assert take(database, claim(database, host="local")) == number
    with pytest.raises(ClaimLost):
        answer(database, lease, 99 if other == 99 else number)


def test_the_same_thing_asked_twice_before_anybody_took_it_is_one(database: Database) -> None:
    number = ask(database, RequestKind.INSTALL, apply=False)
    assert ask(database, RequestKind.INSTALL, apply=False) == number
    assert ask(database, RequestKind.INSTALL, apply=True) != number
    assert ask(database, RequestKind.CHECK) != number
    lease = claim(database)
    assert take(database, lease) == number
    assert ask(database, RequestKind.INSTALL, apply=False) != number
    assert sum(kind == "host.asked" for kind, _, _ in told(database)) == 4


def test_what_waited_too_long_is_not_done_any_more(database: Database) -> None:
    number = ask(database, RequestKind.REHEARSE)
    with database.write() as session:
        session.execute(update(HostRequestRow).values(created_at=utc_now() - PATIENCE + timedelta(minutes=1)))
    assert ask(database, RequestKind.REHEARSE) != number, "one that is about to be given up is not waited for"
    with database.write() as session:
        session.execute(update(HostRequestRow).where(col(HostRequestRow.id) == number).values(created_at=utc_now() - PATIENCE))
    assert take(database, claim(database)) == number + 1
    late = row(database, number)
    assert (late.status, late.ok, late.answer["error"]) == ("finished", False, "no worker took it up within an hour")


def test_one_that_waits_can_be_withdrawn_and_one_that_is_taken_cannot(database: Database) -> None:
    first, second = ask(database), ask(database, RequestKind.REHEARSE)
    with database.write() as session:
        assert hostrequests.withdraw(session, "llm-two", first, "bob").answer == {"error": "withdrawn by bob"}
    assert take(database, claim(database)) == second
    for number in (first, second):
        with pytest.raises(Conflict, match="cannot be withdrawn"), database.write() as session:
            hostrequests.withdraw(session, "llm-two", number, "bob")


def test_requests_of_another_host_are_not_found(database: Database) -> None:
    number = ask(database, host="local")
    for host, asked in (("llm-two", number), ("local", 99)):
        with pytest.raises(NotFound, match=f"request {asked} does not exist"):
            row(database, asked, host)
    with pytest.raises(NotFound, match="host nowhere is not known"):
        ask(database, host="nowhere")
    with database.read() as session:
        assert [one.id for one in hostrequests.listing(session, "local")] == [number]
        assert hostrequests.listing(session, "llm-two") == []


@pytest.mark.parametrize(
    ("kind", "host", "args", "says"),
    [
        (RequestKind.TRUST, "local", {}, "local has no key to trust"),
        (RequestKind.INSTALL, "local", {}, "nothing has to be installed on local"),
        (RequestKind.REHEARSE, "local", {}, "there is nothing to rehearse on local"),
    ],
)
def test_what_no_worker_could_do_is_refused_at_once(
    database: Database, kind: RequestKind, host: str, args: dict[str, Any], says: str
) -> None:
    with pytest.raises(Conflict, match=says):
        ask(database, kind, host, **args)


def test_a_rehearsal_and_an_installation_wait_for_the_end_of_a_shift(database: Database) -> None:
    open_shift(database, claim(database))
    for kind, args in ((RequestKind.REHEARSE, {}), (RequestKind.INSTALL, {"apply": True})):
        with pytest.raises(Conflict, match="not while a shift is open on llm-two"):
            ask(database, kind, **args)
    ask(database, RequestKind.INSTALL, apply=False)
    ask(database)


def test_a_blocked_host_is_not_rehearsed_on(database: Database) -> None:
    with database.write() as session:
        session.execute(update(HostRow).values(blocked="not restored"))
    with pytest.raises(Conflict) as caught:
        ask(database, RequestKind.REHEARSE)
    assert "blocked: not restored" in caught.value.why


def test_eight_hands_take_each_request_once(database: Database, threads: ThreadPoolExecutor) -> None:
    numbers = [ask(database, RequestKind.TRUST, pin=[str(number)]) for number in range(8)]
    lease = claim(database)
    assert sorted(taken or 0 for taken in threads.map(lambda _: take(database, lease), range(8))) == numbers


# Settings, openings and giving back.


def test_each_installation_has_its_own_name(database: Database) -> None:
    with database.read() as session:
        found = hosts.installation_id(session)
        assert hosts.installation_id(session) == found
    assert str(uuid.UUID(found)) == found


def test_a_host_is_added_once_and_changed_afterwards(database: Database) -> None:
    with database.write() as session:
        row, new = hostsettings.save(session, "llm-two", {"window": "20:00-08:00", "ssh": "admin@llm-three"}, "bob")
        assert (new, row.transport, row.config["window"], row.config["park"]) == (False, "ssh", "20:00-08:00", ["vllm-kimi.service"])
        assert hostsettings.save(session, "llm-two", {"window": "20:00-08:00"}, "bob")[1] is False
    assert told(database) == [("host.added", "ann", {}), ("host.changed", "bob", {"settings": ["ssh", "window"]})]


def test_what_a_check_found_of_another_host_is_forgotten(database: Database) -> None:
    def change(**given: Any) -> dict[str, Any]:
        with database.write() as session:
            return hostsettings.save(session, "llm-two", given, "bob")[0].report

    with database.write() as session:
        session.execute(update(HostRow).values(report={"ok": True}))
    assert change(window="20:00-08:00") == {"ok": True}
    assert change(ssh="admin@llm-three") == {}


def test_what_a_shift_has_in_hand_cannot_change(database: Database) -> None:
    lease = claim(database)
    open_shift(database, lease)

    def change(**given: Any) -> None:
        with database.write() as session:
            hostsettings.save(session, "llm-two", given, "bob")

    change(window="20:00-08:00", close_after="5m")
    change(ssh="admin@llm-two", park=["vllm-kimi.service"])
    with pytest.raises(Conflict, match="park, experiment_port of llm-two cannot change now"):
        change(park=["other.service"], experiment_port=8002, window="21:00-08:00")
    with database.write() as session:
        assert hosts.by_name(session, "llm-two").config["window"] == "20:00-08:00", "all or nothing"
        shifts.close(session, lease, 1, "done")
    change(park=["other.service"])


def submit(database: Database, **more: Any) -> None:
    spec = Spec.model_validate({"name": "x", "host": "llm-two", "engine": {"kind": "vllm", "model": "m"}, **more})
    with database.write() as session:
        submission.submit(session, spec, "ann")


def allow(database: Database, actor: str = "ann", host: str = "llm-two") -> str | None:
    with database.write() as session:
        return openings.allow_opening(session, host, actor).open_by


def test_an_opening_is_allowed_and_taken_back(database: Database) -> None:
    submit(database)
    assert (allow(database), allow(database)) == ("ann", "ann")
    for _ in range(2):
        with database.write() as session:
            assert openings.withdraw_opening(session, "llm-two", "bob").open_by is None
    assert [one[:2] for one in told(database)[2:]] == [("host.opening_allowed", "ann"), ("host.opening_withdrawn", "bob")]


def test_a_permission_that_nothing_would_use_now_is_not_given(database: Database) -> None:
    with pytest.raises(Conflict, match="nothing waits for a shift on llm-two"):
        allow(database)
    submit(database)
    for values, why in (({"blocked": "not restored"}, "it is blocked: not restored"), ({"blocked": None, "paused": True}, "it is paused")):
        with database.write() as session:
            session.execute(update(HostRow).values(**values))
        with pytest.raises(Conflict) as caught:
            allow(database)
        assert caught.value.why == why


def test_an_open_shift_may_be_allowed_to_go_on(database: Database) -> None:
    open_shift(database, claim(database))
    assert allow(database) == "ann"


def test_where_nothing_is_parked_nothing_needs_to_be_allowed(database: Database) -> None:
    assert allow(database, host="local") is None


def test_giving_back_needs_a_shift(database: Database) -> None:
    def give_back(host: str = "llm-two", actor: str = "ann") -> str | None:
        with database.write() as session:
            return openings.ask_give_back(session, host, actor).give_back_by

    with pytest.raises(Conflict, match="no shift is open on llm-two"):
        give_back()
    lease = claim(database)
    open_shift(database, lease)
    assert (give_back(), give_back(actor="bob")) == ("ann", "ann")
    assert sum(kind == "host.give_back_requested" for kind, _, _ in told(database)) == 1
    with database.write() as session:
        shifts.close(session, lease, 1, "done")
        session.execute(update(HostRow).values(give_back_by=None))
    with pytest.raises(Conflict, match="no shift is open"):
        give_back()
    open_shift(database, claim(database, host="local"))
    with pytest.raises(Conflict, match="there is no production to give back on local"):
        give_back("local")
