"""Ids of tokens in the database: small, as they were, gone with the texts."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import InvalidRequestError
from sqlmodel import Session, select

from service.domain.measurement import RequestResult
from service.domain.spec import Spec
from service.store import hosts, migrate, results, retention, submission
from service.store.columns import packed, unpacked
from service.store.database import Database
from service.store.tables import RequestRow, utc_now

IDS = [number * 48_271 % 150_000 for number in range(4096)]


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_ids_come_back_as_they_were(ids: list[int]) -> None:
    data = packed(ids)
    assert data is not None
    assert unpacked(data) == ids


def test_even_ids_without_any_order_take_less_than_half_of_their_room_as_json() -> None:
    assert len(packed(IDS) or b"") < len(json.dumps(IDS)) / 2


@pytest.mark.parametrize("ids", [[-1], [2**32], [1.5], ["a"]])
def test_what_is_no_id_is_not_kept(ids: list[int]) -> None:
    assert packed(ids) is None


def requested(session: Session, **more: object) -> RequestRow:
    """A finished experiment with one request that holds these."""
    hosts.register(session, "local", "local", {})
    lease = hosts.claim(session, "local", "w", 60.0)
    assert lease is not None
    row = submission.submit(session, Spec.model_validate({"name": "x", "engine": {"kind": "vllm", "model": "m"}}), "me")
    phase = results.begin_phase(session, lease, row.id or 0, 1, "measured", 1)
    results.add_request(session, lease, phase, RequestResult(prompt="a", repeat=0, ok=True, **more))  # type: ignore[arg-type]
    row.status, row.outcome, row.finished_at = "finished", "succeeded", utc_now() - timedelta(days=2)
    session.add(row)
    session.flush()
    return session.exec(select(RequestRow)).one()


def test_every_field_of_a_request_is_a_column() -> None:
    assert set(RequestResult.model_fields) - {"speculation"} == set(RequestRow.model_fields) - {"id", "bench_phase_id"}


def test_ids_are_read_only_where_they_are_asked_for(database: Database) -> None:
    with database.write() as session:
        phase = requested(session, prompt_token_ids=IDS, output_token_ids=[], cached_tokens=7).bench_phase_id
    with database.read() as session:
        query = select(RequestRow).where(RequestRow.bench_phase_id == phase)
        plain = session.exec(results._with_ids(query, ids=False)).one()
        assert (results._request(plain, None, ids=False).prompt_token_ids, plain.cached_tokens) == (None, 7)
        with pytest.raises(InvalidRequestError):
            _ = plain.prompt_token_ids
    with database.read() as session:
        full = results._request(session.exec(results._with_ids(query, ids=True)).one(), None, ids=True)
        assert (full.prompt_token_ids, full.output_token_ids) == (IDS, [])


def test_pruning_frees_the_ids_and_counts_them(database: Database) -> None:
    with database.write() as session:
        requested(session, text="four", output_token_ids=IDS, prompt_token_ids=[1], cached_tokens=7)
        [going] = retention.plan(session, older_than=timedelta(days=1), max_bytes=None)
        assert going.bytes == len("four") + len(packed(IDS) or b"") + len(packed([1]) or b"")
        retention.prune(session, [going], "me")
        session.expire_all()
        row = session.exec(select(RequestRow)).one()
        assert (row.prompt_token_ids, row.output_token_ids, row.text, row.cached_tokens) == (None, None, "", 7)
        assert retention.plan(session, older_than=timedelta(days=1), max_bytes=None) == []


def test_rows_of_before_have_none(database: Database) -> None:
    """Up to the newest from a database that knew no ids and no loads, with an experiment in it."""
    with database.write() as session:
        requested(session, prompt_token_ids=[1], cached_tokens=7)
    migrate.downgrade(database, "0006")
    with database.engine.begin() as connection:
        assert connection.execute(text("SELECT load FROM bench_phases")).scalar_one() == 1
    migrate.upgrade(database)
    with database.read() as session:
        row = session.exec(select(RequestRow)).one()
        assert (row.cached_tokens, row.prompt_token_ids, row.output_token_ids, row.prompt) == (None, None, None, "a")
