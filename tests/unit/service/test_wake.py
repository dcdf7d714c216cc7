"""How Celery is set, and a publisher that nobody waits for, whatever the broker does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import structlog.testing

from service.domain.errors import UsageError
from service.domain.host_change import HOST_NAME
from service.wake import VISIBILITY_TIMEOUT_S, Waker, make_app, queue_of
from tests.acceptance.service import wait_for

NOBODY = "redis://127.0.0.1:1/0"


@pytest.fixture
def black_hole() -> Iterator[str]:
    """A broker that takes every connection and never says a word."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(16)
        yield f"redis://127.0.0.1:{deaf.getsockname()[1]}/0"


class Held(Waker):
    """Its publishing lasts until it is let go."""

    def __init__(self) -> None:
        super().__init__(NOBODY)
        self.bursts: list[list[str]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def _publish(self, hosts: list[str]) -> None:
        self.bursts.append(hosts)
        self.begun.set()
        assert self.go.wait(10)


def test_the_visibility_timeout_is_long_and_the_same_wherever_it_is_looked_for() -> None:
    conf = make_app(NOBODY).conf
    places = (conf.broker_transport_options, conf.result_backend_transport_options, conf)
    assert [place["visibility_timeout"] for place in places] == [VISIBILITY_TIMEOUT_S] * 3
    assert VISIBILITY_TIMEOUT_S > 12 * 3600


def test_nothing_waits_for_ever_and_nothing_gives_up() -> None:
    conf = make_app(NOBODY, 3.0).conf
    assert conf.broker_connection_max_retries is None
    assert conf.broker_connection_retry_on_startup is True
    assert conf.broker_pool_acquire_timeout == 1.0
    options = conf.broker_transport_options
    assert (options["socket_timeout"], options["socket_connect_timeout"], options["socket_keepalive"]) == (3.0, 3.0, True)
    assert (options["health_check_interval"], options["max_retries"]) == (10, 0)


def test_another_programs_broker_is_not_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://elsewhere:6379/0")
    app = make_app(NOBODY)
    assert {app.connection_for_read().hostname, app.connection_for_write().hostname} == {"127.0.0.1"}


@pytest.mark.parametrize("url", ["amqp://guest:secret@here", "127.0.0.1:6379", "postgresql://me:secret@here/db", "memory://"])
def test_another_broker_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        make_app(url)
    said = "\n".join(refused.value.lines())
    assert "redis://HOST:6379/0" in said
    assert "secret" not in said


@pytest.mark.parametrize("name", ["gpu-01", "a.b.example.org", "X" * 63, "0"])
def test_a_hosts_name_is_its_queue(name: str) -> None:
    assert HOST_NAME.fullmatch(name)
    queue = make_app(NOBODY).amqp.queues[queue_of(name)]
    assert (queue.name, queue.routing_key) == (f"host.{name}", f"host.{name}")


def test_without_a_broker_nothing_happens() -> None:
    waker = Waker()
    waker.wake("gpu-1")
    waker.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "waker"]


def test_whoever_wakes_never_waits_and_a_burst_is_one_message() -> None:
    waker = Held()
    waker.wake("a")
    assert waker.begun.wait(10)
    for host in ("b", "c", "b", "b", "c"):
        waker.wake(host)  # the thread is held: were this done here, it would be, too
    waker.go.set()
    waker.close()
    assert waker.bursts == [["a"], ["b", "c"]]


def test_a_broker_that_is_gone_is_told_of_once_an_outage() -> None:
    waker = Waker(NOBODY)
    with structlog.testing.capture_logs() as told:
        for number in range(3):
            waker.wake("a")
            wait_for(lambda number=number: waker.tries > number, every=0.01)  # type: ignore[misc]
        waker.close()
    assert [entry["event"].partition(";")[0] for entry in told] == ["the broker does not answer"]


def test_a_broker_that_says_nothing_is_given_up_in_time(black_hole: str) -> None:
    waker = Waker(black_hole)
    with structlog.testing.capture_logs() as told:
        waker.wake("a")
        wait_for(lambda: waker.tries, 5.0, every=0.02)
    assert told
    waker.close()
