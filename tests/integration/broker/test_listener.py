"""The worker of Celery with a real Redis: what it is set to, what it leaves there, and that it finds it again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from celery.worker import state

from service.wake import TASK, VISIBILITY_TIMEOUT_S, Waker, make_app, queue_of
from tests.acceptance.service import wait_for
from tests.redis import RedisServer
from workers import tasks
from workers.tasks import Listener

HOST = "gpu-1.example"
QUEUE = queue_of(HOST)


class Woken(threading.Event):
    """Counts. While it is held, whoever sets it is held up, too."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.free = threading.Event()
        self.free.set()

    def set(self) -> None:
        self.count += 1
        super().set()
        assert self.free.wait(30)


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def listener(redis_server: RedisServer, woken: Woken, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setattr(tasks, "AGAIN_S", 0.1)
    with Listener(redis_server.url, HOST, woken) as made:
        wait_for(lambda: "_kombu.binding.host.gpu-1.example" in redis_server.sizes(), 20)
        yield made
        woken.free.set()


@pytest.fixture
def wake(redis_server: RedisServer) -> Iterator[Callable[[], None]]:
    waker = Waker(redis_server.url)
    yield lambda: waker.wake(HOST)
    waker.close()


def send(redis_server: RedisServer, times: int = 1) -> None:
    """As many messages, as several publishers at one moment would make."""
    app = make_app(redis_server.url)
    for _ in range(times):
        app.send_task(TASK, args=(HOST,), queue=QUEUE)
    app.close()


def test_the_running_worker_is_set_as_meant(listener: Listener) -> None:
    conf = listener.app.conf
    assert listener.app.tasks[TASK].acks_late is False
    assert (conf.task_acks_late, conf.task_ignore_result, conf.task_reject_on_worker_lost) == (False, True, False)
    assert (conf.worker_prefetch_multiplier, conf.worker_disable_prefetch) == (1, True)
    assert (conf.accept_content, conf.task_serializer) == (["json"], "json")
    assert conf.worker_cancel_long_running_tasks_on_connection_loss is False
    assert conf.broker_transport_options["visibility_timeout"] == VISIBILITY_TIMEOUT_S
    controller = listener.controller
    assert controller is not None
    assert controller.pool_cls.__module__ == "celery.concurrency.thread"
    assert controller.concurrency == 1
    assert list(listener.app.amqp.queues.consume_from) == [QUEUE]
    running = {type(step).__name__ for step in controller.consumer.steps}
    assert running.isdisjoint({"Mingle", "Gossip", "Heart", "Events", "Control"})
    assert "Tasks" in running


@pytest.mark.usefixtures("listener")
def test_nothing_stays_unacknowledged_however_long_a_task_lasts(redis_server: RedisServer, woken: Woken, wake: Callable[[], None]) -> None:
    """Even if the task were the night's work: the one that runs is acknowledged, and those behind it wait in the queue, held by nobody."""
    woken.free.clear()
    wake()
    wait_for(lambda: woken.count, 20)
    send(redis_server, 3)
    for _ in range(8):
        # The worker asks for more once a second, if it asks.
        woken.free.wait(0.25)
        keys = redis_server.sizes()
        assert not {"unacked", "unacked_index"} & set(keys), keys
        assert (keys[QUEUE], woken.count) == (3, 1)
    woken.free.set()
    wait_for(lambda: woken.count == 4 and QUEUE not in redis_server.sizes(), 20)


@pytest.mark.usefixtures("listener")
def test_one_that_waits_is_enough(redis_server: RedisServer, woken: Woken) -> None:
    woken.free.clear()
    send(redis_server)
    wait_for(lambda: woken.count, 20)
    waker = Waker(redis_server.url)
    for number in range(5):
        waker.wake(HOST)
        wait_for(lambda number=number: waker.tries > number, 20, every=0.01)  # type: ignore[misc]
    assert redis_server.sizes()[QUEUE] == 1
    waker.close()


@pytest.mark.usefixtures("listener")
def test_what_is_no_wake_up_wakes_nobody(redis_server: RedisServer, woken: Woken, wake: Callable[[], None]) -> None:
    app = make_app(redis_server.url)
    app.send_task(TASK, args=("another",), queue=QUEUE)
    app.send_task(TASK, args=(HOST, "too much"), queue=QUEUE)
    app.send_task("something.else", args=(HOST,), queue=QUEUE)
    with redis_server.client as client:
        client.lpush(QUEUE, '{"body": "bm9uc2Vuc2U=", "content-type": "application/x-python-serialize", "content-encoding": "binary", '
                     '"headers": {"task": "expctl.wake", "id": "1"}, "properties": {"delivery_tag": "1", "body_encoding": "base64", '
                     '"delivery_info": {"exchange": "", "routing_key": "x"}}}')  # fmt: skip
    wait_for(lambda: QUEUE not in redis_server.sizes(), 30)
    assert woken.count == 0
    wake()
    wait_for(lambda: woken.count == 1, 20)
    assert not {"unacked", "unacked_index"} & set(redis_server.sizes())


@pytest.mark.usefixtures("listener")
@pytest.mark.parametrize("loss", ["wiped", "restarted", "restarted empty"])
def test_it_hears_again_after_redis_was_lost(redis_server: RedisServer, woken: Woken, wake: Callable[[], None], loss: str) -> None:
    wake()
    wait_for(lambda: woken.count, 20)
    woken.clear()
    {"wiped": redis_server.wipe, "restarted": redis_server.restart, "restarted empty": lambda: redis_server.restart(empty=True)}[loss]()

    def heard() -> bool:
        wake()
        return woken.wait(0.2)

    wait_for(heard, 30)


def test_a_worker_of_celery_that_ends_is_started_again(listener: Listener, woken: Woken, wake: Callable[[], None]) -> None:
    first = listener.controller
    assert first is not None
    state.should_stop = 1  # type: ignore[assignment]  # it ends by itself
    wait_for(lambda: first.exitcode == 1, 20)
    state.should_stop = None
    wait_for(lambda: listener.controller is not first, 20)
    wake()
    wait_for(lambda: woken.count, 20)
