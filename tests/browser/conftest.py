"""Chromium as Debian has it, and a simulated night of the embedded service: real processes, a simulated engine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.acceptance.service import Service, wait_for
from tests.browser.looking import Look, Looks
from workers.hosts.local import LocalHost
from workers.sim.launchers import write_launchers

MODEL = "moonshotai/kimi-k2.5"
BENCH = {"max_tokens": 24, "concurrency": [1, 4], "repeat": 2, "warmup": 1}
SHUT = "http://127.0.0.1:9/hook"
"""Nobody listens there, so that messages to it have tries to show."""
SIZE = {"width": 1280, "height": 860}
SHOWN = Path(__file__).parents[2] / "docs" / "screenshots"
"""What the documents show."""


def ngram(tokens: int) -> dict[str, Any]:
    return {"model": MODEL, "speculative": {"method": "ngram", "num_speculative_tokens": tokens, "prompt_lookup_max": 4}}


@dataclass(frozen=True)
class Night:
    """What ran: a baseline that is pinned, two that were compared with it, one that failed."""

    service: Service
    base: int
    fast: int
    slow: int
    failed: int


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser; only Playwright's driver comes with its package."""
    path = shutil.which("chromium")
    assert path is not None, "Chromium is missing: apt-get install chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("browser")
    made = Service(folder, environ={"EXPCTL_NOTIFY_ALLOW": "127.0.0.1"}).start()
    gpus = write_launchers(folder / "gpus", {"EXPCTL_SIM_STATE_DIR": str(folder / "gpus")})
    body = {"name": "local", "nvidia_smi": str(gpus.nvidia_smi), "simulated": True}
    assert made.http.post("/v1/hosts", json=body).is_success
    assert made.http.post("/v1/notifiers", json={"name": "team", "kind": "webhook", "url": SHUT, "default": True}).is_success
    yield made
    made.end()
    host = LocalHost("local", made.data)
    for unit in (made.data / "units").glob("*"):
        host.stop_unit(unit.name, grace_s=1)


def submit(service: Service, name: str, engine: dict[str, Any], bench: dict[str, Any] | None = None, **knobs: str) -> int:
    """Queue one for the simulated engine, such that nothing differs but what the test says."""
    engine = engine | {"executable": str(service.engine(**({"LOAD_SECONDS": "1"} | knobs))), "env": {"NAME": name.rsplit(maxsplit=1)[-1]}}
    return service.submit(service.file(name, bench=BENCH | (bench or {}), engine=engine))


@pytest.fixture(scope="session")
def night(service: Service) -> Night:
    base = submit(service, "kimi-k2.5-int4 base", {"model": MODEL})
    slow = submit(service, "kimi-k2.5-int4 ngram k=5", ngram(5))
    fast = submit(service, "kimi-k2.5-int4 ngram k=3", ngram(3))
    failed = submit(service, "kimi-k2.5-int4 ngram k=9", ngram(9), FAULT="oom_at_load")
    service.ended(base)
    assert service.http.put(f"/v1/experiments/{base}/baseline").is_success
    for one in (slow, fast, failed):
        service.ended(one, 180)
    wait_for(lambda: service.http.get("/v1/deliveries").json()["items"])
    return Night(service, base, fast, slow, failed)


@pytest.fixture
def look(chromium: Browser, service: Service) -> Iterator[Looks]:
    """Opens tabs, each in a session of its own; at the end none of them may have complained."""
    opened: list[tuple[Look, Any]] = []

    def fresh(base: str | None = None, **options: Any) -> Look:
        context = chromium.new_context(**({"viewport": SIZE} | options))
        context.set_default_timeout(30_000)
        made = Look(context.new_page(), base or service.url)
        opened.append((made, context))
        return made

    yield fresh
    said = [line for one, _ in opened for line in one.said]
    for _, context in opened:
        context.close()
    assert said == []


@pytest.fixture
def idle(service: Service) -> Iterator[Service]:
    """The service; whatever a test leaves open in it is ended."""
    yield service
    assert service.settled()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: into the documents when asked (EXPCTL_SCREENSHOTS=1), else nowhere that lasts."""
    return SHOWN if os.environ.get("EXPCTL_SCREENSHOTS") else tmp_path_factory.mktemp("pictures")
