"""Real processes that fight over the same hosts."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from multiprocessing.queues import Queue
from pathlib import Path

from service.domain.events import EventType
from service.domain.spec import Spec
from service.store import events, hosts, submission
from service.store.database import Database
from tests.integration.store.contender import Report, contend

HOSTS = ["a", "b"]
EACH = 100
PROCESSES = 3


def spec(name: str, host: str) -> Spec:
    return Spec.model_validate({"name": name, "host": host, "engine": {"kind": "vllm", "model": "m"}})


def test_many_processes_share_hosts_and_every_experiment_runs_once(database: Database, tmp_path: Path) -> None:
    with database.write() as session:
        for host in HOSTS:
            hosts.register(session, host, "local", {})
        submission.submit_all(session, [spec(f"{host}-{number}", host) for number in range(EACH) for host in HOSTS], "me")
    total = EACH * len(HOSTS)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(PROCESSES)
    queue: Queue[Report] = context.Queue()
    processes = [context.Process(target=contend, args=(database.url, HOSTS, number, tmp_path, start, queue)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    reports = [queue.get(timeout=180) for _ in processes]
    for process in processes:
        process.join(10)
    assert [wrong for report in reports for wrong in report.wrong] == []
    assert sorted(one for report in reports for one in report.taken) == list(range(1, total + 1))
    fences = [pair for report in reports for pair in report.fences]
    assert len(set(fences)) == len(fences) >= total
    # Else they took turns and the test showed nothing.
    assert sum(report.refused for report in reports) > 0
    assert all(report.taken for report in reports)
    with database.read() as session:
        started = [event.experiment_id for event in events.since(session, limit=10_000) if event.type == EventType.EXPERIMENT_STARTED]
    assert Counter(started) == Counter(range(1, total + 1))
