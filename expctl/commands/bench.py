"""expctl bench: measure any OpenAI-compatible server."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expctl import benchargs
from expctl.globals import options
from expctl.output import console, emit
from service.domain.errors import ExpctlError, UsageError
from service.domain.fairness import sentences

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from service.domain.measurement import BenchReport, PhaseResult, RequestResult
    from service.domain.spec import Bench
    from service.domain.speculation import EngineCounters, Speculation
    from workers.bench.target import Target

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    base_url: Annotated[str, typer.Option(help="the server, such as http://127.0.0.1:8000/v1")],
    model: Annotated[str | None, typer.Option(help="model id (default: the only one that the server lists)")] = None,
    label: Annotated[str | None, typer.Option(help="a name for this run in its JSON")] = None,
    prompts: Annotated[
        str, typer.Option(metavar="FILE|five", help="the built-in five, or JSON lines {id?, messages | prompt, max_tokens?}")
    ] = "five",
    max_tokens: Annotated[int, typer.Option(help="longest answer, tokens")] = 4096,
    concurrency: Annotated[str, typer.Option(metavar="N...", help="levels, measured one after the other: 1 8")] = "1,8",
    repeat: Annotated[int, typer.Option(help="how often each prompt is sent per level")] = 5,
    warmup: Annotated[int, typer.Option(help="requests before, with prompts of their own, that do not count")] = 2,
    temperature: Annotated[float, typer.Option(help="sampling temperature")] = 0.0,
    extra_body: Annotated[str, typer.Option(metavar="JSON", help="more keys for each request")] = "{}",
    engine_metrics: Annotated[
        str | None, typer.Option(metavar="URL|off", help="the engine's counters (default: /metrics beside --base-url)")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="sent as a bearer token; env:NAME reads it from the environment")
    ] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="K=V", help="one more header; may be given again")] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="longest whole request")] = 3600.0,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="write the JSON to this file")] = None,
) -> None:
    """TTFT, time per token, tokens/s and acceptance of any OpenAI-compatible server. Exits 1 if a request failed."""
    from workers.bench.run import Target, run_bench_blocking  # noqa: PLC0415 - only this verb needs the load client

    asked = benchargs.asked(prompts, concurrency, extra_body, max_tokens=max_tokens, repeat=repeat, warmup=warmup, temperature=temperature)
    benchargs.check_timeout(timeout)
    place, place_headers = benchargs.metrics(engine_metrics)
    if output is not None:
        benchargs.check_output(output)
    url, headers = benchargs.server(base_url, api_key, header or [])
    target = Target(url, model or "", headers, timeout)
    if model is None:
        target = Target(url, _only_model(target), headers, timeout)
    talk = _Talk(asked)
    # What was imported stays: looking through it again and again would cost the streams their time.
    gc.freeze()
    report = run_bench_blocking(
        target, asked, label=label, counters=_counters(place, place_headers, target, talk.say), on_request=talk.request, on_phase=talk.phase
    )
    _deliver(report, output, talk)


def _deliver(report: BenchReport, output: Path | None, talk: _Talk) -> None:
    talk.draw(report)
    text = _json_of(report)
    if output is not None:
        try:
            output.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise ExpctlError(f"{output} cannot be written", error.strerror or str(error), "give another --output") from None
    if options.json and options.fields:
        emit(report.model_dump(mode="json", by_alias=True))
    elif options.json:
        print(text, flush=True)
    invalid = [phase for phase in report.phases if not phase.summary.valid]
    for phase in invalid:
        why = f"{_failures(phase)}; failed requests enter no average" if phase.summary.failed else str(phase.summary.invalid_reason)
        talk.complain(f"concurrency {phase.concurrency} is invalid: {why}")
    if invalid:
        raise typer.Exit(1)


def _json_of(report: BenchReport) -> str:
    try:
        return report.model_dump_json(by_alias=True, indent=2)
    except ValueError:
        # A text that is no Unicode, such as a label from the command line. The other writer takes it, and is many times slower.
        return json.dumps(report.model_dump(mode="json", by_alias=True), ensure_ascii=False, indent=2)


def _failures(phase: PhaseResult) -> str:
    """How many failed, by reason, and what the first of them says."""
    from collections import Counter  # noqa: PLC0415 - only for what failed

    failed = [request for request in phase.requests if not request.ok]
    counts = Counter(str(request.reason) for request in failed)
    parts = ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
    said = f" ({failed[0].error_message})" if failed and failed[0].error_message else ""
    return f"{len(failed)} of {len(phase.requests)} requests failed: {parts}{said}"


def _only_model(target: Target) -> str:
    """The model to ask for, where the server lists exactly one."""
    import httpx  # noqa: PLC0415 - slow to import, and only needed without --model

    url = f"{target.api_base}/models"
    try:
        answer = httpx.get(url, headers=target.headers, timeout=10.0)
        answer.raise_for_status()
        listed = [item["id"] for item in answer.json()["data"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise ExpctlError(
            f"{url} does not list the models", target.without_secrets(str(error)), "check --base-url, or give --model"
        ) from None
    if len(listed) != 1:
        raise UsageError(f"the server lists {len(listed)} models", ", ".join(map(str, listed)), "choose one with --model")
    return str(listed[0])


def _counters(
    url: str | None, own: dict[str, str] | None, target: Target, say: Callable[[str], None]
) -> Callable[[], EngineCounters | None] | None:
    """A reader of the engine's counters, or None where they are off."""
    if url == "off":
        return None
    from workers.engines.prometheus import read_counters  # noqa: PLC0415 - not needed with --engine-metrics off

    place = url or f"{target.api_base.removesuffix('/v1')}/metrics"

    # A key is for the server it was given for, and for no other.
    headers = own or (target.headers if place.startswith(f"{target.parts.scheme}://{target.parts.netloc}/") else None)

    def read() -> EngineCounters | None:
        return read_counters(place, headers)

    if read() is None:
        say(f"no engine counters at {place}: speculation is not reported (--engine-metrics URL|off)")
    return read


