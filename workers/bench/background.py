"""Runs the load client's event loop in a thread of its own.

What the caller does with a result (a database write, a line on the terminal) may block, and must not block the loop that
stamps the reads. So callbacks run in the caller's thread, and only the network lives in the other.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from service.domain.errors import ExpctlError
from service.domain.measurement import RequestResult

OnRequest = Callable[[RequestResult], None]
T = TypeVar("T")
_POLL_S = 0.25
"""How often `should_stop` is asked while nothing arrives."""


class BenchStopped(ExpctlError):
    """The benchmark was told to stop; requests in flight were cut."""

    slug = "bench-stopped"


class _Loop(threading.Thread, Generic[T]):
    """The thread; `inbox` gives results as they come, then None."""

    def __init__(self, work: Callable[[OnRequest], Awaitable[T]]) -> None:
        super().__init__(name="expctl-bench", daemon=True)
        self.inbox: queue.SimpleQueue[RequestResult | None] = queue.SimpleQueue()
        self.outcome: list[T] = []
        self.error: BaseException | None = None
        self._work = work
        self._running = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Run the work to its end."""
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
            self.error = error
        finally:
            self._running.set()
            self.inbox.put(None)

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._running.set()
        self.outcome.append(await self._work(self.inbox.put))

    def cut(self) -> None:
        """Cancel the work and wait for its end."""
        self._running.wait()
        if self.is_alive() and self._loop is not None and self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self.join()


def drive(
    work: Callable[[OnRequest], Awaitable[T]],
    on_request: OnRequest | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> T:
    """Run `work` and give its result. Callbacks run in this thread; what they raise ends the work and comes out here."""
    loop = _Loop(work)
    loop.start()
    try:
        _attend(loop, on_request, should_stop)
    except BaseException:
        loop.cut()
        raise
    loop.join()
    if loop.error is not None:
        raise loop.error
    return loop.outcome[0]


def _attend(loop: _Loop[T], on_request: OnRequest | None, should_stop: Callable[[], bool] | None) -> None:
    while True:
        if should_stop is not None and should_stop():
            raise BenchStopped("the benchmark was stopped before its end", "", "its results so far enter no average")
        try:
            result = loop.inbox.get(timeout=_POLL_S)
        except queue.Empty:
            continue
        if result is None:
            return
        if on_request is not None:
            on_request(result)
