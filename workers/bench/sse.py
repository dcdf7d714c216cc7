"""Server-sent events from bytes as they arrive, by the rules of the HTML standard."""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event, with the time of the read that completed it."""

    data: str
    at: float
    name: str = "message"


class SseDecoder:
    """Takes bytes split anywhere, also inside a character or between CR and LF."""

    def __init__(self) -> None:
        self._rest = b""
        self._skip_lf = False
        self._first_line = True
        self._data: list[bytes] = []
        self._error: list[bytes] = []
        self._name = b""
        self._at = 0.0

    def feed(self, data: bytes, at: float) -> list[Event]:
        """The events that these bytes complete."""
        self._at = at
        if (whole := self._one_event(data)) is not None:
            return [Event(whole, at)]
        if self._skip_lf and data:
            # The CR that ended the last read has ended its line at once: its event must not wait for a LF that may never come.
            self._skip_lf = False
            data = data.removeprefix(b"\n")
        seen = len(self._rest)
        buffer = self._rest + data
        events: list[Event] = []
        start = 0
        # What was left over holds no line end, so the search begins behind it.
        for match in _LINE_END.finditer(buffer, seen):
            self._line(buffer[start : match.start()], at, events)
            start = match.end()
        self._rest = buffer[start:]
        self._skip_lf = start == len(buffer) and buffer.endswith(b"\r")
        return events

    def _one_event(self, data: bytes) -> str | None:
        """The usual read, which is exactly one event of one line; None for any other, and in the middle of something."""
        if not data.startswith(b"data: ") or not data.endswith(b"\n\n") or data.find(b"\n") != len(data) - 2 or b"\r" in data:
            return None
        if self._rest or self._data or self._error or self._name or self._skip_lf:
            return None
        self._first_line = False
        return data[6:-2].decode("utf-8", "replace")

    def close(self) -> list[Event]:
        """The last event, where the stream ended without the blank line behind it; its time is that of the last read."""
        events: list[Event] = []
        if self._rest:
            self._line(self._rest, self._at, events)
            self._rest = b""
        self._dispatch(self._at, events)
        return events

    def _line(self, line: bytes, at: float, events: list[Event]) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(at, events)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif field == b"error":
            # No field of the standard: older llama.cpp servers report a failure in it.
            self._error.append(value)

    def _dispatch(self, at: float, events: list[Event]) -> None:
        """A block without data gives no event, whatever else it held (a comment, an id)."""
        name = self._name.decode("utf-8", "replace") or "message"
        self._name = b""
        if self._error:
            events.append(Event(b"\n".join(self._error).decode("utf-8", "replace"), at, "error"))
            self._error = []
        if self._data:
            events.append(Event(b"\n".join(self._data).decode("utf-8", "replace"), at, name))
            self._data = []
