"""Whether a load moves: by its log, its GPU memory, what its processes read and compute, and by how long such a phase took before.

Time alone says nothing: a load of an hour may be well, and one of five minutes may hang. A sign of progress begins the wait
anew. A phase that is silent by its nature gets longer, as far as history or the processors' time speak for it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from service.domain.clock import span
from workers.engines.base import LoadPhase
from workers.engines.log_line import messages
from workers.hosts.base import Usage
from workers.steps.base import StepContext

LOOK_S = 30.0
"""How often a load that says nothing has its GPU memory looked at, where the limit is not shorter: the tool is slow on a busy host."""
WARN_AT = 0.5
"""A load without a sign of progress is told of after this part of its limit, so that a person may look before it is given up."""
MOVED_MIB = 16
"""Less than this, on a card or read, is no sign that weights arrive."""
MIB = 2**20
COMPUTES = 0.5
"""Processors kept busy, on average since the last sign, by a unit that is at work. Less is what polling costs."""
COMPUTING = frozenset(
    {LoadPhase.TORCH_COMPILE, LoadPhase.PROFILING_WARMUP, LoadPhase.KV_CACHE_INIT, LoadPhase.CUDA_GRAPH_CAPTURE, LoadPhase.WARMUP}
)
"""Phases whose work is to compute. In the others, processors are kept busy by processes that wait for one another as well."""
COMPUTING_TIMES = 3.0
"""How many times its limit such a phase may be silent while it computes. Not for ever: a kernel that hangs spins as well."""
HISTORY_TIMES = 1.5
"""How many times as long as it ever took a phase may be silent."""
REMEMBERED = 1000
SHOWN = 200

IDLE_TALK = re.compile(
    r"No available shared memory broadcast block ?found"  # waits for a process that may hang
    r"|Avg prompt throughput: |SpecDecoding metrics: "  # every ten seconds, whatever happens
    r'|"(?:GET|POST|HEAD) \S+ HTTP/\d(?:\.\d)?" \d{3}'  # an answer to our own question whether it is ready
    r"|done request: (?:GET|POST) /"  # the same in llama.cpp's words
    r"|[Ww]aiting for .{0,60}(?:core engine|engine core|server|worker)"
)
"""What an engine goes on saying while nothing moves."""


class Signs:
    """When there was last a sign of progress, and what was looked at since."""

    def __init__(self, ctx: StepContext, phase: LoadPhase | None) -> None:
        self._ctx = ctx
        self.since = self._looked = ctx.clock.monotonic()
        self._said: OrderedDict[int, None] = OrderedDict()
        self.last_words = ""
        """The last line that told something."""
        self._phase = phase
        self._longest: dict[LoadPhase | None, float | None] = {}
        self._mib: tuple[int | None, ...] | None = None
        self._used: Usage | None = None
        self._used_then: Usage | None = None
        """At the last sign, or at the first look after it."""
        self._told_of: float | None = None
        self._gpus_known: bool | None = None

    def hear(self, lines: Iterable[str], *, moved: bool, phase: LoadPhase | None) -> None:
        """Take in what was logged. `moved`: the engine's reader says that the load is further than before."""
        new = [words for words in _telling(lines) if self._is_new(words)]
        if new:
            self.last_words = new[-1][:SHOWN]
        if new or moved:
            self._sign()
        self._phase = phase

    def see(self, used: Usage | None) -> None:
        """Take in what the unit's processes have used by now."""
        if used is None:
            return
        self._used = used
        then = self._used_then
        if then is None or _fell(then, used):
            self._used_then = used
        elif used.read_bytes is not None and then.read_bytes is not None and used.read_bytes - then.read_bytes >= MOVED_MIB * MIB:
            self._sign()

    def look(self) -> None:
        """Ask for the GPUs' memory where it is due: a silent load that still fills the cards is not stalled."""
        now = self._ctx.clock.monotonic()
        if now - max(self.since, self._looked) < min(LOOK_S, self._ctx.spec.load.stall / 4):
            return
        self._looked = now
        reading = self._ctx.host.gpus()
        self._gpus_known = reading.known and not reading.no_gpus
        if not reading.known:
            return
        used = tuple(gpu.used_mib for gpu in reading.gpus)
        before, self._mib = self._mib, used
        pairs = zip(before or (), used, strict=False)
        if any(old is not None and new is not None and abs(new - old) >= MOVED_MIB for old, new in pairs):
            self._sign()

    @property
    def silent_s(self) -> float:
        """Since the last sign."""
        return self._ctx.clock.monotonic() - self.since

    def limit_s(self) -> float:
        """How long it may be silent in the phase that it is in."""
        limit: float = self._ctx.spec.load.stall
        longest = self._longest_s()
        if longest is not None:
            limit = max(limit, HISTORY_TIMES * longest)
        return max(limit, COMPUTING_TIMES * self._ctx.spec.load.stall) if self._computes() else limit

    def to_tell_of(self) -> bool:
        """Whether this standstill is now to be told of: once, before it is given up."""
        if self._told_of == self.since or self.silent_s <= WARN_AT * self.limit_s():
            return False
        self._told_of = self.since
        return True

    def looked_at(self) -> dict[str, str]:
        """What a person would want to know of how it was found out, by what was looked at."""
        silent = span(self.silent_s)
        last = f"; the last: {self.last_words}" if self.last_words else ""
        busy = self._busy()
        longest = self._longest_s()
        return {
            "log": f"no line that tells progress for {silent}{last}",
            "gpu memory": self._cards(),
            "read": "not known" if (read := self._read_mib()) is None else f"{read:.0f} MiB in {silent}",
            "processors": "not known" if busy is None else f"{busy:.1f} kept busy" + (", it computes" if self._computes() else ""),
            "history": "no such phase was seen here" if longest is None else f"this phase took up to {span(longest)} here",
        }

    def _sign(self) -> None:
        self.since = self._ctx.clock.monotonic()
        self._used_then = self._used

    def _is_new(self, words: str) -> bool:
        """Whether it was not said before, word for word: what is only repeated tells nothing."""
        key = hash(words)
        known = key in self._said
        self._said[key] = None
        self._said.move_to_end(key)
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        return not known

    def _longest_s(self) -> float | None:
        if self._phase not in self._longest:
            self._longest[self._phase] = self._ctx.recorder.longest_s(self._phase)
        return self._longest[self._phase]

    def _computes(self) -> bool:
        busy = self._busy()
        return self._phase in COMPUTING and busy is not None and busy >= COMPUTES

    def _busy(self) -> float | None:
        """Processors kept busy since the last sign, on average."""
        now, then = self._used, self._used_then
        if now is None or then is None or now.cpu_s is None or then.cpu_s is None or self.silent_s <= 0:
            return None
        return max(now.cpu_s - then.cpu_s, 0.0) / self.silent_s

    def _read_mib(self) -> float | None:
        now, then = self._used, self._used_then
        if now is None or then is None or now.read_bytes is None or then.read_bytes is None:
            return None
        return max(now.read_bytes - then.read_bytes, 0) / MIB

    def _cards(self) -> str:
        if self._gpus_known is None:
            return "not looked at yet"
        if not self._gpus_known or self._mib is None:
            return "not known"
        return f"unchanged at {', '.join('?' if mib is None else str(mib) for mib in self._mib)} MiB"


def _telling(lines: Iterable[str]) -> Iterator[str]:
    """The messages that are not said whatever happens, without their prefixes and stamps."""
    for raw in lines:
        for line in messages(raw):
            if not IDLE_TALK.search(line.message):
                yield line.message.strip()


def _fell(then: Usage, now: Usage) -> bool:
    """A process has ended, and took with it what it had used."""
    pairs = ((then.cpu_s, now.cpu_s), (then.read_bytes, now.read_bytes))
    return any(before is not None and after is not None and after < before for before, after in pairs)


def told(signs: Signs, limit_s: float) -> dict[str, Any]:
    """For an event: how long, against which limit, and what was looked at."""
    return {"silent_s": round(signs.silent_s, 1), "limit_s": limit_s, "looked_at": signs.looked_at()}
