"""The API in this process, and a worker's hands to bring experiments to an end."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI

from service.api.app import create_app
from service.domain.measurement import Distribution, PhaseSummary, RequestResult
from service.domain.reasons import Reason
from service.domain.spec import FIVE_IDS
from service.domain.status import Outcome, StepName
from service.store import experiments, hosts, results, shifts, steps
from service.store.database import Database
from service.store.hosts import Lease

Json = dict[str, Any]


def spec(**changes: Any) -> Json:
    base = {"name": "x", "engine": {"kind": "vllm", "model": "m"}, "bench": {"concurrency": [1], "repeat": 2}}
    return {**base, **changes}


class Api:
    """Asks the app, without a socket."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.app = create_app(database, loopback_only=True)

    def ask(self, method: str, path: str, *, app: FastAPI | None = None, **kwargs: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(app=app or self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, **kwargs)

        return asyncio.run(asked())

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.ask("GET", path, params=params or None)

    def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return self.ask("POST", path, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post_text(self, path: str, text: str) -> httpx.Response:
        """A body just as it is, said to be JSON."""
        return self.ask("POST", path, content=text.encode(), headers={"content-type": "application/json"})

    def submit(self, **changes: Any) -> Json:
        answer = self.post("/v1/experiments", spec(**changes), x_expctl_user="ann")
        assert answer.status_code == 201, answer.text
        found: Json = answer.json()
        return found


def problem(answer: httpx.Response, status: int, slug: str) -> Json:
    """The answer as a problem document of that kind."""
    assert answer.headers["content-type"] == "application/problem+json"
    body: Json = answer.json()
    assert (answer.status_code, body["status"], body["reason"], body["type"]) == (status, status, slug, f"/problems/{slug}"), body
    assert body["title"]
    return body


class Hands:
    """What a worker would write."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            lease = hosts.claim(session, "local", "hands", 3600.0)
        assert lease is not None
        self.lease: Lease = lease

    def take(self) -> int:
        with self.database.write() as session:
            opened = shifts.open_or_resume(session, self.lease)
            taken = experiments.take_next(session, self.lease, opened.id or 0)
            assert taken is not None
            return taken[0].id or 0

    def log(self, experiment: int, step: StepName, *pieces: str) -> None:
        with self.database.write() as session:
            row = steps.begin(session, self.lease, experiment, 1, step)
            for number, text in enumerate(pieces):
                steps.append_log(session, self.lease, row, (text,), f"inv:{number}")

    def measure(self, experiment: int, tps: float) -> None:
        none = Distribution()
        with self.database.write() as session:
            first = results.begin_phase(session, self.lease, experiment, 1, "first_request", 1)
            results.add_request(session, self.lease, first, RequestResult(prompt="w", repeat=0, ok=True, ttft_s=30.0))
            results.end_phase(session, self.lease, first, None, None)
            phase = results.begin_phase(session, self.lease, experiment, 1, "measured", 1)
            for prompt in FIVE_IDS:
                for repeat in range(2):
                    found = RequestResult(prompt=prompt, repeat=repeat, ok=True, tps=tps + repeat, ttft_s=0.2, tpot_s=1 / tps)
                    results.add_request(session, self.lease, phase, found)
            summary = PhaseSummary(
                requests=10, failed=0, valid=True, duration_s=9.0, output_tokens=None, output_tps=tps,
                ttft_ms=none, tpot_ms=none, itl_ms=none, e2e_ms=none, tps=none,
            )  # fmt: skip
            results.end_phase(session, self.lease, phase, summary, None)
            experiments.add_facts(session, self.lease, experiment, {"no_gpus": True, "engine_version": "1.0", "served_model": "m"})

    def finish(self, experiment: int, outcome: Outcome = Outcome.SUCCEEDED, reason: Reason | None = None, detail: str = "") -> None:
        with self.database.write() as session:
            experiments.finish(session, self.lease, experiment, outcome, reason, detail, "the line")
