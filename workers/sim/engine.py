"""Tokens at their times: the simulated model behind the HTTP routes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from workers.sim.acceptance import hash_unit, request_offset, steps
from workers.sim.metrics import Metrics
from workers.sim.profile import Profile, PromptProfile

PHRASES = (
    "the step holds when both sides agree so we check each case again and then count what is left before moving on",
    "first note that a value may change while another reads it which means order matters here thus keep one writer",
    "write it down compare with what was given if they differ look back else continue until nothing remains to do",
)
WORDS = [word for phrase in PHRASES for word in phrase.split()]
OPENING = "[simulated]"
BLOCK = 16


@dataclass(frozen=True)
class Ask:
    """One request, as far as the simulation cares."""

    text: str
    """The user's words: they choose the entry of the profile."""
    prompt_tokens: int
    max_tokens: int
    ignore_end: bool
    reasons: bool
    """Chat requests think first; plain completions do not."""
    ordinal: int = 0
    """Which request for this text it is; set when it begins."""
    salt: str = ""
    """Prompts of another salt are not found in the prefix cache."""

    @property
    def is_probe(self) -> bool:
        """A single token: a readiness probe, which neither warms the engine nor counts for faults."""
        return self.max_tokens == 1


@dataclass(frozen=True)
class Piece:
    """What one engine step gave: tokens `first` to `last` (exclusive) of the answer."""

    first: int
    last: int
    finish: str | None


class SimEngine:
    """Runs requests side by side and counts what it does."""

    def __init__(self, profile: Profile, metrics: Metrics, seed: int, *, prefix_caching: bool) -> None:
        self.profile = profile
        self.metrics = metrics
        self.seed = seed + profile.seed
        self.prefix_caching = prefix_caching
        self.requests = 0
        """Requests so far, probes left out."""
        self._warm = False
        self._asked: Counter[str] = Counter()
        self._prefixes: set[tuple[str, str]] = set()

    def number_request(self, ask: Ask) -> int:
        """The request's number, from 1; 0 for a probe."""
        if ask.is_probe:
            return 0
        self.requests += 1
        return self.requests

    async def run(self, ask: Ask, is_gone: Callable[[], bool]) -> AsyncIterator[Piece]:
        """Pieces of the answer, each at its time on the monotonic clock. Ends with a finish reason, or early when the client `is_gone`."""
        entry = self.profile.for_text(ask.text)
        ordinal = self._asked[ask.text]
        if not ask.is_probe:
            self._asked[ask.text] += 1
        self.metrics.running += 1
        finish: str = "abort"
        try:
            async for piece in self._pieces(ask, entry, ordinal):
                if is_gone():
                    return
                self.metrics.counters.generation_tokens += piece.last - piece.first
                finish = piece.finish or finish
                yield piece
        finally:
            self.metrics.running -= 1
            self.metrics.counters.finished[finish] += 1

    async def _pieces(self, ask: Ask, entry: PromptProfile, ordinal: int) -> AsyncIterator[Piece]:
        end = ask.max_tokens if ask.ignore_end else min(ask.max_tokens, entry.total_tokens)
        reason = "length" if end == ask.max_tokens else "stop"
        due = time.monotonic() + self._first_token_after(ask, entry)
        self._count_prompt(ask)
        await _sleep_until(due)
        yield Piece(0, 1, reason if end == 1 else None)  # from the prefill alone: no draft
        done, drafts = 1, self.metrics.draft_length
        offset = request_offset(self.seed, entry.id if entry.match else ask.text, ordinal)
        process = steps(entry.positions(drafts), entry.coverage, offset, drafts=drafts > 0)
        while done < end:
            step = next(process)
            # From the planned time of the step before, not from when this task woke: errors do not add up.
            due += entry.verifying_step_s(step.drafted) * self.profile.crowding(self.metrics.running)
            await _sleep_until(due)
            self.metrics.counters.count_step(step)
            last = min(end, done + step.accepted + 1)
            yield Piece(done, last, reason if last == end else None)
            done = last

    def _first_token_after(self, ask: Ask, entry: PromptProfile) -> float:
        if self._warm or ask.is_probe:
            return entry.ttft_s
        self._warm = True
        return max(entry.ttft_s, self.profile.first_request_ttft_s)

    def _count_prompt(self, ask: Ask) -> None:
        counters = self.metrics.counters
        counters.prompt_tokens += ask.prompt_tokens
        if not self.prefix_caching:
            return
        counters.prefix_queries += ask.prompt_tokens
        if (ask.salt, ask.text) in self._prefixes:
            counters.prefix_hits += (ask.prompt_tokens - 1) // BLOCK * BLOCK
        self._prefixes.add((ask.salt, ask.text))


async def _sleep_until(due: float) -> None:
    await asyncio.sleep(max(0.0, due - time.monotonic()))


class Answer:
    """The words of an answer. They depend on the prompt only: speculation and seeds change when tokens come, never which."""

    def __init__(self, ask: Ask, entry: PromptProfile) -> None:
        self.reasoning = entry.reasoning_tokens if ask.reasons else 0
        self._key = int(hash_unit(ask.text) * 2**32)

    def token(self, index: int) -> int:
        """Id of a token: 0 opens the thinking and the answer proper."""
        if index in {0, self.reasoning}:
            return 0
        return 1 + ((self._key + index * index * 2654435761 + index * 40503) >> 7) % len(WORDS)

    def tokens(self, piece: Piece) -> list[int]:
        """Ids of a piece."""
        return [self.token(index) for index in range(piece.first, piece.last)]

    def split(self, piece: Piece) -> tuple[str, str]:
        """Thinking and answer of a piece; one that straddles the border has both."""
        border = min(max(piece.first, self.reasoning), piece.last)
        return self._words(piece.first, border), self._words(border, piece.last)

    def reasoning_tokens(self, tokens: int) -> int:
        """How many of the first `tokens` are thinking."""
        return min(tokens, self.reasoning)

    def _words(self, first: int, last: int) -> str:
        return "".join(self._word(index) for index in range(first, last))

    def _word(self, index: int) -> str:
        token = self.token(index)
        word = OPENING if token == 0 else WORDS[token - 1]
        return word if index in {0, self.reasoning} else f" {word}"


def prompt_ids(text: str, count: int) -> list[int]:
    """Made-up ids of a prompt."""
    base = int(hash_unit(text) * 2**20)
    return [(base + index * 7919) % 100_000 for index in range(count)]
