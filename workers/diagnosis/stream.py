"""A long journal read in bounded memory: only the lines that could matter are looked at closely."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from workers.diagnosis.digest import LONGEST_REMEMBERED, digest, digest_bytes, digest_entry
from workers.diagnosis.journal import Journal
from workers.diagnosis.journal_lines import json_entries
from workers.diagnosis.looks import Look, look_of
from workers.diagnosis.pulse import Pulse

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 18
"""Bytes of one line that are looked at; of a longer one its beginning and its end."""
TAIL_BYTES = 1 << 17
"""Of the end, every line is looked at: whether it still lives is told there."""

RARE = (
    b"Application", b"Available KV",
    b"Boot ", b"Exception", b"Journal beg", b"Logs begin", b"No entries", b"Reboot", b"SIGINT", b"SIGTERM",
    b"Address", b"API server", b"Async sch", b"CRITICAL", b"Captur", b"Compiling", b"Cache the",
    b"Deactivated", b"Dynamo", b"Directly load", b"Decode batch", b"Default", b"ERROR", b"Failed ", b"Found left", b"Graph capt",
    b"Gracefully", b"GPU at", b"GPU is", b"GPU has", b"Health check", b"Initial profil", b"Initializing a", b"Killed", b"KV cache size",
    b"KV Cache is", b"KeyboardI", b"Loading ", b"Load ", b"Loaded ", b"Main process", b"Memory", b"Model load", b"Model arch",
    b"Model Runner", b"Multi-thread", b"NVRM", b"No available", b"N_DROPPED", b"NCCL WARN", b"OOM", b"Out of mem", b"Prefetch",
    b"Process ", b"Processes ", b"Received sig", b"Rank ", b"Resolved arch", b"RPC call", b"Referenced", b"SpecDec", b"Speculative m",
    b"Suppressed", b"Starting ", b"Started ", b"Stopping ", b"Stopped ", b"Scheduled ", b"Scheduler", b"Shutting", b"Start req", b"State '",
    b"ServerArgs", b"The server", b"Terminating", b"Timed out", b"Using V", b"Using max", b"Using the", b"Uvicorn run", b"Unit ",
    b"WARN", b"Waiting for app", b"Watchdog", b"Xid", b"%|",
)  # fmt: skip
"""Words in lines that matter, which begin with a letter that is rare in a log: a scan costs what its first letters cost."""


def _by_first_letter(words: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """One pattern for all words that looks at the rest of a word only where its first letter stands."""
    rests: dict[bytes, list[bytes]] = {}
    for word in words:
        rests.setdefault(word[:1], []).append(re.escape(word[1:]))
    return re.compile(b"|".join(re.escape(first) + b"(?:" + b"|".join(rest) + b")" for first, rest in rests.items()))


TRIGGER = _by_first_letter(RARE)
ALWAYS = (
    b"rror",
    b"non-default",
    b"kernel: ",
    b"torch.compile",
    b"init engine",
    b"not found",
    b" version ",
)
"""Words for which whole blocks are searched, which is faster still."""
ANSWERED = b" 200 OK"
FEW = 5
"""One line in so many."""
OF_JSON = (b'"MESSAGE":[', b'"MESSAGE":null', b'"MESSAGE" : [', b'"MESSAGE" : null', b'"kernel"')
OF_UNKNOWN = (
    b"failed to",
    b"cudaMalloc",
    b"acceptance",
    b"couldn't",
    b"......",
    b"llama_",
    b"load_",
    b"main: ",
    b"build: ",
    b"max_total_num",
    b"model loaded",
    b"slots",
)


class Readable(Protocol):
    """Bytes, piece by piece."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""


class Ahead:
    """A stream whose beginning was read already."""

    def __init__(self, start: bytes, stream: Readable) -> None:
        self._start, self._stream = start, stream

    def read(self, size: int, /) -> bytes:
        """First what was read already."""
        if self._start:
            piece, self._start = self._start[:size], self._start[size:]
            return piece
        return self._stream.read(size)


