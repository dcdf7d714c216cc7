"""Results as tables: a row per prompt and bench phase, units in the headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from expctl.views.fitting import Fitting
from expctl.views.queue import named
from service.domain.fairness import sentences
from service.domain.spec import FIVE_IDS

DASH = "-"
HEADERS = ("prompt", "n", "tok/s", "TTFT ms", "first answer ms", "TPOT ms", "tokens", "reasoning")
PARTS: tuple[tuple[Sequence[int], ...], ...] = ((range(1, 8),), (range(1, 5), range(5, 8)), (range(1, 4), range(4, 6), range(6, 8)))
"""Columns of figures in one table, or in several below one another where the screen is too narrow."""
NAME = 24


def render(found: dict[str, Any]) -> RenderableType:
    """Every bench phase of an experiment; of a command how it ended and what was kept."""
    item = found["experiment"]
    parts: list[RenderableType] = [Text(f"{item['id']} {named(item)} · {item['status_text']}", "bold")]
    if item["facts"].get("command"):
        parts.extend(_command(item["facts"]))
    first = found["first_request"]
    if first and first["ttft_s"] is not None:
        parts.append(Text(f"first request after the load: TTFT {first['ttft_s'] * 1000:.0f} ms (kept apart)"))
    for phase in found["phases"]:
        parts.extend(_phase(phase, item))
    return Group(*parts)


def _command(facts: dict[str, Any]) -> list[RenderableType]:
    command = facts["command"]
    if command["signal"] is not None:
        how = f"ended by signal {command['signal']}"
    else:
        how = "exit status not known" if command["exit_status"] is None else f"exit status {command['exit_status']}"
    parts: list[RenderableType] = [Text(how + (", after its time was over" if command["timed_out"] else ""))]
    files = facts.get("artifacts") or []
    if files:
        parts += [Text(f"\nkept in {facts['artifacts_folder']}", "bold"), _files(files)]
    parts.extend(Text(f"warning: {text}", "yellow") for text in (*command["warnings"], *(facts.get("artifact_warnings") or [])))
    return parts


def _files(files: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("file", overflow="fold")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("sha256", no_wrap=True)
    for file in files:
        table.add_row(Text(file["path"]), f"{file['size']:,}", file["sha256"][:12])
    return table


def _in_order(requests: list[dict[str, Any]], item: dict[str, Any]) -> list[str]:
    """The prompts' ids in the experiment file's order."""
    prompts = item["spec"]["bench"]["prompts"]
    order = list(FIVE_IDS) if prompts == "five" else [prompt["id"] for prompt in prompts]
    return [prompt for prompt in order if any(request["prompt"] == prompt for request in requests)]


def _phase(phase: dict[str, Any], item: dict[str, Any]) -> list[RenderableType]:
    summary = phase["summary"]
    speed = f"{summary['output_tps']:.1f} tok/s together" if summary["output_tps"] is not None else "tokens not reported"
    head = f"\nconcurrency {phase['concurrency']}: {summary['requests']} requests, {summary['failed']} failed, {speed}"
    parts: list[RenderableType] = [Text(head, "bold"), _prompts(phase["requests"], _in_order(phase["requests"], item))]
    if phase["speculation"]:
        parts.append(Text(speculation_text(phase["speculation"])))
    parts.extend(Text(f"warning: {sentence}", "yellow") for sentence in sentences(summary.get("conditions")))
    failed = [request for request in phase["requests"] if not request["ok"]]
    parts.extend(Text(f"failed: {r['prompt']} #{r['repeat']}: {r['reason']} {r['error_message'] or ''}".rstrip(), "red") for r in failed)
    return parts


def _prompts(requests: list[dict[str, Any]], order: list[str]) -> Fitting:
    rows = [_row(prompt, [one for one in requests if one["prompt"] == prompt and one["ok"]]) for prompt in order]
    return Fitting(*(Group(*(_figures(rows, columns) for columns in parts)) for parts in PARTS))


def _row(prompt: str, ok: list[dict[str, Any]]) -> list[str]:
    return [
        prompt if len(prompt) <= NAME else f"{prompt[: NAME - 1]}…",
        str(len(ok)),
        _mean(ok, lambda r: r["tps"], "{:.1f}"),
        _mean(ok, lambda r: _ms(r["ttft_s"]), "{:.0f}"),
        _mean(ok, lambda r: _ms(r["ttfa_s"]), "{:.0f}"),
        _mean(ok, lambda r: _ms(r["tpot_s"]), "{:.2f}"),
        _mean(ok, lambda r: r["completion_tokens"], "{:.0f}"),
        _mean(ok, lambda r: r["reasoning_tokens"], "{:.0f}"),
    ]


def _figures(rows: list[list[str]], columns: Sequence[int]) -> Table:
    """Some columns beside the prompts' names."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for at in (0, *columns):
        table.add_column(HEADERS[at], justify="right" if at else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[at]) for at in (0, *columns)))
    return table


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _mean(requests: list[dict[str, Any]], value: Callable[[dict[str, Any]], float | None], form: str) -> str:
    """The mean over the ok requests that have the value; `-` where none has."""
    values = [found for request in requests if (found := value(request)) is not None]
    return form.format(sum(values) / len(values)) if values else DASH


def speculation_text(found: dict[str, Any]) -> str:
    """Speculation in one line; what is not reported is said to be so."""
    if found["status"] != "on":
        return f"speculation: {found['status'].replace('_', ' ')}"
    length = found["mean_acceptance_length"]
    parts = [f"speculation: mean acceptance length {'not known' if length is None else f'{length:.2f}'}"]
    if found["draft_acceptance_rate"] is not None:
        parts.append(f"{found['draft_acceptance_rate']:.0%} of drafts accepted")
    if found["per_position_acceptance"]:
        parts.append("by position " + " ".join(f"{rate:.0%}" for rate in found["per_position_acceptance"]))
    if found["effective_tokens_per_step"] is not None:
        parts.append(f"{found['effective_tokens_per_step']:.2f} tokens per step")
    if found["draft_coverage"] is not None:
        parts.append(f"{found['draft_coverage']:.0%} of steps drafted")
    return ", ".join(parts)
