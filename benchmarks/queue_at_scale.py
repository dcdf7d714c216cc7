"""How long the service takes for a submission, a claim and the queue page with a long queue and a long history.

`python benchmarks/queue_at_scale.py` fills a database with 20,000 finished and 1,000 queued experiments of 50 configurations and
prints p50 and p95 of each, on SQLite and, where the tests' PostgreSQL can be imported, on PostgreSQL. Times are those inside the
service: the app is asked without a socket. `--finished N --queued N --rounds N` change the sizes; `--parked` makes the host one
with production to park, so that every claim looks into the history.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import insert, text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from service.api.app import create_app
from service.domain.events import EventType
from service.domain.hashing import bench_hash, engine_hash, spec_hash
from service.domain.spec import Spec
from service.domain.status import Outcome
from service.store import agenda, events, experiments, hosts, migrate, shifts
from service.store.database import Database
from service.store.tables import DependencyRow, DurationRow, EventRow, ExperimentRow

CONFIGURATIONS = 50
BATCH = 2000
NOW = datetime.now(UTC)
PARTS = {
    "clear": 5, "launch": 3, "load": 1800, "load:engine_init": 60, "load:weights_loading": 1200, "load:torch_compile": 240,
    "load:cuda_graph_capture": 240, "load:api_startup": 60, "ready": 1808, "warm": 40, "bench:first_request": 30, "bench:warmup": 10,
    "measure": 900, "bench:1": 600, "bench:8": 300, "collect": 3, "bench": 943,
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How much there is."""

    finished: int
    queued: int
    rounds: int
    parked: bool


def specs() -> list[Spec]:
    """Some models, each swept over an argument."""
    made = []
    for number in range(CONFIGURATIONS):
        engine = {"kind": "vllm", "model": f"/models/m{number % 5}", "args": {"max-model-len": 1024 + number}}
        made.append(Spec.model_validate({"name": f"sweep {number}", "host": "gpu", "engine": engine}))
    return made


def fill(database: Database, size: Size) -> None:
    """Rows as the service writes them, without going through it."""
    rng = random.Random(0)
    config = {"units": "systemd", "park": ["production.service"], "window": _open_window()} if size.parked else {}
    with database.write() as session:
        hosts.register(session, "gpu", "local", config)
    made = [(spec, _columns(spec)) for spec in specs()]
    rows: dict[type[Any], list[dict[str, Any]]] = {ExperimentRow: [], DurationRow: [], EventRow: [], DependencyRow: []}
    for number in range(1, size.finished + size.queued + 1):
        _, columns = made[rng.randrange(CONFIGURATIONS)]
        done = number <= size.finished
        rows[ExperimentRow].append(columns | _state(number, done=done))
        rows[EventRow] += [
            _event(number, kind) for kind in ("experiment.submitted", "experiment.started", "experiment.finished")[: 3 if done else 1]
        ]
        if done:
            rows[DurationRow] += [_duration(number, part, seconds * rng.uniform(0.8, 1.3), columns) for part, seconds in PARTS.items()]
        elif number % 10 == 0:
            rows[DependencyRow].append({"experiment_id": number, "after_id": number - 5})
    with database.write() as session:
        for table, values in rows.items():
            for start in range(0, len(values), BATCH):
                session.execute(insert(table), values[start : start + BATCH])
        if database.engine.dialect.name == "postgresql":
            # Rows with a given id leave the sequence behind.
            session.execute(text("SELECT setval('experiments_id_seq', (SELECT max(id) FROM experiments))"))
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # As autovacuum does it, which the tests' server leaves out.
        connection.execute(text("ANALYZE"))


def _open_window() -> str:
    return f"{NOW - timedelta(hours=1):%H:%M}-{NOW + timedelta(hours=11):%H:%M}"


def _columns(spec: Spec) -> dict[str, Any]:
    return {
        "name": spec.name, "host_id": 1, "created_by": "bench", "spec": spec.model_dump(mode="json"), "spec_hash": spec_hash(spec),
        "engine_hash": engine_hash(spec), "bench_hash": bench_hash(spec.bench), "served_model": spec.engine.model_id,
        "detail": "", "evidence": "", "progress": {}, "facts": {},
    }  # fmt: skip


def _state(number: int, *, done: bool) -> dict[str, Any]:
    started = NOW - timedelta(minutes=45 * (21_000 - number))
    end = {"outcome": "succeeded", "started_at": started, "finished_at": started + timedelta(minutes=45)} if done else {}
    none = dict.fromkeys(("outcome", "started_at", "finished_at"))
    return {"id": number, "status": "finished" if done else "queued", "rank": float(number), "created_at": started, **none, **end}


