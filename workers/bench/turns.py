"""Short turns of the event loop, so that no socket waits long for its stamp.

Reads are stamped when asyncio hands them over, and asyncio looks at the sockets once in each turn of its loop. So whatever else is
done in a turn delays the stamps of all that comes meanwhile: with hundreds of streams that is most of a client's own error. Here
parsing gets a short while of each turn, and of the streams that ended together one opens its next connection.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

SLICE_S = 0.0004
"""How long a turn of the loop may parse; the last piece of it may take it beyond."""


class Turns:
    """What waits in one event loop, in the order it came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parses: deque[Callable[[], None]] = deque()
        self._openings: deque[asyncio.Future[None]] = deque()
        self._due = False

    def parse(self, work: Callable[[], None]) -> None:
        """Call `work` soon; it must not raise."""
        self._parses.append(work)
        self._call()

    async def opening(self) -> None:
        """Wait until it is the caller's turn to open a connection."""
        mine = self._loop.create_future()
        self._openings.append(mine)
        self._call()
        await mine

    def _call(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._due = False
        until = time.perf_counter() + SLICE_S
        while self._parses:
            self._parses.popleft()()
            if time.perf_counter() >= until:
                break
        else:
            # Stamps come first, then what they mean, and only then what follows from it.
            while self._openings and (mine := self._openings.popleft()):
                if not mine.done():
                    mine.set_result(None)
                    break
        if self._parses or self._openings:
            self._call()


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """Those of a loop."""
    if loop not in _TURNS:
        _TURNS[loop] = Turns(loop)
    return _TURNS[loop]
