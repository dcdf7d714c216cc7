"""How long each part of talking to a host may take, and how to keep to it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class SshLimits:
    """Seconds. A command's own deadline bounds each of them too."""

    connect_s: float = 15.0
    """Finding and reaching one machine's address; ConnectTimeout of ssh_config goes before it."""
    handshake_s: float = 15.0
    """From there until keys are exchanged."""
    auth_s: float = 20.0
    """Logging in, per key that is tried."""
    session_s: float = 10.0
    """Until a connection that was left open takes a command; then it is given up and a new one is opened."""
    keepalive_s: float = 15.0
    """After how much silence the peer is asked for a sign of life."""
    silence_s: float = 25.0
    """For how long it may leave that unanswered. It is asked again with each keepalive, so 45 s after its last sign it is given up."""
    linger_s: float = 5.0
    """How long the output may stay open once the command itself has ended: a process that it left behind may hold it."""


def left(until: float, at_most: float | None = None) -> float:
    """Seconds until a moment of time.monotonic(), never below 0."""
    remaining = max(0.0, until - time.monotonic())
    return remaining if at_most is None else min(remaining, at_most)


def bounded(call: Callable[[], Answer], seconds: float) -> Answer:
    """The answer of a call that cannot be interrupted, such as a name lookup. TimeoutError where it takes longer; it goes on alone."""
    future: Future[Answer] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
            future.set_exception(error)

    threading.Thread(target=work, name="bounded", daemon=True).start()
    return future.result(timeout=seconds)


@contextlib.contextmanager
def cut_at(until: float, cut: Callable[[], None]) -> Iterator[None]:
    """Call `cut` from another thread if the block lasts longer than that: some calls of paramiko take no time limit."""
    timer = threading.Timer(left(until), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
