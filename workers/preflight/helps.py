"""What an engine's program says of its own arguments, asked once a version and kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.engines.vllm_help import HelpOption, parse_help
from workers.hosts.base import Host

WITHIN_S = 90.0
"""vLLM imports half of Python first: ten seconds where its files are in memory, a minute where they come from a slow disk."""
WIRE_S = 10.0
ASK = ("--help=all", "--help")
"""The second, for versions that do not know the first."""


@dataclass(frozen=True)
class Help:
    """The options of one program; none where they could not be had, and why."""

    options: Mapping[str, HelpOption]
    why: str = ""


class HelpCache:
    """Answers by program, size, time and version, in files that anybody may delete."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def of(self, host: Host, command: Sequence[str], mark: str, user: str | None) -> Help:
        """What `command --help=all` lists on the host. HostError where the host does not answer."""
        kept = self._read(host.name, command, mark)
        if kept is None:
            kept = _asked(host, command, user)
            if kept.get("lasting"):
                self._write(host.name, command, mark, kept)
        return Help(parse_help(str(kept.get("text") or "")), str(kept.get("why") or ""))

    def _file(self, host: str, command: Sequence[str], mark: str) -> Path | None:
        name = hashlib.sha256(json.dumps([host, list(command), mark]).encode()).hexdigest()
        return None if self._folder is None else self._folder / f"{name}.json"

    def _read(self, host: str, command: Sequence[str], mark: str) -> dict[str, Any] | None:
        file = self._file(host, command, mark)
        try:
            found = None if file is None else json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _write(self, host: str, command: Sequence[str], mark: str, kept: Mapping[str, Any]) -> None:
        file = self._file(host, command, mark)
        if file is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(kept), encoding="utf-8")
        fresh.replace(file)


def _asked(host: Host, command: Sequence[str], user: str | None) -> dict[str, Any]:
    """As it is kept. `lasting`: the program has answered, one way or the other, and would answer so again."""
    told: Mapping[str, Any] = {}
    for word in ASK:
        question = {"user": user, "help_of": [*command, word], "within_s": WITHIN_S}
        told = host.look(question, WITHIN_S + WIRE_S)["help"]
        if told.get("status") == 0 and parse_help(told["text"]):
            return {"text": told["text"], "lasting": True}
        if "status" not in told:
            break
    last = str(told.get("error") or "").strip().rpartition("\n")[2][:200]
    why = told.get("why") or f"it ended with status {told.get('status')}{f': {last}' if last else ''}"
    return {"why": f"{' '.join(command)} {ASK[0]}: {why}", "lasting": "status" in told}
