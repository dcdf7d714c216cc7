"""An experiment's results for other programs: CSV with a row a request, Markdown with a table a bench phase.

Both begin with what the figures mean and in which unit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.domain.definitions import DEFINITIONS

_MS = {"ttft_ms": "ttft_s", "ttfa_ms": "ttfa_s", "tpot_ms": "tpot_s", "e2e_ms": "e2e_s"}
"""Column -> the request's own figure, in seconds."""
COLUMNS = (
    "experiment", "name", "concurrency", "prompt", "repeat", "ok", "reason", *_MS, "tps", "prompt_tokens", "cached_tokens",
    "completion_tokens", "reasoning_tokens", "finish_reason", "mean_acceptance_length", "effective_tokens_per_step", "warnings",
)  # fmt: skip
_OF_REQUEST = (
    "prompt", "repeat", "ok", "reason", "tps", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "finish_reason",
)  # fmt: skip
_OF_SPECULATION = ("mean_acceptance_length", "effective_tokens_per_step")
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is a formula to a spreadsheet."""


def as_csv(found: Mapping[str, Any]) -> str:
    """A row a request of the measured phases; what is not known is empty. The first lines, with a # before them, are definitions."""
    item, out = found["experiment"], io.StringIO()
    for line in _head(item):
        out.write(f"# {line}\n")
    for name in COLUMNS:
        if name in DEFINITIONS:
            out.write(f"# {name}: {DEFINITIONS[name]}\n")
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for phase in found["phases"]:
        for request in phase["requests"]:
            writer.writerow(_row(item, phase, request))
    return out.getvalue()


def _head(item: Mapping[str, Any]) -> list[str]:
    host = f", on {item['host']}" if item.get("host") else ""
    return [f"experiment {item['id']}: {_one_line(item['name'])}{host}; {_one_line(item['status_text'])}"]


def _row(item: Mapping[str, Any], phase: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    speculation = request.get("speculation") or {}
    seconds = {name: request[theirs] for name, theirs in _MS.items()}
    row = {
        "experiment": item["id"],
        "name": item["name"],
        "concurrency": phase["concurrency"],
        **{name: request[name] for name in _OF_REQUEST},
        **{name: None if value is None else value * 1000 for name, value in seconds.items()},
        **{name: speculation.get(name) for name in _OF_SPECULATION},
        "warnings": " ".join(request["warnings"]),
    }
    return {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"'{value}" if isinstance(value, str) and value.startswith(_DANGEROUS) else value


def as_markdown(found: Mapping[str, Any]) -> str:
    """A table a phase, means over the ok requests of each prompt; definitions below."""
    item = found["experiment"]
    lines = [f"## {item['id']} {_escaped(item['name'])}", "", *map(_escaped, _head(item)), ""]
    for phase in found["phases"]:
        lines += [*_phase(phase), ""]
    lines += ["Figures:", ""]
    used = [*(name for name in _SHOWN if name in DEFINITIONS), "output_tps", "ok"]
    used += [*_OF_PHASE] if any(phase["speculation"] for phase in found["phases"]) else []
    lines += [f"- `{name}`: {DEFINITIONS[name]}" for name in used]
    return "\n".join(lines) + "\n"


_SHOWN = ("tps", "ttft_ms", "ttfa_ms", "tpot_ms", "e2e_ms", "completion_tokens", "reasoning_tokens")
_FORMS = {"tps": ".1f", "tpot_ms": ".2f"}
_OF_PHASE = ("mean_acceptance_length", "draft_acceptance_rate", "per_position_acceptance", "effective_tokens_per_step", "draft_coverage")


def _phase(phase: Mapping[str, Any]) -> Iterator[str]:
    summary = phase["summary"]
    speed = "" if summary["output_tps"] is None else f", `output_tps` {summary['output_tps']:.1f}"
    valid = "" if summary["valid"] else ", **invalid**"
    yield f"### concurrency {phase['concurrency']}: {summary['requests']} requests, {summary['failed']} failed{speed}{valid}"
    yield ""
    yield f"| prompt | ok | {' | '.join(_SHOWN)} |"
    yield f"|---|---:|{'---:|' * len(_SHOWN)}"
    for prompt in dict.fromkeys(request["prompt"] for request in phase["requests"]):
        rows = [request for request in phase["requests"] if request["prompt"] == prompt]
        ok = [request for request in rows if request["ok"]]
        cells = [_mean(ok, name) for name in _SHOWN]
        yield f"| {_escaped(prompt)} | {len(ok)}/{len(rows)} | {' | '.join(cells)} |"
    if phase["speculation"]:
        yield ""
        yield _speculation(phase["speculation"])


def _mean(requests: Sequence[Mapping[str, Any]], name: str) -> str:
    scale = 1000 if name in _MS else 1
    known = [value * scale for request in requests if (value := request[_MS.get(name, name)]) is not None]
    return format(sum(known) / len(known), _FORMS.get(name, ".0f")) if known else "-"


def _speculation(found: Mapping[str, Any]) -> str:
    figures = []
    for name in _OF_PHASE:
        value = found.get(name)
        if value is not None:
            shown = " ".join(f"{share:.2f}" for share in value) if isinstance(value, list) else f"{value:.2f}"
            figures.append(f"`{name}` {shown}")
    return f"Speculation: {found['status'].replace('_', ' ')}{', ' if figures else ''}{', '.join(figures)}"


def _one_line(text: Any) -> str:
    return " ".join(str(text).split())


def _escaped(text: str) -> str:
    return _one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
