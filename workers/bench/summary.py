"""A phase in numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from service.domain.measurement import Conditions, Distribution, PhaseSummary, RequestResult
from service.domain.reasons import Reason
from service.domain.statistics import percentile


def distribution(values: Iterable[float | None], scale: float = 1.0) -> Distribution:
    """Mean and percentiles of what is known; all None where nothing is."""
    known = sorted(value * scale for value in values if value is not None)
    if not known:
        return Distribution()
    p50, p90, p99 = (percentile(known, share) for share in (0.5, 0.9, 0.99))
    return Distribution(mean=math.fsum(known) / len(known), p50=p50, p90=p90, p99=p99)


def summarise(requests: Sequence[RequestResult], duration_s: float, conditions: Conditions | None = None) -> PhaseSummary:
    """Averages over the ok requests only; valid only if there were some, all were ok, and one process served them."""
    ok = [request for request in requests if request.ok]
    counts = [request.completion_tokens for request in ok]
    tokens = sum(count or 0 for count in counts) if counts and None not in counts else None
    failed = len(requests) - len(ok)
    restarted = bool(conditions and conditions.server_restarted)
    invalid = Reason.SERVER_RESTARTED_DURING_RUN if restarted else _why(requests)
    return PhaseSummary(
        requests=len(requests),
        failed=failed,
        valid=invalid is None,
        duration_s=duration_s,
        output_tokens=tokens,
        output_tps=tokens / duration_s if tokens is not None and duration_s > 0 else None,
        ttft_ms=distribution((request.ttft_s for request in ok), 1000),
        tpot_ms=distribution((request.tpot_s for request in ok), 1000),
        itl_ms=distribution(gap for request in ok for gap in request.itl_ms),
        e2e_ms=distribution((request.e2e_s for request in ok), 1000),
        tps=distribution(request.tps for request in ok),
        invalid_reason=invalid,
        conditions=conditions,
    )


def _why(requests: Sequence[RequestResult]) -> Reason | None:
    """The commonest reason of the requests that failed; None where none did."""
    if not requests:
        return Reason.BENCH_ERROR
    reasons = Counter(request.reason or Reason.BENCH_ERROR for request in requests if not request.ok)
    return reasons.most_common(1)[0][0] if reasons else None
