"""One raw line, taken apart once: logs repeat themselves, so the last few thousand lines are remembered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from workers.diagnosis.journal_lines import Entry, seconds_of, text_entry
from workers.engines.log_line import Line, messages
from workers.engines.ngram_family import speculative_method
from workers.engines.spec_lines import spec_line

REMEMBERED = 4096
LONGEST_REMEMBERED = 2048

NOTICE = re.compile(r"No available shared memory broadcast block ?found ?in \d+ second")
_THROUGHPUT = re.compile(r"Avg generation throughput: ([\d.]{1,12}) tokens/s, Running: (\d{1,9}) reqs")
_ANSWERED = re.compile(r'"(?:GET|POST|HEAD|PUT|DELETE|OPTIONS) \S{1,400} HTTP/\d(?:\.\d)?" \d{3}')
_LOOKS_LEVELLED = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d")
_SUPPRESSED = re.compile(r"Suppressed (\d{1,12}) messages? from")
_BANNERS = ("vLLM API server version", "server_args=ServerArgs(", "non-default args: ")
_LOADS = ("Starting to load model", "LLM engine (v", "Load weight begin", "load_model: loading model", "main: loading model")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d$")


@dataclass(frozen=True)
class Message:
    """A message and all that can be told of it without knowing what came before."""

    line: Line
    time_s: float | None
    notice: bool = False
    """A process waits for another, and says so once a minute."""
    talk: bool = False
    """Said in the same way whether anything moves or not."""
    stuck: bool | None = None
    """Of a report of throughput: requests run and no token came; None for any other message."""
    spec: dict[str, Any] | None = None
    method: str | None = None
    level_missed: bool = False
    banner: bool = False
    """An engine begins: the lines by which it repeats its version and its arguments."""
    begins: bool = False
    """A banner, or a model begins to be loaded, which an engine that serves does not do again."""
    quiet: bool = True
    """Nothing of the four above: only the engine's own rules may make something of it."""


@dataclass(frozen=True)
class Digest:
    """An entry and its messages."""

    entry: Entry
    messages: tuple[Message, ...]
    dropped: int = 0
    """Lines that journald says it has thrown away."""
    plain: bool = False
    """Nothing but what a program said: neither journald's notes nor the system have to be thought of."""


def digest(text: str) -> Digest:
    """A line of text, taken apart."""
    return _remembered(text) if len(text) <= LONGEST_REMEMBERED else digest_entry(text_entry(text))


@lru_cache(maxsize=REMEMBERED)
def _remembered(text: str) -> Digest:
    return digest_entry(text_entry(text))


def digest_entry(entry: Entry) -> Digest:
    """An entry, taken apart. What the system says is kept whole."""
    if entry.message is None:
        return Digest(entry, (), entry.dropped)
    match = _SUPPRESSED.search(entry.message) if "Suppressed " in entry.message and not entry.dropped else None
    dropped = int(match[1]) if match else entry.dropped
    if entry.by_daemon:
        return Digest(entry, (), dropped)
    found = tuple(_message(line, entry) for line in messages(entry.message))
    return Digest(entry, found, dropped, plain=bool(found) and not dropped and not entry.invocation)


@lru_cache(maxsize=REMEMBERED)
def digest_bytes(line: bytes) -> Digest:
    """A line of text as it came, taken apart; for lines of at most LONGEST_REMEMBERED bytes."""
    return digest_entry(text_entry(line.decode("utf-8", "replace")))


def _message(line: Line, entry: Entry) -> Message:
    said = line.message
    # Looking for a word costs a hundredth of looking for a pattern, and most lines have none of these.
    throughput = _THROUGHPUT.search(said) if "generation throughput" in said else None
    stuck = float(throughput[1].rstrip(".") or 0) == 0 and int(throughput[2]) > 0 if throughput and throughput[1].count(".") < 2 else None  # noqa: PLR2004
    clock = _CLOCK.search(line.stamp or "")
    spec = spec_line(said) if "accept" in said or "metrics: " in said else None
    method = speculative_method(said) if "method" in said else None
    level_missed = line.level is None and bool(_LOOKS_LEVELLED.search(said))
    banner = any(words in said for words in _BANNERS)
    return Message(
        line=line,
        time_s=entry.time_s if entry.time_s is not None else seconds_of(clock[0]) if clock else None,
        notice="shared memory broadcast" in said and bool(NOTICE.search(said)),
        talk=throughput is not None or (" HTTP/" in said and bool(_ANSWERED.search(said))),
        stuck=stuck,
        spec=spec,
        method=method,
        level_missed=level_missed,
        banner=banner,
        begins=banner or any(words in said for words in _LOADS),
        quiet=spec is None and method is None and not level_missed and not banner,
    )
