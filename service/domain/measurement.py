"""What a benchmark measured: one record a request, a summary a bench phase, a report a run.

Times are seconds where a name ends in `_s` and milliseconds where it ends in `_ms`. `None` means
"not known" everywhere; it is never written as 0.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from service.domain.reasons import Reason
from service.domain.records import Record
from service.domain.speculation import Speculation

BENCH_SCHEMA = "expctl.bench/1"


class RequestResult(Record):
    """One request of a benchmark.

    `ok` needs a proper end of the stream ([DONE] or a finish reason) and at least one token of output.
    A request that is not ok carries a reason and enters no average.
    """

    prompt: str
    """Id of the prompt."""
    repeat: int
    ok: bool
    reason: Reason | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    ttft_s: float | None = None
    """Time to first token: request sent to the first text, reasoning text, tool call or token id."""
    ttfa_s: float | None = None
    """Time to the first token of the answer, which follows the reasoning where there is one."""
    tpot_s: float | None = None
    """Time per output token after the first: (t_last - t_first) / (completion_tokens - 1)."""
    e2e_s: float | None = None
    """Request sent to the last token."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the prompt, found in the server's prefix cache; where the server tells."""
    completion_tokens: int | None = None
    """From the server's usage only; without usage it is unknown."""
    reasoning_tokens: int | None = None
    tokens_from: Literal["usage"] | None = None
    estimated_tokens: int | None = None
    """Count of content-bearing chunks where usage is missing: a lower bound that enters no average."""
    tps: float | None = None
    """Decode speed, tokens/s: (completion_tokens - 1) / (t_last - t_first)."""
    itl_ms: list[float] = Field(default_factory=list, repr=False)
    """Inter-chunk gaps after the first, milliseconds. A chunk may hold several tokens."""
    speculation: Speculation | None = None
    """From the engine's counters around this request at concurrency 1, or from what the engine says with the answer."""
    text: str = Field(default="", repr=False)
    reasoning_text: str = Field(default="", repr=False)
    tool_calls: list[dict[str, Any]] = Field(default_factory=list, repr=False)
    prompt_token_ids: list[int] | None = Field(default=None, repr=False)
    """The prompt as the model saw it, chat template and all; where the server gives it."""
    output_token_ids: list[int] | None = Field(default=None, repr=False)
    """Every token of the output, reasoning and the ending one included; None where the server gives none."""
    error_code: int | None = None
    error_message: str | None = None
    warnings: list[str] = Field(default_factory=list)
    """Such as usage_missing, finish_reason_missing, done_missing, token_ids_incomplete."""


class Distribution(Record):
    """Mean and percentiles (linear interpolation between closest ranks) over the ok requests."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class Conditions(Record):
    """How fair a bench phase was: what else the engine did, what it had in its cache, how late the client ran."""

    cache_salt: Literal["sent", "refused", "given"] | None = None
    """A salt of its own with each request, which keeps prompts out of the prefix cache; `given`: the experiment's own."""
    prefix_cache_hit_rate: float | None = None
    """Share of the prompts' tokens that were found in the prefix cache, 0..1."""
    foreign_tokens: int | None = None
    """Tokens that the engine generated and that are not ours: somebody else was served meanwhile."""
    foreign_prompt_tokens: int | None = None
    busy_at_start: bool | None = None
    """Whether requests were in flight before the first of ours."""
    server_restarted: bool | None = None
    """Whether the counters at the end are those of another process than at the start."""
    loop_lag_ms_p99: float | None = None
    loop_lag_ms_max: float | None = None
    warnings: list[str] = Field(default_factory=list)


class PhaseSummary(Record):
    """One bench phase in numbers. `valid` is false as soon as one request failed, or the server was restarted meanwhile."""

    requests: int
    failed: int
    valid: bool
    duration_s: float
    """First request sent to last request ended."""
    output_tokens: int | None
    """Sum over ok requests; unknown when one of them has no usage."""
    output_tps: float | None
    """Tokens of ok requests / duration_s."""
    ttft_ms: Distribution
    tpot_ms: Distribution
    itl_ms: Distribution
    e2e_ms: Distribution
    tps: Distribution
    invalid_reason: Reason | None = None
    """Why the phase does not count: that of the requests that failed (the commonest of them), unless its server was restarted."""
    conditions: Conditions | None = None


class PhaseResult(Record):
    """One concurrency level: every prompt, `repeat` times, closed loop in a fixed shuffled order."""

    concurrency: int
    requests: list[RequestResult]
    summary: PhaseSummary
    speculation: Speculation | None = None


class BenchClient(Record):
    """Who measured."""

    version: str
    loop_lag_ms_p99: float | None = None
    """99th percentile of how late the client's own event loop ran, milliseconds."""
    loop_lag_ms_max: float | None = None


class BenchReport(Record):
    """The result of one benchmark run, as `expctl bench --json` prints it."""

    schema_: str = Field(default=BENCH_SCHEMA, alias="schema", serialization_alias="schema")
    label: str | None = None
    model: str
    client: BenchClient
    phases: list[PhaseResult]
    first_request: RequestResult | None = None
    """The first request after a load, kept apart and never averaged."""
    warmup: list[RequestResult] = Field(default_factory=list)
    warmup_settled: bool | None = None
    """Whether the engine had stopped getting faster when the warm-up ended; None where that cannot be told."""
