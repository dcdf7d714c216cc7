"""A command: a program that does its work and ends. No port, no readiness, no counters; what it logs may tell how far it is."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from service.domain.engine_spec import CommandEngine as CommandSpec
from service.domain.engine_spec import visible_devices
from service.domain.speculation import EngineCounters
from workers.engines.apikey import resolve_env
from workers.engines.base import Launch, LoadLog, Readiness
from workers.engines.endpoint import NoLog
from workers.engines.environment import UNBUFFERED

SHELL = ("/bin/sh", "-eu", "-c")
"""What runs a script: it ends at the first command that fails and at the first variable that is not set."""

LINE_CHARS = 4096
"""So much of a line is looked at for progress."""
LINES = 1000
"""So many of the newest lines are looked at at once."""
SEARCH_S = 5.0
"""A search that takes longer is given up for good."""
TEXT_CHARS = 200

SEARCH = """
import json, re, sys
asked = json.load(sys.stdin)
for line in asked["lines"]:
    found = None
    for found in re.finditer(asked["pattern"], line):
        pass
    if found:
        json.dump({"text": found[0], "groups": found.groups(), "named": found.groupdict()}, sys.stdout)
        break
"""
"""The last match of the first line that has one."""


class CommandEngine:
    """One command, bound to a spec. It listens nowhere, so that nothing about requests applies."""

    kind: str = "command"
    owns_process: bool = True

    def __init__(self, spec: CommandSpec, environ: Mapping[str, str]) -> None:
        self._spec, self._environ = spec, environ

    def launch(self) -> Launch:
        """Command line and environment. Without `cwd` in the spec the folder is the host's to choose."""
        spec = self._spec
        argv = (*SHELL, spec.run) if isinstance(spec.run, str) else tuple(spec.run)
        env = {**UNBUFFERED, **resolve_env(spec.env, self._environ)}
        if spec.gpus != "all":
            env["CUDA_VISIBLE_DEVICES"] = visible_devices(spec.gpus)
            # CUDA's own order is by speed; only this one is the order that nvidia-smi numbers cards in.
            env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        return Launch(argv=argv, env=env, cwd=spec.cwd, port=0)

    def load_log(self) -> LoadLog:
        """Nothing is loaded."""
        return NoLog()

    def api_base(self, address: str) -> str:
        """Nothing is served."""
        return address

    def served_model(self, probe: Readiness) -> str:  # noqa: ARG002 - the seam's signature
        """Nothing is served."""
        return ""

    def probe(self, address: str) -> Readiness:  # noqa: ARG002 - the seam's signature
        """Never ready, since it never serves."""
        return Readiness(ready=False, detail="a command serves nothing")

    def counters(self, address: str) -> Callable[[], EngineCounters | None]:  # noqa: ARG002 - the seam's signature
        """None."""
        return lambda: None

    def headers(self) -> dict[str, str]:
        """None."""
        return {}


@dataclass(frozen=True)
class CommandProgress:
    """How far a command is, by its own words."""

    percent: float | None
    done: float | None
    total: float | None
    text: str

    def shown(self) -> dict[str, Any]:
        """As plain data; a whole number is shown as one."""
        return {key: _whole(value) for key, value in asdict(self).items()}


class ProgressPattern:
    """Looks for `engine.progress` in log lines.

    In a process of its own: a regular expression can take longer than the sun burns, and while it does, no thread of ours runs,
    not even the one that keeps the lease alive. One that is too slow is given up, and `given_up` says so.
    """

    def __init__(self, pattern: str | None, *, search_s: float = SEARCH_S) -> None:
        self._pattern, self._search_s = pattern, search_s
        self.given_up = ""

    def look(self, lines: Sequence[str]) -> CommandProgress | None:
        """The last progress in these lines that can be read; None where there is none."""
        if self._pattern is None or self.given_up or not lines:
            return None
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter
                [sys.executable, "-I", "-S", "-c", SEARCH],
                input=json.dumps({"pattern": self._pattern, "lines": list(islice(newest_first(lines), LINES))}).encode(),
                capture_output=True,
                timeout=self._search_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.given_up = f"engine.progress took longer than {self._search_s:g} s on {LINES} lines or fewer and is no longer looked for"
            return None
        return _read(json.loads(done.stdout)) if done.returncode == 0 and done.stdout else None


def newest_first(lines: Sequence[str]) -> Iterable[str]:
    """Lines from the last, each cut to its first 4 kB. A bar that redraws itself (carriage returns) is several lines."""
    for line in reversed(lines):
        for piece in reversed(line.split("\r")):
            if piece:
                yield piece[:LINE_CHARS]


def _read(found: dict[str, Any]) -> CommandProgress | None:
    named, groups = found["named"], found["groups"]
    progress = CommandProgress(
        percent=_number(named.get("percent") if named else groups[0]),
        done=_number(named.get("done")),
        total=_number(named.get("total")),
        text=found["text"].strip()[:TEXT_CHARS],
    )
    if progress.percent is None and progress.done is not None and progress.total:
        progress = replace(progress, percent=100 * progress.done / progress.total)
    if progress.percent is None:
        return None
    return replace(progress, percent=round(min(max(progress.percent, 0.0), 100.0), 1))


def _number(text: str | None) -> float | None:
    """Such as `45`, `45.2`, `45,2`, `45 %`, `1,234`; None for anything else, infinity included."""
    plain = re.sub(r"[\s%_]", "", text or "")
    thousands = re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+", plain)
    try:
        value = float(plain.replace(",", "" if thousands else "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
