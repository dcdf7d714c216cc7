"""A night on a host under systemd, by ssh: production parked, experiments run, production back. The engines are simulated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.fleet import PRODUCTION, Fleet, begin
from tests.lab.host import LabHost

pytestmark = pytest.mark.lab


def fingerprint(host: LabHost) -> str:
    """Of production's unit, byte for byte."""
    return hashlib.sha256(host.read(f"/etc/systemd/system/{PRODUCTION}").encode()).hexdigest()


@pytest.fixture(params=["root", "expctl"])
def fleet(production_host: LabHost, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    made = begin(tmp_path, production_host, request.param)
    yield made
    made.end()


def test_the_whole_night(fleet: Fleet) -> None:
    before = fingerprint(fleet.host)
    base = fleet.submit("base", fork=True)
    speculative = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}
    ngram = fleet.submit("ngram", fork=True, engine={"speculative": speculative})
    own = fleet.submit("own")
    for one in (base, ngram, own):
        item = fleet.ended(one)
        assert item["outcome"] == "succeeded", (item, fleet.worker_log()[-3000:])
    fleet.production_back()
    assert fingerprint(fleet.host) == before
    kinds = [event["type"] for event in fleet.events()]
    order = [kinds.index(kind) for kind in ("shift.opened", "production.parked", "production.restored", "shift.closed")]
    assert order == sorted(order)
    assert kinds.count("production.parked") == 1
    restored = fleet.events("production.restored")[0]["data"]
    assert restored["changed"] == []
    assert "production answered" in restored["proof"][PRODUCTION]
