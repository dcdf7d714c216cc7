"""What an imported file becomes, and what the readers share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from service.domain.measurement import Distribution, PhaseSummary, RequestResult
from service.domain.reasons import Reason
from service.domain.records import Record
from service.domain.speculation import Speculation

SCHEMA = "expctl.import/1"

NO_END = "the tool does not look at how a stream ended: an answer that broke off may be among those it counts as successes"


class ImportedPhase(Record):
    """One run of the tool at one load."""

    concurrency: int | None
    """Requests in flight at most; None where the tool sent at a rate instead."""
    request_rate: float | None = None
    """Requests/s that were started; None where as many as allowed were in flight all the time."""
    requests: list[RequestResult] = Field(default_factory=list)
    """Empty where the file holds summaries only."""
    summary: PhaseSummary
    speculation: Speculation | None = None


class Imported(Record):
    """A file of another tool. Names and units are those of `expctl bench`; what the file does not tell is null."""

    schema_: str = Field(default=SCHEMA, alias="schema", serialization_alias="schema")
    file: str = ""
    source: str
    source_version: str | None = None
    label: str | None = None
    model: str | None = None
    phases: list[ImportedPhase]
    notes: list[str] = Field(default_factory=list)
    """Where the tool's words mean something else than ours, and what became of them."""


def request(index: int, *, ok: bool, why: str | None = None, **times: float | None) -> RequestResult:
    """A request from its times (`ttft_s`, `ttfa_s`, `e2e_s`, seconds) and token counts; the paces follow from our own definitions.

    A success without a token is none by ours.
    """
    given = {name: value for name, value in times.items() if value is not None}
    tokens = count(given.pop("completion_tokens", None))
    ttft, e2e = given.get("ttft_s"), given.get("e2e_s")
    empty = ok and tokens == 0
    span = e2e - ttft if ttft is not None and e2e is not None else 0.0
    steps = tokens - 1 if ok and tokens is not None and tokens > 1 and span > 0 else None
    return RequestResult(
        prompt=f"request-{index}",
        repeat=0,
        ok=ok and not empty,
        reason=None if ok and not empty else Reason.EMPTY_OUTPUT if empty else Reason.BENCH_ERROR,
        ttft_s=ttft,
        ttfa_s=given.get("ttfa_s"),
        e2e_s=e2e,
        tpot_s=span / steps if steps else None,
        tps=steps / span if steps else None,
        prompt_tokens=count(given.get("prompt_tokens")),
        completion_tokens=tokens,
        error_message=why,
        warnings=["end_not_checked"] if ok else [],
    )


def spread(values: Mapping[str, Any] | None, scale: float = 1.0, *, median: str = "p50", mean: str = "mean") -> Distribution:
    """A tool's own summary of a figure; percentiles that it does not give stay null."""
    known = values or {}
    found = {ours: number(known.get(theirs)) for ours, theirs in (("mean", mean), ("p50", median), ("p90", "p90"), ("p99", "p99"))}
    return Distribution(**{name: None if value is None else value * scale for name, value in found.items()})


def number(value: Any) -> float | None:
    """A finite number, also one that is written as text (as vLLM's `--metadata` does); None for anything else, NaN among it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def count(value: Any) -> int | None:
    """A whole number, or None."""
    found = number(value)
    return None if found is None else round(found)


def listed(value: Any, length: int) -> Sequence[Any]:
    """A list of this length, else as many unknowns."""
    return value if isinstance(value, list) and len(value) == length else [None] * length
