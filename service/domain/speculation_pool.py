"""Several spans of speculation as one, from their summed counts: loads of one configuration, requests of one phase."""

from __future__ import annotations

import math
from collections.abc import Iterable

from service.domain.speculation import COUNTS, Source, Speculation, per_position, ratio, whole


def merge(spans: Iterable[Speculation | None]) -> Speculation | None:
    """Several spans as one, from their summed counts. Spans that do not say the same kind of thing give `unknown`."""
    known = list(spans)
    found = [span for span in known if span is not None]
    if len(found) == len(known) == 1 or not found:
        return found[0] if found else None
    statuses = {span.status for span in found} | ({"not_reported"} if len(found) < len(known) else set())
    warnings = list(dict.fromkeys(warning for span in found for warning in span.warnings))
    source = found[0].source if len({span.source for span in found}) == 1 else None
    if len(statuses) == 1 and "on" not in statuses:
        return Speculation(status=found[0].status, source=source, warnings=warnings)
    if not statuses <= {"on", "never_drafted"}:
        return Speculation(status="unknown", warnings=[*warnings, "loads_differ"])
    return _pooled([span for span in found if span.status == "on"], source, warnings)


def _pooled_length(found: list[Speculation], drafts: float | None) -> float | None:
    """Weighted by drafts, which is 1 + accepted / drafts of the whole, and right for V0's too."""
    known = [span.mean_acceptance_length * span.drafts for span in found if span.mean_acceptance_length is not None and span.drafts]
    return math.fsum(known) / drafts if drafts and len(known) == len(found) else None


def _pooled(found: list[Speculation], source: Source | None, warnings: list[str]) -> Speculation:
    def total(values: Iterable[float | None]) -> float | None:
        listed = list(values)
        return None if any(value is None for value in listed) else sum(value for value in listed if value is not None)

    drafts, draft_tokens, accepted = (total(getattr(span, name) for span in found) for name in COUNTS)
    steps = total(ratio(span.drafts, span.draft_coverage) for span in found)
    tokens = total(
        None
        if not span.draft_coverage or span.drafts is None
        else (span.effective_tokens_per_step or 0) * span.drafts / span.draft_coverage
        for span in found
    )
    width = {len(span.per_position_acceptance or []) for span in found}
    positions = [total((span.per_position_acceptance or [])[i] * (span.drafts or 0) for span in found) for i in range(min(width))]
    comparable = all(span.comparable for span in found)
    return Speculation(
        status="on",
        source=source,
        drafts=whole(drafts),
        draft_tokens=whole(draft_tokens),
        accepted_tokens=whole(accepted),
        mean_acceptance_length=_pooled_length(found, drafts) if comparable else None,
        draft_acceptance_rate=ratio(accepted, draft_tokens),
        per_position_acceptance=per_position(None, [p or 0.0 for p in positions], drafts) if positions and len(width) == 1 else None,
        effective_tokens_per_step=ratio(tokens, steps),
        draft_coverage=ratio(drafts, steps),
        comparable=comparable,
        warnings=warnings,
    )
