from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import select

from service.api import limits
from service.domain.hashing import digest
from service.store import idempotency
from service.store.tables import IdempotencyRow
from tests.integration.api.service import Api, problem, spec


def begun(api: Api, key: str, body: Any) -> None:
    """Another request with this key, and no answer to it yet."""
    with api.database.write() as session:
        assert idempotency.begin(session, "anonymous", key, digest([body, True])) is None


def test_the_same_key_while_the_first_request_is_being_answered(api: Api) -> None:
    begun(api, "k", spec())
    found = problem(api.post("/v1/experiments", spec(), idempotency_key="k"), 409, "conflict")
    assert found["title"] == "the first request with the Idempotency-Key k is still being answered"
    assert found["todo"] == "try again in a moment"
    assert api.get("/v1/experiments").json()["items"] == []
    assert api.post("/v1/experiments", spec(), idempotency_key="other").status_code == 201
    with api.database.write() as session:
        idempotency.forget(session, "anonymous", "k")
    first = api.post("/v1/experiments", spec(), idempotency_key="k")
    again = api.post("/v1/experiments", spec(), idempotency_key="k")
    assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())


def test_a_key_is_its_callers_own(api: Api) -> None:
    made = [api.post("/v1/experiments", spec(), idempotency_key="k", x_expctl_user=user).json() for user in ("ann", "bob", "ann")]
    assert [(one["id"], one["created_by"]) for one in made] == [(1, "ann"), (2, "bob"), (1, "ann")]


def test_a_first_request_that_died_does_not_keep_the_key_for_ever(api: Api) -> None:
    begun(api, "k", spec())
    with api.database.write() as session:
        row = session.exec(select(IdempotencyRow)).one()
        row.created_at -= idempotency.ABANDONED + timedelta(seconds=1)
        session.add(row)
    assert api.post("/v1/experiments", spec(), idempotency_key="k").status_code == 201


def test_a_request_that_failed_gives_its_key_back(api: Api) -> None:
    problem(api.post("/v1/experiments", spec(host="gpu-9"), idempotency_key="k"), 422, "invalid-experiment")
    assert api.post("/v1/experiments", spec(), idempotency_key="k").status_code == 201


LARGE = b'{"name": "' + b"x" * limits.MOST_BYTES + b'"}'


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    """Sent chunked, without a Content-Length."""
    for start in range(0, len(data), 65536):
        yield data[start : start + 65536]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", ["/v1/experiments", "/v1/experiments/1/hold", "/v1/nonsense"])
def test_a_body_that_is_too_large(api: Api, path: str, chunked: bool) -> None:
    content: Any = pieces(LARGE) if chunked else LARGE
    found = problem(api.ask("POST", path, content=content, headers={"content-type": "application/json"}), 413, "too-large")
    assert (found["title"], found["detail"]) == ("the request is too large", "its body has more than 8,388,608 bytes")
    assert found["todo"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_just_small_enough_is_read_whole(api: Api, chunked: bool) -> None:
    body = LARGE[: -len(LARGE) + limits.MOST_BYTES - 2] + b'"}'
    assert len(body) == limits.MOST_BYTES
    content: Any = pieces(body) if chunked else body
    found = problem(
        api.ask("POST", "/v1/experiments", content=content, headers={"content-type": "application/json"}), 422, "invalid-experiment"
    )
    assert "may have at most 200 characters" in found["title"]
