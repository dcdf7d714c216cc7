"""A benchmark: warm-up, then one bench phase per level of concurrency.

A worker measures phase by phase with `run_warmup_blocking` and `run_phase_blocking`; `run_bench_blocking` does all of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version

from service.domain.errors import ExpctlError
from service.domain.measurement import BenchClient, BenchReport, PhaseResult, RequestResult
from service.domain.reasons import Reason
from service.domain.spec import Bench, Prompt
from workers.bench.background import BenchStopped, OnRequest, drive
from workers.bench.counters import Asked, Counters, Span
from workers.bench.extras import Extras
from workers.bench.http_stream import Exchange
from workers.bench.loop_lag import LoopLag
from workers.bench.prompts import resolve, warmup_prompts
from workers.bench.request import Job, Timed, ask, open_connection
from workers.bench.summary import summarise
from workers.bench.target import Target

__all__ = [
    "Asked",
    "BenchRefused",
    "BenchStopped",
    "Counters",
    "PhaseRun",
    "Target",
    "WarmUp",
    "run_bench_blocking",
    "run_phase",
    "run_phase_blocking",
    "run_warmup",
    "run_warmup_blocking",
]

_ORDER = "expctl.bench/1"
"""Goes into every order of prompts; another value would be another order, and results of both could not be compared."""
_WARMUP_MAX_TOKENS = 256
_MORE_WARMUP = 6
"""How many requests more the warm-up may take where the engine still gets faster."""
_FASTER = 0.1
"""A gain below this is noise, or how well a prompt suits the drafter."""
_REFUSALS = frozenset({Reason.REQUEST_REFUSED, Reason.CONTEXT_OVERFLOW, Reason.MODEL_NOT_FOUND, Reason.AUTH_FAILED})
_UNKNOWN = Asked()
_PACED_TOKENS = 16
"""Shorter answers have no pace worth comparing."""


@dataclass(frozen=True)
class PhaseRun:
    """A measured phase, and how late the client's loop ran meanwhile."""

    result: PhaseResult
    loop_lag_ms_p99: float | None


@dataclass(frozen=True)
class WarmUp:
    """What was sent before anything counts."""

    first_request: RequestResult | None
    """The very first request, kept apart: it shows what a cold engine costs."""
    rest: list[RequestResult]
    settled: bool | None = None
    """Whether the engine had stopped getting faster; None where that cannot be told."""


class BenchRefused(ExpctlError):
    """The server will not have requests with these parameters, speculation on or off."""

    slug = "bench-refused"


def client_version() -> str:
    """The version of expctl that measures."""
    try:
        return version("expctl")
    except PackageNotFoundError:
        return "unknown"


def order(prompts: list[Prompt], repeat: int) -> list[tuple[Prompt, int]]:
    """Every prompt `repeat` times: shuffled, the same for every run, and each prompt once before any comes again.

    Rounds spread what drifts during a phase (clocks, temperature) evenly over the prompts. Hashes instead of a random
    generator make the order the same with every version of Python.
    """

    def place(prompt: Prompt, turn: int) -> bytes:
        return hashlib.sha256(f"{_ORDER}\0{turn}\0{prompt.id}".encode()).digest()

    return [(prompt, turn) for turn in range(repeat) for prompt in sorted(prompts, key=partial(place, turn=turn))]


async def run_phase(
    target: Target,
    bench: Bench,
    concurrency: int,
    *,
    counters: Counters | None = None,
    asked: Asked = _UNKNOWN,
    on_request: OnRequest | None = None,
) -> PhaseRun:
    """Measure one level of concurrency in a closed loop. `on_request` runs in the event loop and must not block."""
    extras = Extras(bench)
    jobs = [
        Job(index, prompt.id, turn, target.request(prompt, bench, extras.of(index)), target.request(prompt, bench))
        for index, (prompt, turn) in enumerate(order(resolve(bench), bench.repeat))
    ]
    span = Span(counters, asked)
    per_request = counters if concurrency == 1 else None
    async with LoopLag() as lag:
        await span.begin()
        timed = await _closed_loop(target, jobs, concurrency, partial(Span, per_request, asked), on_request, extras)
        results = [item.result for item in sorted(timed, key=lambda item: item.index)]
        speculation = await span.end(results)
    if per_request is None:
        duration_s = max(item.ended for item in timed) - min(item.started for item in timed)
    else:
        # Between the requests the client read counters; that time is not the server's.
        duration_s = sum(item.ended - item.started for item in timed)
    fair = span.conditions(results, extras.salt).model_copy(update={"loop_lag_ms_p99": lag.p99_ms, "loop_lag_ms_max": lag.max_ms})
    summary = summarise(results, duration_s, fair)
    phase = PhaseResult(concurrency=concurrency, requests=results, summary=summary, speculation=speculation)
    return PhaseRun(phase, lag.p99_ms)


async def _closed_loop(
    target: Target, jobs: list[Job], concurrency: int, new_span: Callable[[], Span], on_request: OnRequest | None, extras: Extras
) -> list[Timed]:
    """As many requests in flight as asked for, until none is left."""
    waiting = deque(jobs)
    done: list[Timed] = []

    async def client(connection: Exchange | OSError | None) -> None:
        while waiting:
            job = waiting.popleft()
            span = new_span()
            await span.begin()
            if connection is None:
                connection = await open_connection(target)
            timed = await ask(target, job, connection, extras)
            connection = None
            if span.reads:
                result = timed.result.model_copy(update={"speculation": await span.end([timed.result])})
                timed = Timed(timed.index, result, timed.started, timed.ended)
            done.append(timed)
            if on_request is not None:
                on_request(timed.result)

    # The first requests start together: all their connections are open before any of them is sent.
    opened = await asyncio.gather(*(open_connection(target) for _ in jobs[:concurrency]))
    try:
        async with asyncio.TaskGroup() as group:
            for connection in opened:
                group.create_task(client(connection))
    finally:
        for connection in opened:
            if isinstance(connection, Exchange):
                connection.close()
    return done