class _Talk:
    """What a person sees: progress on stderr, and the figures there too where stdout carries JSON."""

    def __init__(self, asked: Bench) -> None:
        self._per_phase = (len(asked.prompts) if isinstance(asked.prompts, list) else 5) * asked.repeat
        self._warmup = asked.warmup
        self._total = self._count = 0

    @cached_property
    def _console(self) -> Console:
        return console(stderr=True)

    def say(self, text: str) -> None:
        if not options.quiet:
            self._console.print(text, markup=False, soft_wrap=True)

    def complain(self, text: str) -> None:
        console(stderr=True).print(text, markup=False, style="red", soft_wrap=True)

    def draw(self, report: BenchReport) -> None:
        if not (options.quiet and options.json):
            console(stderr=options.json).print(_drawing(report))

    def phase(self, level: int) -> None:
        self._count, self._total = 0, self._per_phase if level else self._warmup
        short = f" (too few to have {level} in flight)" if level > self._total else ""
        self.say(f"concurrency {level}: {self._total} requests{short}" if level else f"warm-up: {self._total} requests")

    def request(self, result: RequestResult) -> None:
        self._count += 1
        head = f"  {self._count}/{self._total} {result.prompt} #{result.repeat}:"
        if not result.ok:
            said = f": {result.error_message}" if result.error_message else ""
            self.say(f"{head} failed, {result.reason}{said}")
            return
        tokens = f"{result.completion_tokens} tokens" if result.completion_tokens is not None else "tokens not reported"
        speed = f", {result.tps:.1f} tok/s" if result.tps is not None else ""
        self.say(f"{head} TTFT {(result.ttft_s or 0) * 1000:.0f} ms, {tokens}{speed}")


