"""Tells the files apart, and reads the one that is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from service.domain.errors import UsageError
from service.domain.measurement import BENCH_SCHEMA, BenchReport
from workers.bench.imports import aiperf, guidellm, vllm
from workers.bench.imports.base import Imported, ImportedPhase

KNOWN = "vllm bench serve --save-result, guidellm's benchmarks.json, aiperf's profile_export_aiperf.json or .jsonl, expctl bench --output"
_MOST_BYTES = 1 << 30
_READERS: tuple[tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], Imported]], ...] = (
    (vllm.is_one, vllm.read),
    (guidellm.is_one, guidellm.read),
    (aiperf.is_one, aiperf.read),
)
"""Whether a JSON object is of a tool, and what it says."""


def read_file(path: Path) -> list[Imported]:
    """What a file holds; of a file with a result a line, one for each. UsageError where it is none that is known."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is too large", "more than 1 GiB", "import the tool's summary instead")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read", error.strerror or str(error), "give the path of a result file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8", str(error), f"known are: {KNOWN}") from None
    values = _values(text, path)
    try:
        if values and all(aiperf.is_line(value) for value in values):
            found = [aiperf.read_lines(values)]
        else:
            found = [_read(value, path) for value in values]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is not as its tool writes it", f"{type(error).__name__}: {error}", f"known are: {KNOWN}") from None
    return [one.model_copy(update={"file": str(path)}) for one in found]


def _values(text: str, path: Path) -> list[dict[str, Any]]:
    """One JSON object, or one a line."""
    try:
        whole = [json.loads(text)]
    except (ValueError, RecursionError):
        try:
            whole = [json.loads(line) for line in text.split("\n") if line.strip()]
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not JSON", str(error), f"known are: {KNOWN}") from None
    if len(whole) == 1 and isinstance(whole[0], list):
        whole = whole[0]
    if not whole or not all(isinstance(value, dict) for value in whole):
        raise UsageError(f"{path} holds no result", "it is no JSON object", f"known are: {KNOWN}")
    return whole


def _read(value: dict[str, Any], path: Path) -> Imported:
    if value.get("schema") == BENCH_SCHEMA:
        return _ours(value, path)
    read = next((read for is_one, read in _READERS if is_one(value)), None)
    if read is None:
        keys = ", ".join(list(value)[:6]) or "none"
        raise UsageError(f"{path} is no result that expctl knows", f"its first keys: {keys}", f"known are: {KNOWN}")
    return read(value)


def _ours(value: dict[str, Any], path: Path) -> Imported:
    try:
        report = BenchReport.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path} is not as expctl bench writes it", f"{where}: {first['msg']}", "measure again") from None
    phases = [
        ImportedPhase(concurrency=phase.concurrency, requests=phase.requests, summary=phase.summary, speculation=phase.speculation)
        for phase in report.phases
    ]
    return Imported(source="expctl bench", source_version=report.client.version, label=report.label, model=report.model, phases=phases)
