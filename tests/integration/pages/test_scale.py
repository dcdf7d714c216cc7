"""Pages of a service with twenty thousand experiments."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from benchmarks.queue_at_scale import Size, fill
from service.api.app import create_app
from service.store.database import Database

FIRST_BYTE_S = 0.1
ROUNDS = 5


@pytest.mark.costly
def test_pages_of_twenty_thousand_experiments_begin_at_once(database: Database) -> None:
    """Seconds of this process, so that what else the machine does counts for nothing."""
    fill(database, Size(finished=20_000, queued=1_000, rounds=0, parked=False))
    app = create_app(database, loopback_only=True)
    slow = {}
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1")
        for path in (
            "/",
            "/queue",
            "/queue?status=finished",
            "/e/20500",
            "/e/19990",
            "/compare",
            "/timeline",
            "/hosts",
            "/deliveries",
            "/night",
        ):
            took = []
            for _ in range(ROUNDS):
                begun = time.process_time()
                answer = runner.run(client.get(path))
                took.append(time.process_time() - begun)
                assert answer.status_code == 200, answer.text
                assert len(answer.content) < 150_000, path
            if (half := sorted(took)[ROUNDS // 2]) > FIRST_BYTE_S:
                slow[path] = half
        runner.run(client.aclose())
    assert slow == {}
