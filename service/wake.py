"""Wake-ups: how Celery is set, and the message that tells a host's worker to look into the database.

A message carries a host's name and nothing else. It may be lost, doubled or late: the database is the queue, and whoever is woken
looks there. See docs/queue.md for what each setting is for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import structlog

from service.domain.errors import UsageError

if TYPE_CHECKING:
    from celery import Celery

log = structlog.get_logger()

TASK = "expctl.wake"
SCHEMES = ("redis", "rediss", "redis+socket")
VISIBILITY_TIMEOUT_S = 24 * 3600
"""Longer than any night. It matters to nothing, since a message is acknowledged before it is acted on; it is a belt."""
PUBLISH_S = 1.0
"""How long a publisher waits for the broker to accept, and once more to answer, seconds."""
CONSUME_S = 5.0
"""The same for a worker, which has nobody who waits for it."""
HEALTH_S = 10
"""A connection on which the broker has gone quiet is dropped within about twice this, seconds."""
FLUSH_S = 2 * PUBLISH_S

FIXED: dict[str, Any] = {
    # A message is done as soon as it is delivered: the lease in the database is the claim.
    "task_acks_late": False,
    "task_reject_on_worker_lost": False,
    "task_ignore_result": True,
    "task_store_errors_even_if_ignored": False,
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_create_missing_queues": True,
    "task_publish_retry": False,
    # One at a time, and none held back.
    "worker_concurrency": 1,
    "worker_prefetch_multiplier": 1,
    "worker_disable_prefetch": True,
    # The broker may go and come as it likes.
    "broker_connection_retry": True,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_pool_acquire_timeout": PUBLISH_S,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "worker_enable_prefetch_count_reduction": False,
    # Nobody talks to workers but by the database.
    "worker_enable_remote_control": False,
    "worker_send_task_events": False,
    "task_send_sent_event": False,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "enable_utc": True,
}


def queue_of(host: str) -> str:
    """The queue of a host. Names of hosts hold letters, digits, dots and dashes, none of which Redis or Celery reads as more."""
    return f"host.{host}"


def make_app(broker_url: str, patience_s: float = PUBLISH_S) -> Celery:
    """Celery on that broker. `patience_s`: how long a connection, and then an answer, is waited for."""
    from celery import Celery  # noqa: PLC0415 - a third of a second, and only where there is a broker

    check_broker(broker_url)
    app = Celery("expctl", set_as_current=False)
    app.conf.update(FIXED)
    # Both, since a broker that the environment names for another program's Celery would go before the plain setting.
    app.conf.update(broker_url=broker_url, broker_read_url=broker_url, broker_write_url=broker_url)
    app.conf.broker_connection_timeout = patience_s
    app.conf.broker_transport_options = {
        "socket_timeout": patience_s,
        "socket_connect_timeout": patience_s,
        "socket_keepalive": True,
        "health_check_interval": HEALTH_S,
        # Of the implicit connection of a publisher, which would be tried for ever.
        "max_retries": 0,
        "connect_retries_timeout": patience_s,
    }
    _see_in_all_places(app)
    return app


def _see_in_all_places(app: Celery) -> None:
    """Celery and kombu each read the visibility timeout somewhere else, and the shortest counts."""
    app.conf.broker_transport_options = {**app.conf.broker_transport_options, "visibility_timeout": VISIBILITY_TIMEOUT_S}
    app.conf.result_backend_transport_options = {"visibility_timeout": VISIBILITY_TIMEOUT_S}
    app.conf.visibility_timeout = VISIBILITY_TIMEOUT_S


def check_broker(url: str) -> None:
    """UsageError unless it is Redis. The URL is not repeated: it may hold a password."""
    scheme, found, _ = url.partition("://")
    if not found or scheme not in SCHEMES:
        todo = "write redis://HOST:6379/0, or redis://:PASSWORD@HOST:6379/0; leave it empty to run without a broker"
        raise UsageError("EXPCTL_BROKER_URL names no Redis", f"it begins with {scheme!r:.20}", todo)


class Waker:
    """Wakes workers, from a thread of its own: whoever asks never waits, and a burst for one host is one message.

    Without a broker it does nothing: then workers look into the database themselves.
    """

    def __init__(self, broker_url: str = "") -> None:
        self._app = make_app(broker_url) if broker_url else None
        self._hosts: dict[str, None] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._down = False
        self.tries = 0
        """How often it has been at the broker."""
        self._thread: threading.Thread | None = None

    def wake(self, host: str) -> None:
        """Have the host's worker told to look. Never raises, never waits; whether it arrives is not known."""
        if self._app is None:
            return
        with self._changed:
            self._hosts[host] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="waker", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Let what waits go out, for two seconds at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(FLUSH_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._hosts or self._closed)
                hosts, self._hosts = list(self._hosts), {}
            if not hosts:
                return
            try:
                self._publish(hosts)
            except Exception as error:  # noqa: BLE001 - whatever a broker does, the steward wakes again what this lost
                self._tell(str(error) or type(error).__name__)
            else:
                self._tell("")
            self.tries += 1

    def _publish(self, hosts: list[str]) -> None:
        """One connection a burst: bursts are rare, and a connection that is kept can be stale without anybody knowing."""
        app = self._app
        if app is None:
            return
        with app.connection_for_write() as connection:
            producer = app.amqp.Producer(connection, auto_declare=False)
            for host in hosts:
                queue = queue_of(host)
                # One that waits says all there is to say: whoever takes it looks after that, and sees what is committed by now.
                waiting: Any = app.amqp.queues[queue].bind(connection.default_channel).queue_declare()
                if waiting.message_count == 0:
                    app.send_task(TASK, args=(host,), queue=queue, producer=producer, retry=False, ignore_result=True)

    def _tell(self, trouble: str) -> None:
        """Once when the broker is gone, and once when it is back."""
        if bool(trouble) != self._down:
            self._down = bool(trouble)
            if trouble:
                log.warning("the broker does not answer; workers look into the database by themselves", error=trouble)
            else:
                log.warning("the broker answers again")