def read_stream(stream: Readable, kind: str | None = None) -> Journal:
    """Read a journal to its end: text in any form, or `journalctl -o json`."""
    journal = Journal(kind, attends=False)
    as_json: bool | None = None
    lines = 0
    tail = b""
    for block in _blocks(stream):
        as_json = _is_json(block) if as_json is None else as_json
        lines += block.count(b"\n")
        found = _lines_of(_without_answers(block), _words(journal, as_json=as_json))
        if as_json:
            for line in found:
                journal.feed_json(line.decode("utf-8", "replace"))
        else:
            _feed(journal, found)
        tail = block if len(block) >= TAIL_BYTES else (tail + block)[-2 * TAIL_BYTES :]
    _look_at_the_tail(journal, tail, as_json=bool(as_json))
    journal.engine_messages += max(lines - journal.entries, 0)
    return journal


def _feed(journal: Journal, lines: Iterable[bytes]) -> None:
    for line in lines:
        if len(line) <= LONGEST_REMEMBERED:
            journal.take(digest_bytes(line))
        else:
            journal.feed_text(line.decode("utf-8", "replace"))


def _words(journal: Journal, *, as_json: bool) -> tuple[bytes, ...]:
    words = ALWAYS if journal.attempt.log.engine == "vllm" else (*ALWAYS, *OF_UNKNOWN)
    return (*words, *OF_JSON) if as_json else words


def _look_at_the_tail(journal: Journal, tail: bytes, *, as_json: bool) -> None:
    """Signs of life by every line of the end, the dull ones too."""
    pulse = Pulse()
    last = ""
    for line in tail[-TAIL_BYTES:].split(b"\n")[1 if len(tail) > TAIL_BYTES else 0 :]:
        text = _cut(line).decode("utf-8", "replace")
        if not text.strip():
            continue
        for found in [digest_entry(entry) for entry in json_entries(text)] if as_json else [digest(text)]:
            for message in found.messages:
                pulse.take(message)
                last = message.line.message
                if message.talk and not journal.attempt.progress.started_serving:
                    # What it says in passing while it serves is all there is where the log's beginning is not there.
                    journal.take(found)
    if journal.attempt.lines or journal.notices:
        journal.attempt.pulse = pulse
    journal.last_message = last[:300] or journal.last_message


def _is_json(block: bytes) -> bool:
    first = next((line for line in block[:65_536].split(b"\n") if line.strip()), b"")
    return first.lstrip().startswith(b"{") and look_of(first.decode("utf-8", "replace")) is Look.ENTRY


def _blocks(stream: Readable) -> Iterator[bytes]:
    """Blocks that end at a line's end. A line that is longer than a block is cut in its middle."""
    rest = b""
    while chunk := stream.read(BLOCK_BYTES):
        block = rest + chunk
        end = block.rfind(b"\n") + 1
        if end:
            yield block[:end]
            rest = block[end:]
        elif len(block) > 2 * LONGEST_LINE:
            rest = block[:LONGEST_LINE] + b"\r" + block[-LONGEST_LINE:]
        else:
            rest = block
    if rest:
        yield rest


def _lines_of(block: bytes, words: tuple[bytes, ...]) -> Iterator[bytes]:
    """The lines of a block that could matter, in order, each once."""
    begins: dict[int, int] = {}
    for word in words:
        _find(block, word, begins)
    at = 0
    while (match := TRIGGER.search(block, at)) is not None:
        at = _note(block, match.start(), begins)
    for begin in sorted(begins):
        yield _cut(block[begin : begins[begin]])


def _without_answers(block: bytes) -> bytes:
    """The block without the lines that a busy server's log mostly consists of; where there are few, taking them out costs more."""
    if block.count(ANSWERED) * FEW < block.count(b"\n"):
        return block
    return b"\n".join([line for line in block.split(b"\n") if ANSWERED not in line])


def _find(block: bytes, word: bytes, begins: dict[int, int]) -> None:
    at = block.find(word)
    while at >= 0:
        at = block.find(word, _note(block, at, begins))


def _note(block: bytes, at: int, begins: dict[int, int]) -> int:
    """Remember the line around a place; where the next one begins."""
    begin = block.rfind(b"\n", 0, at) + 1
    end = block.find(b"\n", at)
    end = len(block) if end < 0 else end
    begins[begin] = end
    return end + 1


def _cut(line: bytes) -> bytes:
    return line if len(line) <= 2 * LONGEST_LINE else line[:LONGEST_LINE] + b"\r" + line[-LONGEST_LINE:]
