"""The Celery door: a worker of Celery that consumes one host's queue, and does nothing but say that it is time to look.

The work itself is not the task. A task that lasts a night holds up the messages behind it, cannot be told of TERM in every pool, and
dies with a connection; this one lasts microseconds, and the loop in `workers.embedded` does what is due, as it does without a broker.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

import structlog
from celery.platforms import EX_OK
from celery.worker import WorkController, state

from service.wake import CONSUME_S, TASK, make_app, queue_of

if TYPE_CHECKING:
    from celery import Celery

log = structlog.get_logger()

POOL = "threads"
AGAIN_S = 5.0
LEAVE_S = 3.0


class Listener:
    """`with` listens for messages to a host, and sets `woken` for each. Lives without the broker, and finds it again."""

    def __init__(self, broker_url: str, host: str, woken: threading.Event) -> None:
        self.app = make_app(broker_url, CONSUME_S)
        self.app.task(name=TASK, shared=False)(self._wake)
        self.controller: WorkController | None = None
        self._host, self._woken = host, woken
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="celery", daemon=True)

    def _wake(self, host: str) -> None:
        """The task."""
        if host == self._host:
            self._woken.set()
        else:
            log.warning("a message for another host", host=self._host, message=f"{host!r:.80}")

    def _run(self) -> None:
        # It reconnects by itself and for ever. What is caught here is what nobody has thought of.
        while not self._leaving.is_set():
            try:
                self.controller = make_controller(self.app, self._host)
                self.controller.start()
            except Exception:
                log.exception("Celery failed", host=self._host)
            if not self._leaving.wait(AGAIN_S):
                log.warning("Celery ended; it is started again", host=self._host)

    def __enter__(self) -> Self:
        state.should_stop = None
        self.app.set_default()  # a thread of the pool looks for the task in the app of the process
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leaving.set()
        state.should_stop = EX_OK  # type: ignore[assignment]  # how it is asked to end; it looks every second
        self._thread.join(LEAVE_S)


def make_controller(app: Celery, host: str) -> WorkController:
    """A worker of Celery that consumes one host's queue alone. `start` runs it in the thread that calls it."""
    quiet = {"without_mingle": True, "without_gossip": True, "without_heartbeat": True}
    return WorkController(app, hostname=f"{host}@{socket.gethostname()}", pool=POOL, concurrency=1, queues=[queue_of(host)], **quiet)
