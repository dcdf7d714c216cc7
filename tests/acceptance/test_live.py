"""Streams: nothing is missed and nothing is told twice, whatever breaks in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import httpx
import httpx_sse

from tests.acceptance.service import Service, wait_for


def read(service: Service, count: int, *, last: str = "", path: str = "/v1/events") -> list[httpx_sse.ServerSentEvent]:
    """The next `count` events."""
    headers = {"Last-Event-ID": last} if last else {}
    found: list[httpx_sse.ServerSentEvent] = []
    params = {} if last else {"after": 0}
    with (
        httpx.Client(base_url=service.url, trust_env=False, timeout=60) as client,
        httpx_sse.connect_sse(client, "GET", path, params=params, headers=headers) as source,
    ):
        for event in source.iter_sse():
            if event.data:
                found.append(event)
            if len(found) == count or event.event == "end":
                return found
    return found


def all_events(service: Service, one: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(service.api(f"/v1/experiments/{one}/events"))
    return found


def test_a_stream_goes_on_where_it_was_cut(fresh: Service) -> None:
    one = fresh.submit(fresh.file("x", bench={"max_tokens": 4}))
    fresh.ended(one)
    wait_for(lambda: any(event["type"] == "experiment.finished" for event in all_events(fresh, one)))
    total = len([event for event in read(fresh, 10_000, path=f"/v1/experiments/{one}/logs/stream") if event.event == "log"])
    assert total >= 1
    first = read(fresh, 3)
    rest = read(fresh, 5, last=first[-1].id)
    again = read(fresh, 8)
    assert [event.id for event in (*first, *rest)] == [event.id for event in again]
    assert again[0].event == "experiment.submitted"
    assert json.loads(again[0].data)["experiment_id"] == one


def test_watch_and_logs_survive_the_death_of_the_api(service: Service) -> None:
    service.client.pause("local", paused=True)  # until both look on
    one = service.submit(service.file("x", bench={"max_tokens": 8}, LOAD_SECONDS="4"))
    argv = [sys.executable, "-m", "expctl", "--server", service.url]
    with (
        subprocess.Popen([*argv, "watch", str(one)], stdout=subprocess.PIPE, text=True, env=service.environment()) as watch,
        subprocess.Popen([*argv, "logs", "-f", str(one)], stdout=subprocess.PIPE, text=True, env=service.environment()) as logs,
    ):
        assert watch.stdout is not None
        watch.stdout.readline()
        service.client.pause("local", paused=False)
        while "weights" not in watch.stdout.readline():
            assert watch.poll() is None
        service.kill("api")
        log, _ = logs.communicate(timeout=90)
        shown, _ = watch.communicate(timeout=90)
    assert "x: Succeeded" in shown
    assert log.count("Application startup complete") == 1
    assert log == service.cli("logs", str(one)).stdout


def test_an_unknown_experiment_is_no_stream(shared: Service) -> None:
    answer = httpx.get(f"{shared.url}/v1/experiments/9999/logs/stream", trust_env=False)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def heed_ctrl_c() -> None:
    """A shell starts what it puts in the background deaf to Ctrl-C, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_in_watch_is_130_and_stops_nothing(service: Service) -> None:
    one = service.submit(service.file("x", LOAD_SECONDS="60"))
    argv = [sys.executable, "-m", "expctl", "--server", service.url, "watch", str(one)]
    with subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=service.environment(),
        preexec_fn=heed_ctrl_c,  # noqa: PLW1509 - this process has no threads that hold locks
    ) as watch:
        assert watch.stdout is not None
        watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        _, talk = watch.communicate(timeout=20)
    assert watch.returncode == 130
    assert "what runs keeps running" in talk
    assert service.show(one)["status"] == "running"
