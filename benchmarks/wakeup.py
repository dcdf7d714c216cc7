"""How long after a submission's commit its host is claimed: with a message through Redis, and where workers look by themselves.

The worker is the real loop with the real Celery; what it does is only to claim the host and to hand it back, so that nothing but the
way there is measured. Redis and PostgreSQL are those of the tests. `python benchmarks/wakeup.py`, two minutes.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from service.domain.spec import Spec
from service.store import experiments, hosts, migrate, news, submission
from service.store.database import Database
from service.wake import Waker
from tests.databases import start_postgres
from tests.redis import RedisServer
from workers import embedded
from workers.embedded import POLL_S, UNWOKEN_S, work
from workers.tasks import Listener
from workers.worker import Worker

HOST = "gpu-1"
TIMES = 40
APART_S = 0.7
SPEC = Spec.model_validate({"name": "x", "host": HOST, "engine": {"kind": "vllm", "model": "m"}})


class Claims:
    """Stands for a shift: claims the host, notes when, ends what waits, and hands the host back."""

    def __init__(self) -> None:
        self.at = 0.0
        self.claimed = threading.Event()

    def __call__(self, worker: Worker, host: str) -> bool:
        """In place of `run_shift`."""
        with worker.database.write() as session:
            lease = hosts.claim(session, host, worker.owner)
        self.at = time.perf_counter()
        with worker.database.write() as session:
            for row in experiments.listing(session, statuses=["queued"]):
                experiments.cancel(session, row.id or 0, "benchmark")
            if lease is not None:
                hosts.release(session, lease)
        self.claimed.set()
        return True


@contextmanager
def running(database: Database, patience_s: float, broker_url: str, claims: Claims) -> Iterator[None]:
    """A worker's loop in a thread."""
    stop = threading.Event()
    worker = Worker(database, "benchmark", Path(tempfile.gettempdir()), {}, stop)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(embedded, "run_shift", claims))
        if broker_url:
            stack.enter_context(Listener(broker_url, HOST, worker.woken))
        thread = threading.Thread(target=work, args=(worker, HOST, patience_s))
        thread.start()
        yield
        stop.set()
        worker.woken.set()
        thread.join()


def measure(database: Database, patience_s: float, broker_url: str = "") -> list[float]:
    """Seconds from commit to claim, of many submissions."""
    with database.write() as session:
        hosts.register(session, HOST, "local", {"simulated": True})
    waker, claims, found = Waker(broker_url), Claims(), []
    news.on_commit(database, waker.wake)
    with running(database, patience_s, broker_url, claims):
        pause = threading.Event()
        pause.wait(3)  # Celery connects
        for number in range(TIMES):
            claims.claimed.clear()
            with database.write() as session:
                submission.submit(session, SPEC, "benchmark")
            committed = time.perf_counter()
            claims.claimed.wait(60)
            found.append(claims.at - committed)
            pause.wait(APART_S + number % 7 * 0.09)  # in no step with any poll
    waker.close()
    return sorted(found)


def show(name: str, found: list[float], target_s: float) -> None:
    """One line."""
    p50, p90 = statistics.median(found), found[int(0.9 * len(found))]
    figures = f"p50 {p50 * 1000:7.1f} ms   p90 {p90 * 1000:7.1f} ms   most {found[-1] * 1000:7.1f} ms"
    print(f"{name:<42} {figures}   wanted: p50 < {target_s * 1000:.0f} ms")


def main() -> None:
    """Print both."""
    postgres, redis = start_postgres(), RedisServer().start()
    try:
        service = Database(postgres.url(postgres.create()))
        show("PostgreSQL, woken through Redis", measure(service, UNWOKEN_S, redis.url), 0.1)
        service.close()
        with tempfile.TemporaryDirectory() as folder:
            embedded_one = Database(f"sqlite:///{folder}/expctl.db")
            migrate.upgrade(embedded_one)
            show(f"SQLite, looked at every {POLL_S} s", measure(embedded_one, POLL_S), 1.0)
            embedded_one.close()
    finally:
        postgres.stop()
        redis.end()


if __name__ == "__main__":
    main()
