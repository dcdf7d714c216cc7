"""A unit's log lines, in bounded pieces, read on by cursor."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workers.hosts.helper.context import Context
from workers.hosts.helper.programs import ENVIRONMENT, end, run
from workers.hosts.helper.refusals import REMOTE_COMMAND_FAILED, Refused
from workers.hosts.helper.request import CURSOR, INVOCATION, OUR_UNIT, Fields
from workers.hosts.helper.systemd import living

READ_S = 20.0
SYNC_S = 5.0
ENTRY_BYTES = 8 * 1_048_576
"""The longest entry, as JSON, that is read; of a longer one only the place is kept."""
PIECE_BYTES = 65_536
ITS_CURSOR = re.compile(r'"__CURSOR"\s*:\s*"([^"]{1,500})"')


def journal(context: Context, fields: Fields) -> dict[str, Any]:
    """Lines of one invocation of a unit after a cursor. `gap`: what stood at the cursor is no longer kept, so lines may be missing."""
    unit = context.config.known_unit(str(fields.take("unit")))
    # Empty is what we answer where there is no line yet.
    invocation, cursor = fields.text_or_none("invocation_id", INVOCATION), fields.text_or_none("cursor", CURSOR) or None
    limit_bytes = fields.integer("limit_bytes", 1024, 4 * 1_048_576, 262_144)
    fields.done()
    show = context.systemd.show(unit)
    invocation = invocation or show.get("InvocationID") or None
    if invocation is None:
        return {"lines": [], "cursor": cursor or "", "at_end": True, "gap": False, "invocation_id": ""}
    if not living(show):
        # The last words of a program that died a moment ago are still on their way.
        with contextlib.suppress(Refused):  # a busy disk; then they come with the next piece
            run([context.places.program("journalctl"), "--sync"], SYNC_S)
    present = invocation == show.get("InvocationID")
    began_us = show.get("ExecMainStartTimestampMonotonic", "0") if present else "0"
    one_run = _Run(invocation, context.clock.boot_id().replace("-", ""), int(began_us) if began_us.isdigit() else 0)
    return {**_read(_command(context, unit, invocation, cursor), one_run, cursor, limit_bytes), "invocation_id": invocation}


@dataclass(frozen=True)
class _Run:
    """One run of a unit. `began_us`: when its main process began, monotonic microseconds of this boot; 0 where that is not known."""

    invocation: str
    boot: str
    began_us: int

    def said(self, entry: dict[str, Any]) -> bool:
        """Whether it was this run that logged an entry of its unit.

        A program that is gone before the journal has looked at it leaves lines that name its unit but not its run: there the time tells.
        """
        if entry.get("_PID") == "1":  # asked for by its run
            return True
        run_of_entry = entry.get("_SYSTEMD_INVOCATION_ID")
        if run_of_entry is not None:
            return bool(run_of_entry == self.invocation)
        at = str(entry.get("__MONOTONIC_TIMESTAMP", ""))
        return 0 < self.began_us <= (int(at) if at.isdigit() else 0) and entry.get("_BOOT_ID") == self.boot


def _command(context: Context, unit: str, invocation: str, cursor: str | None) -> list[str]:
    # Each is a whole argument of its form: nothing in it can become another option.
    return [
        context.places.program("journalctl"),
        *("--no-pager", "--quiet", "--output=json", "--all", "--output-fields=MESSAGE,_PID,_SYSTEMD_INVOCATION_ID"),
        *([] if cursor is None else [f"--cursor={cursor}"]),
        f"_SYSTEMD_UNIT={unit}",
        # Units of ours have few runs; those of a listed one may fill the journal, and nobody waits for its very first words.
        *([] if OUR_UNIT.fullmatch(unit) else [f"_SYSTEMD_INVOCATION_ID={invocation}"]),
        # systemd's own words on the unit carry other fields; from anybody but systemd they would be forged.
        *("+", "_PID=1", f"UNIT={unit}", f"INVOCATION_ID={invocation}"),
    ]


def _read(argv: list[str], one_run: _Run, cursor: str | None, limit_bytes: int) -> dict[str, Any]:
    lines: list[str] = []
    size, place, gap, at_end, first = 0, cursor, False, True, True
    try:
        for entry in _entries(argv):
            its_cursor, texts = _parsed(entry, one_run)
            if first and cursor is not None:
                first = False
                if its_cursor == cursor:  # it was read the last time
                    continue
                gap = True
            size += sum(len(text.encode()) + 1 for text in texts)
            if size > limit_bytes and lines:
                at_end = False
                break
            lines += texts
            place = its_cursor or place
    except Refused:
        if not lines:
            raise
        at_end = False  # what was read is worth keeping, the next call goes on behind it
    # Not even the entry at the cursor is there any more.
    gap = gap or (first and cursor is not None)
    return {"lines": lines, "cursor": place or "", "at_end": at_end, "gap": gap}


def _parsed(entry: str, one_run: _Run) -> tuple[str, list[str]]:
    """An entry's cursor and its lines, none where another run has logged it."""
    try:
        value = json.loads(entry)
    except ValueError:
        match = ITS_CURSOR.search(entry)
        return (match.group(1) if match else ""), ["[an entry that is too long is left out]"]
    if not one_run.said(value):
        return str(value.get("__CURSOR", "")), []
    message = value.get("MESSAGE")
    # A field that stands several times is a list of texts, one with control characters a list of bytes.
    several = isinstance(message, list) and not all(isinstance(one, int) for one in message)
    texts = [_message(one) for one in (message if several else [message])]
    # A bar that redraws itself with carriage returns is one line for the journal, and many for people.
    return str(value.get("__CURSOR", "")), [line for text in texts for line in _split(text)]


def _split(text: str) -> list[str]:
    pieces = re.split(r"\r\n|\n|\r", text)
    return [piece for piece in pieces if piece] or [""]


def _message(message: Any) -> str:
    if isinstance(message, list):
        message = bytes(one & 0xFF for one in message if isinstance(one, int)).decode("utf-8", "replace")
    # Half surrogates and NULs are no text to anybody who reads on.
    return str(message or "").encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _entries(argv: list[str]) -> Iterator[str]:
    """What journalctl prints, entry by entry, until nobody wants more. Refused where it fails or is silent for too long."""
    with subprocess.Popen(  # noqa: S603 - an absolute path and words, no shell
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, cwd="/", start_new_session=True
    ) as process:
        try:
            for entry in _lines(process):
                yield entry.decode("utf-8", "replace")
            if process.wait(READ_S) != 0:
                said = process.stderr.read(1000).decode("utf-8", "replace") if process.stderr else ""
                raise Refused(REMOTE_COMMAND_FAILED, f"journalctl ended with status {process.returncode}: {said.strip()}")
        finally:
            end(process)


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    stream = process.stdout
    if stream is None:
        return
    begun, cut = bytearray(), False
    deadline = time.monotonic() + READ_S
    with selectors.DefaultSelector() as waiting:
        waiting.register(stream, selectors.EVENT_READ)
        while True:
            if not waiting.select(max(0.0, deadline - time.monotonic())):
                raise Refused(REMOTE_COMMAND_FAILED, f"journalctl did not answer within {READ_S:.0f} s")
            piece = os.read(stream.fileno(), PIECE_BYTES)
            if not piece:
                return
            *whole, rest = piece.split(b"\n")
            for line in whole:
                # Of one that was cut, not the end: with it, an entry without its middle could pass for a whole one.
                yield bytes(begun if cut else begun + line)
                begun.clear()
                cut = False
            if len(begun) < ENTRY_BYTES:
                begun += rest
            elif rest:
                cut = True
