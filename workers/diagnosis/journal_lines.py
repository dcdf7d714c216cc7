"""One entry of a journal, in whatever form it was printed, as what was said and by whom."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

MOST_ENTRY_CHARS = 262_144
"""Of one entry; the rest is left out."""
DAEMONS = frozenset({"systemd", "kernel", "systemd-journald", "systemd-oomd", "systemd-coredump", "earlyoom"})

_TIME = r"(?P<time>\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_STAMPED = re.compile(
    rf"^(?:[^\s\[(:]{{1,14}} ){{0,3}}(?:\d{{4}}-\d\d-\d\d[T ])?{_TIME}(?: [A-Z]{{2,5}})?"
    r" (?:(?P<host>[^\s\[\]():]{1,255}) )?(?P<ident>[^\s\[\]:]{1,64})(?:\[(?P<pid>\d{1,10})\])?: ?(?P<message>.*)$",
    re.DOTALL,
)
_PLAIN = re.compile(
    r"^(?P<ident>[A-Za-z][\w.@:-]{0,63})\[(?P<pid>\d{1,10})\]: ?(?P<message>.*)$|^(?P<daemon>kernel|systemd): (?P<said>.*)$", re.DOTALL
)
_DMESG = re.compile(r"^\[(?: {0,10}\d{1,9}\.\d{3,9}|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\] (?P<message>.*)$", re.DOTALL)
_MONOTONIC = re.compile(
    r"^\[ {0,10}\d{1,9}\.\d{3,9}\] [^\s\[\]():]{1,255} (?P<ident>[^\s\[\]:]{1,64})(?:\[(?P<pid>\d{1,10})\])?: ?(?P<message>.*)$",
    re.DOTALL,
)
"""`journalctl -o short-monotonic`, which looks like dmesg but names the host and who speaks."""
_OF_THE_DRIVER = re.compile(r"^\s*NVRM: ")
"""The kernel prints a message of several lines without repeating its own prefix."""
_CONTAINER = re.compile(
    r"^(?:\[pod/[^\]\s]{1,200}\] |[\w.-]{1,80} +\| )?"
    r"(?:\d{4}-\d\d-\d\dT(?P<time>\d\d:\d\d:\d\d)(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?)?"
)
_TIME_ALONE = re.compile(rf"^{_TIME} (?P<message>\S.*)$", re.DOTALL)
_ENGINE_LINE = re.compile(r"^(?:\([^()]{1,80} pid=\d{1,10}\) ){0,4}(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d ")
_NOT_A_MESSAGE = re.compile(r"^-- .*|^\[\d+(?:\.\d+)?[KM]?B blob data\]$")
_BLOB = re.compile(r"\[\d+(?:\.\d+)?[KM]?B blob data\]\s*$")
_BOOT = re.compile(r"^-- (?:Reboot|Boot [0-9a-f]{8,32}) ?--")
_MICROSECONDS = 1_000_000
_DAY_S = 86_400


@dataclass(frozen=True)
class Entry:
    """What was said. `message` is None where the journal does not hold it any more, or printed something else in its place."""

    message: str | None
    ident: str = ""
    """Who said it, by its syslog identifier; empty where the form does not tell."""
    unit: str = ""
    time_s: float | None = None
    """Seconds; of a day where the form has no date, and then only differences mean anything."""
    is_note: bool = False
    """A line of journalctl's own."""
    rebooted: bool = False
    truncated: bool = False
    dropped: int = 0
    invocation: str = ""
    """Which start of the unit it belongs to, where the form tells."""

    @property
    def by_daemon(self) -> bool:
        """Whether the system speaks, and not a program."""
        return self.ident in DAEMONS