def _duration(number: int, part: str, seconds: float, columns: dict[str, Any]) -> dict[str, Any]:
    same = {name: columns[name] for name in ("host_id", "engine_hash", "served_model", "bench_hash")}
    same |= {} if part.startswith(("bench", "warm", "measure", "collect")) else {"bench_hash": ""}
    repeat = 5 if part in {"measure", "bench", "bench:1", "bench:8"} else None
    return {"experiment_id": number, "attempt": 1, "part": part, "seconds": seconds, "engine_kind": "vllm", "repeat": repeat, **same}


def _event(number: int, kind: str) -> dict[str, Any]:
    return {"type": kind, "actor": "bench", "host": "gpu", "experiment_id": number, "data": {}, "at": NOW}


def timed(rounds: int, act: Callable[[], object], before: Callable[[], object] = lambda: None) -> tuple[float, float]:
    """p50 and p95 in milliseconds; what is done `before` each is not counted.

    The first ones, which compile statements, are left out: a service does that once.
    """
    took = []
    for _ in range(rounds + 5):
        before()
        begun = time.perf_counter()
        act()
        took.append((time.perf_counter() - begun) * 1000)
    ordered = sorted(took[5:])
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]


def measure(database: Database, size: Size) -> dict[str, tuple[float, float]]:
    """Each of what people and workers do."""
    app = create_app(database, loopback_only=True)
    # As the service does once it has started: see the app's lifespan.
    gc.collect()
    gc.freeze()
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8700")

        def ask(method: str, path: str, body: Any = None) -> None:
            answer = runner.run(client.request(method, path, json=body))
            answer.raise_for_status()

        def change() -> None:
            with database.write() as session:
                events.emit(session, EventType.BENCH_PROGRESS, "bench", host="gpu")

        one = specs()[7].model_dump(mode="json")
        open_ones = "/v1/experiments?limit=50&status=queued&status=running"
        found = {
            "submit one": timed(size.rounds, lambda: ask("POST", "/v1/experiments", one)),
            "queue page, newest 20, after a change": timed(size.rounds, lambda: ask("GET", "/v1/experiments?limit=20"), change),
            "queue page, 50 open, after a change": timed(size.rounds, lambda: ask("GET", open_ones), change),
            "queue page, 50 open, nothing changed": timed(size.rounds, lambda: ask("GET", open_ones)),
            "hosts with their nights, after a change": timed(size.rounds, lambda: ask("GET", "/v1/hosts"), change),
            "one experiment": timed(size.rounds, lambda: ask("GET", f"/v1/experiments/{size.finished + size.queued // 2}")),
        }
        runner.run(client.aclose())
    return found | {"claim": _claims(database, size)}


def _claims(database: Database, size: Size) -> tuple[float, float]:
    with database.write() as session:
        lease = hosts.claim(session, "gpu", "bench", 36000.0)
        if lease is None:
            raise RuntimeError("somebody else holds the host")
        shift = shifts.open_or_resume(session, lease).id or 0
    taken: list[int] = []

    def claim() -> None:
        with database.write() as session:
            among = agenda.fitting(session, hosts.by_name(session, "gpu"), datetime.now(UTC))[:1] if size.parked else None
            found = experiments.take_next(session, lease, shift, guests=False if size.parked else None, among=among)
            if found is None:
                raise RuntimeError("nothing is due")
            taken.append(found[0].id or 0)

    def end() -> None:
        with database.write() as session:
            experiments.finish(session, lease, taken[-1], Outcome.SUCCEEDED, None, "", "")

    claim()
    return timed(size.rounds, claim, end)


def report(name: str, database: Database, size: Size) -> None:
    """Fill, measure, print the rows of a table."""
    fill(database, size)
    for what, (half, most) in measure(database, size).items():
        print(f"| {name} | {what} | {half:.0f} | {most:.0f} |", flush=True)
    database.close()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="how the queue scales")
    parser.add_argument("--finished", type=int, default=20_000)
    parser.add_argument("--queued", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--parked", action="store_true")
    asked = parser.parse_args()
    size = Size(asked.finished, asked.queued, asked.rounds, asked.parked)
    print(
        f"{size.queued} queued, {size.finished} finished, {CONFIGURATIONS} configurations{', production to park' if size.parked else ''}\n"
    )
    print("| database | what | p50, ms | p95, ms |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/expctl.db")
        migrate.upgrade(database)
        report("SQLite", database, size)
    with suppress(ImportError):
        from tests.databases import start_postgres  # noqa: PLC0415 - only where its package is installed

        server = start_postgres()
        try:
            report("PostgreSQL", Database(server.url(server.create())), size)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
