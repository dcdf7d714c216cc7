from __future__ import annotations

import pytest

from service.domain.measurement import Conditions, Distribution, RequestResult
from service.domain.reasons import Reason
from workers.bench.summary import distribution, summarise


def test_percentiles_are_interpolated() -> None:
    found = distribution([4.0, 1.0, None, 3.0, 2.0])
    assert (found.mean, found.p50, found.p90, found.p99) == pytest.approx((2.5, 2.5, 3.7, 3.97))
    assert distribution([7.0], 1000) == Distribution(mean=7000, p50=7000, p90=7000, p99=7000)
    assert distribution([None]) == Distribution()


def _request(*, ok: bool = True, tokens: int | None = 10, ttft: float = 0.1, why: Reason = Reason.EMPTY_OUTPUT) -> RequestResult:
    reason = None if ok else why
    return RequestResult(prompt="p", repeat=0, ok=ok, reason=reason, ttft_s=ttft, completion_tokens=tokens, itl_ms=[1.0, 3.0])


def test_failed_requests_enter_no_average() -> None:
    found = summarise([_request(), _request(ok=False, tokens=1000, ttft=9.0)], 2.0)
    assert (found.requests, found.failed, found.valid, found.output_tokens, found.output_tps) == (2, 1, False, 10, 5.0)
    assert (found.ttft_ms.p99, found.itl_ms.mean) == pytest.approx((100, 2.0))


def test_one_without_usage_leaves_the_sum_unknown() -> None:
    found = summarise([_request(), _request(tokens=None)], 2.0)
    assert (found.valid, found.output_tokens, found.output_tps) == (True, None, None)
    assert summarise([_request(ok=False)], 2.0).output_tokens is None
    assert not summarise([], 0.0).valid


def test_a_phase_that_does_not_count_says_why() -> None:
    lost = [_request(ok=False, why=Reason.CONNECTION_LOST)] * 2
    same, restarted = Conditions(server_restarted=False), Conditions(server_restarted=True)
    assert summarise([_request()], 1.0, same).invalid_reason is None
    assert summarise([_request(), _request(ok=False), *lost], 1.0).invalid_reason == Reason.CONNECTION_LOST
    found = summarise([_request(), *lost], 1.0, restarted)
    assert (found.valid, found.invalid_reason) == (False, Reason.SERVER_RESTARTED_DURING_RUN)
    assert summarise([], 0.0).invalid_reason == Reason.BENCH_ERROR