def text_entry(line: str) -> Entry:
    """A line of `journalctl` in one of its text forms, of dmesg, or of a plain log. Months may be of any language."""
    if len(line) > MOST_ENTRY_CHARS:
        line = line[: MOST_ENTRY_CHARS // 2] + "\r" + line[-MOST_ENTRY_CHARS // 2 :]
    if line.startswith(("-- ", "[")) and _NOT_A_MESSAGE.match(line):
        return Entry(None, is_note=True, rebooted=bool(_BOOT.match(line)), truncated="blob data" in line)
    if _ENGINE_LINE.match(line):
        return Entry(line)
    match = _PLAIN.match(line)
    if match is not None:
        return _entry(match["ident"] or match["daemon"], match["message"] if match["ident"] else match["said"], None)
    match = _STAMPED.match(line)
    if match is not None and (match["pid"] is not None or match["ident"] in DAEMONS):
        return _entry(match["ident"], match["message"], seconds_of(match["time"]))
    return _since_boot(line) or _of_a_container(line) or _with_a_time(line)


def _of_a_container(line: str) -> Entry | None:
    """A line in front of which Docker or Kubernetes has put whose it is, or when."""
    match = _CONTAINER.match(line) if line[:2].isdecimal() or " | " in line[:100] or line.startswith("[pod/") else None
    if match is None or not match.end() or match.end() == len(line):
        return None
    found = text_entry(line[match.end() :])
    if found.time_s is None and match["time"] and found.message is not None:
        return replace(found, time_s=seconds_of(match["time"]))
    return found


def _since_boot(line: str) -> Entry | None:
    """A line of dmesg, or one that has the time since boot in front as dmesg's have."""
    if line.startswith("["):
        match = _MONOTONIC.match(line)
        if match is not None and (match["pid"] or match["ident"] in DAEMONS):
            return _entry(match["ident"], match["message"], None)
        match = _DMESG.match(line)
        return Entry(match["message"], "kernel") if match else None
    return Entry(line.strip(), "kernel") if "NVRM: " in line and _OF_THE_DRIVER.match(line) else None


def _with_a_time(line: str) -> Entry:
    match = _TIME_ALONE.match(line)
    return Entry(match["message"], time_s=seconds_of(match["time"])) if match else Entry(line)


def _entry(ident: str, message: str, time_s: float | None) -> Entry:
    blob = bool(_BLOB.match(message))
    return Entry(None if blob else message, ident, time_s=time_s, truncated=blob)


def seconds_of(clock: str) -> float:
    """`09:34:01` as seconds of the day."""
    hours, minutes, seconds = clock.split(":")
    return int(hours) * 3600.0 + int(minutes) * 60.0 + int(seconds)


def between(earlier: float, later: float) -> float:
    """Seconds from one to the other; times of a day may pass midnight once."""
    return later - earlier + (_DAY_S if later < earlier and later < _DAY_S else 0)


def json_entries(line: str) -> Iterator[Entry]:
    """The entries in one line of `journalctl -o json`. A message may be text, a list of bytes, null, or several of these."""
    found = _object(line)
    if found is None:
        yield Entry(None, truncated=True)
        return
    stamp = str(found.get("__REALTIME_TIMESTAMP", ""))
    time_s = int(stamp) / _MICROSECONDS if stamp.isdecimal() and len(stamp) < 20 else None  # noqa: PLR2004 - no date is longer
    ident = str(found.get("SYSLOG_IDENTIFIER") or found.get("_COMM") or "")
    if found.get("_TRANSPORT") == "kernel":
        ident = "kernel"
    unit = str(found.get("_SYSTEMD_UNIT") or found.get("UNIT") or "")
    invocation = str(found.get("_SYSTEMD_INVOCATION_ID") or "")
    dropped = str(found.get("N_DROPPED", ""))
    dropped_count = int(dropped) if dropped.isdecimal() and len(dropped) < 12 else 0  # noqa: PLR2004 - no count is longer
    # Docker's own files have the line, with its end, under another name.
    for index, message in enumerate(_texts(found.get("MESSAGE", found.get("log")))):
        yield Entry(message, ident, unit, time_s, truncated=message is None, dropped=0 if index else dropped_count, invocation=invocation)


def _object(line: str) -> dict[str, Any] | None:
    # `-o json-sse` puts a word in front, `-o json-seq` a control character.
    try:
        found = json.loads(line.removeprefix("data: ").lstrip("\x1e"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _texts(message: object) -> list[str | None]:
    if isinstance(message, str):
        return [message[:MOST_ENTRY_CHARS]]
    if isinstance(message, list) and message and all(isinstance(part, int) and 0 <= part < 256 for part in message):  # noqa: PLR2004
        return [bytes(message[:MOST_ENTRY_CHARS]).decode("utf-8", "replace")]
    if isinstance(message, list) and any(isinstance(part, str | list) for part in message):
        return [
            text
            for part in message[:64]
            if not isinstance(part, dict)
            for text in (_texts(part) if isinstance(part, str | list) else [None])
        ]
    return [None]