async def run_warmup(target: Target, bench: Bench, *, on_request: OnRequest | None = None) -> WarmUp:
    """Send `bench.warmup` requests one after the other, with prompts that are never measured; some more while it gets faster.

    They carry exactly the sampling parameters of the measurement, so that what the server refuses (such as min_p beside
    speculation) is refused now. Kernels that are compiled on first use show in requests that get faster one after the other.
    """
    pool = _warmup_pool(resolve(bench))
    extras, short = Extras(bench), bench.model_copy(update={"max_tokens": _warmup_tokens(bench)})
    results: list[RequestResult] = []
    while len(results) < bench.warmup or (len(results) < bench.warmup + _MORE_WARMUP and still_faster(results)):
        index = len(results)
        prompt = pool[index % len(pool)]
        job = Job(index, prompt.id, index // len(pool), target.request(prompt, short, extras.of(index)), target.request(prompt, short))
        results.append((await ask(target, job, await open_connection(target), extras)).result)
        if on_request is not None:
            on_request(results[-1])
        if _refused(results[-1]):
            break
    faster = still_faster(results)
    return WarmUp(results[0] if results else None, results[1:], None if faster is None else not faster)


def _warmup_tokens(bench: Bench) -> int:
    """Short answers, unless the experiment's own parameters would be refused with a limit below theirs."""
    least = bench.extra_body.get("min_tokens")
    return min(bench.max_tokens, max(_WARMUP_MAX_TOKENS, least if isinstance(least, int) else 0))


def still_faster(results: Sequence[RequestResult]) -> bool | None:
    """Whether the last request was decoded clearly faster than the one before; None where that cannot be told."""
    pace = [result.tpot_s for result in results[-2:] if result.ok and (result.completion_tokens or 0) >= _PACED_TOKENS]
    known = [value for value in pace if value is not None]
    return known[1] < known[0] * (1 - _FASTER) if len(known) == 2 else None  # noqa: PLR2004 - a pair


def _refused(result: RequestResult) -> bool:
    """Whether the server will not have requests like this one: another one would be refused as well.

    By the reason, not the status: vLLM finds out about sampling parameters when the stream has begun, with status 200.
    """
    return result.reason in _REFUSALS and result.http_status != HTTPStatus.TOO_MANY_REQUESTS


def _must_be_taken(warm: WarmUp) -> None:
    """Parameters that the server refuses are found before anything is measured."""
    last = warm.rest[-1] if warm.rest else warm.first_request
    if last is not None and _refused(last):
        said = last.error_message or f"HTTP status {last.http_status}"
        raise BenchRefused("the server refuses requests with these parameters", said, "change what it names and measure again")


def _warmup_pool(measured: list[Prompt]) -> list[Prompt]:
    """By the same route as the measured prompts: a base model has no chat template."""
    pool = warmup_prompts()
    if measured[0].messages is not None:
        return pool
    return [Prompt(id=prompt.id, prompt=str((prompt.messages or [{}])[0].get("content", ""))) for prompt in pool]


def run_phase_blocking(
    target: Target,
    bench: Bench,
    concurrency: int,
    *,
    counters: Counters | None = None,
    asked: Asked = _UNKNOWN,
    on_request: OnRequest | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> PhaseRun:
    """`run_phase` for callers without an event loop.

    Both callbacks run in the caller's thread and may block without harm to the measurement. `should_stop` is asked after
    each request and at least every 0.5 s; True cuts the requests in flight and raises BenchStopped. Whatever a callback
    raises does the same and comes out as it is.
    """
    work = partial(run_phase, target, bench, concurrency, counters=counters, asked=asked)
    return drive(lambda tell: work(on_request=tell), on_request, should_stop)


def run_warmup_blocking(
    target: Target,
    bench: Bench,
    *,
    on_request: OnRequest | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> WarmUp:
    """`run_warmup` for callers without an event loop; callbacks as for `run_phase_blocking`."""
    return drive(lambda tell: run_warmup(target, bench, on_request=tell), on_request, should_stop)


def run_bench_blocking(
    target: Target,
    bench: Bench,
    *,
    label: str | None = None,
    counters: Counters | None = None,
    on_request: OnRequest | None = None,
    on_phase: Callable[[int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> BenchReport:
    """Warm-up and every level of concurrency. `on_phase` is told each level before it begins, 0 for the warm-up."""
    tell_phase = on_phase or (lambda _level: None)
    warm = WarmUp(None, [])
    if bench.warmup:
        tell_phase(0)
        warm = run_warmup_blocking(target, bench, on_request=on_request, should_stop=should_stop)
        _must_be_taken(warm)
    runs: list[PhaseRun] = []
    for level in bench.concurrency:
        tell_phase(level)
        runs.append(run_phase_blocking(target, bench, level, counters=counters, on_request=on_request, should_stop=should_stop))
    return BenchReport(
        label=label,
        model=target.model,
        client=BenchClient(
            version=client_version(),
            loop_lag_ms_p99=max((run.loop_lag_ms_p99 for run in runs if run.loop_lag_ms_p99 is not None), default=None),
            loop_lag_ms_max=max((lag for run in runs if (lag := _worst_lag(run)) is not None), default=None),
        ),
        phases=[run.result for run in runs],
        first_request=warm.first_request,
        warmup=warm.rest,
        warmup_settled=warm.settled,
    )


def _worst_lag(run: PhaseRun) -> float | None:
    conditions = run.result.summary.conditions
    return conditions.loop_lag_ms_max if conditions else None
