"""One line of an engine's log as messages: prefixes, redrawn bars and colours taken off."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST_CHARS = 4096
"""Of one message; what tells a cause stands at its beginning, and rules cost time by length."""
MOST_FRAMES = 65_536
"""Characters of one raw line that are kept, counted from its end where bars redraw themselves."""

_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL"
_LEVEL_WORDS = tuple(f"{word} " for word in _LEVELS.split("|"))
_STAMP = r"\d\d-\d\d \d\d:\d\d:\d\d"
_PREFIX = re.compile(
    r"^(?:\((?P<process>[^()]{1,80}?) pid=(?P<pid>\d{1,10})\) )*"
    # V0 wrote the place without its opening bracket, and some lines of it have no place at all.
    rf"(?:(?P<level>{_LEVELS}) (?P<stamp>{_STAMP}) (?:\[(?P<source>[^\]]{{0,200}})\] ?|(?P<v0_source>\w[\w./]{{0,100}}:\d{{1,6}})\] ?)?)?"
)
_SGLANG = re.compile(
    r"^\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?P<tags>(?: (?:DP|TP|PP|EP|ATTN_\w{1,4}|MOE_\w{1,4})\d{1,4}){0,6})\] ?"
    rf"(?:(?P<level>{_LEVELS})[: ] ?)?"
)
_UVICORN = re.compile(r"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL): {2,6}")
_GLUED = re.compile(rf"(?:\([^()]{{1,80}}? pid=\d{{1,10}}\) )*(?:{_LEVELS}) {_STAMP} \[")
_AT_A_LEVEL = re.compile(rf"(?:{_LEVELS}) \d\d-")
_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]{0,30}[ -/]{0,3}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class Line:
    """One message without its prefixes. `level` is None for what was printed past the logger: bars, uvicorn, tracebacks."""

    level: str | None
    message: str
    process: str | None = None
    """Who says so, by the innermost prefix, such as `Worker_TP1`."""
    pid: int | None = None
    source: str | None = None
    stamp: str | None = None


def messages(raw: str) -> Iterator[Line]:
    """The messages in one line of the log.

    A bar redraws itself with carriage returns, so that a whole graph capture is one line; and another process may write its
    own message right behind a bar's last frame.
    """
    if len(raw) > MOST_FRAMES:
        raw = raw[:MOST_CHARS] + "\r" + raw[-MOST_FRAMES:]
    if "\x1b" in raw:
        raw = _COLOUR.sub("", raw)
    for frame in raw.split("\r"):
        for part in _parts(frame[:MOST_FRAMES]):
            line = _line(part)
            if line is not None:
                yield line


def _parts(frame: str) -> Iterator[str]:
    """The frame, cut where a second message begins in the middle of it."""
    begin = 0
    # Counting words costs a fraction of looking for the pattern, and most lines have one level at most.
    levels = sum(map(frame.count, _LEVEL_WORDS))
    if (levels > 1 and len(_AT_A_LEVEL.findall(frame)) > 1) or (levels and "|" in frame and _AT_A_LEVEL.search(frame)):
        for match in _GLUED.finditer(frame):
            if match.start() > begin:
                yield frame[begin : match.start()]
                begin = match.start()
    yield frame[begin:]


def _line(part: str) -> Line | None:
    match = _SGLANG.match(part) if part.startswith("[") else _PREFIX.match(part)
    if match is None:
        match = _PREFIX.match(part)
    if match is None:
        return None
    message = part[match.end() : match.end() + MOST_CHARS].rstrip()
    if not message.isprintable():
        message = _CONTROL.sub("", message)
    if not message.strip():
        return None
    found = match.groupdict()
    process = found.get("process") or "_".join((found.get("tags") or "").split()) or None
    pid = found.get("pid")
    return Line(
        level=_level(found.get("level")),
        message=message,
        process=process,
        pid=int(pid) if pid else None,
        source=found.get("source") or found.get("v0_source"),
        stamp=found.get("stamp"),
    )


def _level(word: str | None) -> str | None:
    return "WARNING" if word == "WARN" else word


def printed_level(message: str) -> str | None:
    """The level of a line of uvicorn's own, such as `ERROR:    [Errno 98] ...`."""
    match = _UVICORN.match(message)
    return match["level"] if match else None
