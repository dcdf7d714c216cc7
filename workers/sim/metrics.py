"""Counters of the simulated engine, as a Prometheus page and as the log lines of every ten seconds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from workers.sim.acceptance import Verified


@dataclass
class Counters:
    """What was counted since the start."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_at: list[int] = field(default_factory=list)
    finished: Counter[str] = field(default_factory=Counter)

    def count_step(self, step: Verified) -> None:
        """A decode step. Accepted tokens count before the answer is cut at its limit, as in vLLM."""
        if not step.drafted:
            return
        self.drafts += 1
        self.draft_tokens += step.drafted
        self.accepted_tokens += step.accepted
        for position in range(step.accepted):
            self.accepted_at[position] += 1

    def copy(self) -> Counters:
        """A snapshot."""
        return replace(self, accepted_at=list(self.accepted_at), finished=Counter(self.finished))


@dataclass
class Metrics:
    """The engine's counters with what is needed to show them."""

    model_name: str
    draft_length: int
    """0 without a speculative configuration: then no speculation metric exists at all."""
    max_model_len: int
    counters: Counters = field(default_factory=Counters)
    running: int = 0
    started_at: float = field(default_factory=time.time)
    created_at: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.counters.accepted_at = [0] * self.draft_length

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache in use: a rough figure that moves with the load."""
        return min(1.0, 0.004 * self.running)

    def page(self) -> str:
        """The Prometheus page."""
        return "".join(line + "\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        labels = f'engine="0",model_name="{self.model_name}"'
        count = self.counters
        yield "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds."
        yield "# TYPE process_start_time_seconds gauge"
        yield f"process_start_time_seconds {self.started_at:.2f}"
        yield from _gauge("vllm:num_requests_running", "Number of requests in model execution batches.", labels, self.running)
        yield from _gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", labels, 0)
        yield from _gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", labels, self.kv_usage)
        plain = [
            ("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", count.prefix_queries),
            ("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", count.prefix_hits),
            ("vllm:num_preemptions", "Cumulative number of preemption from the engine.", 0),
            ("vllm:prompt_tokens", "Number of prefill tokens processed.", count.prompt_tokens),
            ("vllm:generation_tokens", "Number of generation tokens processed.", count.generation_tokens),
        ]
        for name, text, value in plain:
            yield from self._counter(name, text, {labels: value})
        reasons = ("stop", "length", "abort", "error")
        success = {f'{labels},finished_reason="{reason}"': count.finished[reason] for reason in reasons}
        yield from self._counter("vllm:request_success", "Count of successfully processed requests.", success)
        if self.draft_length:
            yield from self._speculation(labels)

    def _speculation(self, labels: str) -> Iterator[str]:
        count = self.counters
        yield from self._counter("vllm:spec_decode_num_drafts", "Number of spec decoding drafts.", {labels: count.drafts})
        yield from self._counter("vllm:spec_decode_num_draft_tokens", "Number of draft tokens.", {labels: count.draft_tokens})
        yield from self._counter("vllm:spec_decode_num_accepted_tokens", "Number of accepted tokens.", {labels: count.accepted_tokens})
        by_position = {f'{labels},position="{position}"': value for position, value in enumerate(count.accepted_at)}
        yield from self._counter("vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.", by_position)

    def _counter(self, name: str, text: str, values: dict[str, int]) -> Iterator[str]:
        yield f"# HELP {name}_total {text}"
        yield f"# TYPE {name}_total counter"
        for labels, value in values.items():
            yield f"{name}_total{{{labels}}} {float(value)}"
        yield f"# HELP {name}_created {text}"
        yield f"# TYPE {name}_created gauge"
        for labels in values:
            yield f"{name}_created{{{labels}}} {self.created_at!r}"


def _gauge(name: str, text: str, labels: str, value: float) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"
    yield f"{name}{{{labels}}} {float(value)}"


class IntervalStats:
    """The log lines over one interval."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.before = metrics.counters.copy()
        self.since = time.monotonic()
        self.was_active = False

    def lines(self) -> list[tuple[str, str]]:
        """Source and text of the lines for the interval that ends now. After traffic one idle interval is still logged, as in vLLM."""
        now, count, then = time.monotonic(), self.metrics.counters, self.before
        seconds = max(now - self.since, 1e-6)
        prompt, generated = count.prompt_tokens - then.prompt_tokens, count.generation_tokens - then.generation_tokens
        active = bool(prompt or generated or self.metrics.running)
        shown: list[tuple[str, str]] = []
        if active or self.was_active:
            hits = 100 * count.prefix_hits / count.prefix_queries if count.prefix_queries else 0.0
            text = (
                f"Engine 000: Avg prompt throughput: {prompt / seconds:.1f} tokens/s, "
                f"Avg generation throughput: {generated / seconds:.1f} tokens/s, Running: {self.metrics.running} reqs, Waiting: 0 reqs, "
                f"GPU KV cache usage: {100 * self.metrics.kv_usage:.1f}%, Prefix cache hit rate: {hits:.1f}%"
            )
            shown.append(("loggers.py:335", text))
            if count.drafts > then.drafts:
                shown.append(("metrics.py:120", self._speculation(seconds)))
        self.before, self.since, self.was_active = count.copy(), now, active
        return shown

    def _speculation(self, seconds: float) -> str:
        count, then = self.metrics.counters, self.before
        drafts = count.drafts - then.drafts
        drafted, accepted = count.draft_tokens - then.draft_tokens, count.accepted_tokens - then.accepted_tokens
        shares = ", ".join(f"{(now - was) / drafts:.3f}" for now, was in zip(count.accepted_at, then.accepted_at, strict=True))
        return (
            f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
            f"Accepted throughput: {accepted / seconds:.2f} tokens/s, Drafted throughput: {drafted / seconds:.2f} tokens/s, "
            f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {shares}, "
            f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%"
        )
