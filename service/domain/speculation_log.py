"""Speculation from the summary lines of an engine's log: the fallback where nobody reads its counters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from service.domain.speculation import Speculation, ratio, whole


def of_log_lines(lines: Iterable[Mapping[str, Any]]) -> Speculation | None:
    """What the summary lines of a log add up to, each given as figures under the names of `Speculation`; None without any.

    A line covers the time since the one before it, so the first and the last may
    hold other requests, and its drafts can only be worked out roughly, as accepted / (length - 1): never `comparable`. Of V0's
    lines, whose counts grow from the server's start, the last one speaks for all.
    """
    found = list(lines)
    running = [line for line in found if "cumulative" in line.get("warnings", ())]
    found = running[-1:] or [line for line in found if line.get("draft_tokens")] or found[-1:]
    if not found:
        return None
    drafted, accepted = (sum(line.get(name) or 0 for line in found) for name in ("draft_tokens", "accepted_tokens"))
    weights = [_drafts_of(line) for line in found]
    drafts = math.fsum(weight for weight in weights if weight) if all(weights) else None
    return Speculation(
        status="on" if drafted else found[-1].get("status", "unknown"),
        source="log",
        drafts=whole(drafts),
        draft_tokens=drafted or None,
        accepted_tokens=accepted if drafted else None,
        mean_acceptance_length=_weighted([line.get("mean_acceptance_length") for line in found], weights),
        draft_acceptance_rate=ratio(accepted, drafted) if drafted else found[-1].get("draft_acceptance_rate"),
        per_position_acceptance=_positions([line.get("per_position_acceptance") for line in found], weights),
        comparable=False,
        warnings=list(
            dict.fromkeys(["log_intervals", *(word for line in found for word in line.get("warnings", ()) if word != "interval")])
        ),
    )


def _drafts_of(line: Mapping[str, Any]) -> float | None:
    accepted, length = line.get("accepted_tokens"), line.get("mean_acceptance_length")
    return accepted / (length - 1) if accepted and length is not None and length > 1 else None


def _weighted(values: list[float | None], weights: list[float | None]) -> float | None:
    if len(values) == 1:
        return values[0]
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None and weight]
    return math.fsum(v * w for v, w in pairs) / math.fsum(w for _, w in pairs) if len(pairs) == len(values) else None


def _positions(lists: list[list[float] | None], weights: list[float | None]) -> list[float] | None:
    width = {len(one or []) for one in lists}
    columns = zip(*(one or [] for one in lists), strict=True) if len(width) == 1 else ()
    means = [_weighted(list(column), weights) for column in columns]
    known = [mean for mean in means if mean is not None]
    return known if known and len(known) == len(means) else None