_COLUMNS = ("prompt", "ok", "tok/s", "TTFT ms", "TTFA ms", "TPOT ms", "tokens", "reasoning tokens")


def _drawing(report: BenchReport) -> RenderableType:
    """A table a phase, a row a prompt: means over the ok requests, then the phase's percentiles."""
    from rich.console import Group  # noqa: PLC0415 - drawing is not free
    from rich.text import Text  # noqa: PLC0415

    parts: list[RenderableType] = [Text("")]
    first = report.first_request
    if first is not None and first.ttft_s is not None:
        parts.append(Text(f"first request: TTFT {first.ttft_s * 1000:.0f} ms (kept apart)"))
    if report.warmup_settled is False:
        parts.append(Text("warning: the engine still got faster when the warm-up ended; raise --warmup", "yellow"))
    for phase in report.phases:
        parts.extend(_phase_drawing(phase))
    if report.client.loop_lag_ms_p99 is not None:
        parts.append(Text(f"\nthis client's own lateness: {report.client.loop_lag_ms_p99:.1f} ms (p99)"))
    return Group(*parts)


def _phase_drawing(phase: PhaseResult) -> list[RenderableType]:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    summary = phase.summary
    speed = "tokens not reported" if summary.output_tps is None else f"{summary.output_tps:.1f} tok/s together"
    head = f"concurrency {phase.concurrency}: {summary.requests} requests in {summary.duration_s:.1f} s, {summary.failed} failed, {speed}"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "prompt" else "right")
    for prompt in sorted({request.prompt for request in phase.requests}):
        table.add_row(*_row(prompt, [request for request in phase.requests if request.prompt == prompt]))
    parts: list[RenderableType] = [Text(f"\n{head}", "bold"), table]
    for name, found, form in (("TTFT ms", summary.ttft_ms, ".0f"), ("TPOT ms", summary.tpot_ms, ".2f"), ("tok/s", summary.tps, ".1f")):
        if found.p50 is not None and found.p90 is not None and found.p99 is not None:
            parts.append(Text(f"{name}: p50 {found.p50:{form}}, p90 {found.p90:{form}}, p99 {found.p99:{form}}"))
    if phase.speculation is not None:
        parts.append(Text(_speculation(phase.speculation)))
    conditions = None if summary.conditions is None else summary.conditions.model_dump()
    parts += [Text(f"warning: {sentence}", "yellow") for sentence in sentences(conditions)]
    if summary.failed:
        parts.append(Text(_failures(phase), "red"))
    return parts


def _row(prompt: str, requests: list[RequestResult]) -> list[str]:
    ok = [request for request in requests if request.ok]

    def mean(values: list[float | None], form: str, scale: float = 1.0) -> str:
        known = [value * scale for value in values if value is not None]
        return format(sum(known) / len(known), form) if known else "-"

    return [
        prompt,
        f"{len(ok)}/{len(requests)}",
        mean([request.tps for request in ok], ".1f"),
        mean([request.ttft_s for request in ok], ".0f", 1000),
        mean([request.ttfa_s for request in ok], ".0f", 1000),
        mean([request.tpot_s for request in ok], ".2f", 1000),
        mean([request.completion_tokens for request in ok], ".0f"),
        mean([request.reasoning_tokens for request in ok], ".0f"),
    ]


def _speculation(found: Speculation) -> str:
    parts = [f"speculation: {found.status.replace('_', ' ')}"]
    if found.mean_acceptance_length is not None:
        parts.append(f"mean acceptance length {found.mean_acceptance_length:.2f}")
    if found.draft_acceptance_rate is not None:
        parts.append(f"{found.draft_acceptance_rate:.0%} of draft tokens accepted")
    if found.effective_tokens_per_step is not None:
        parts.append(f"{found.effective_tokens_per_step:.2f} tokens per step")
    return ", ".join([*parts, *(f"warning {warning}" for warning in found.warnings)])
