"""A diagnosis for people: state, cause, the line that says so, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

STATES = {
    "loading": "loading",
    "ready": "ready",
    "not_ready": "not ready",
    "failed": "failed",
    "stalled": "it stands still",
    "stopped": "stopped",
}
_STYLES = {"ready": "green", "failed": "red", "stalled": "red", "not_ready": "yellow"}
_NOT_SHOWN = frozenset({"message_text", "messages", "lines", "all_levels_parsed", "hint", "cards"})
_MOST_FACTS = 24
_MOST_SHOWN, _OF_THE_END = 500, 160


def draw(console: Console, answer: Mapping[str, Any]) -> None:
    """Print one diagnosis, or one a letter where the paste held several situations."""
    if answer and all(isinstance(value, dict) and len(name) == 1 for name, value in answer.items()):
        for letter, one in answer.items():
            console.print(f"{letter}:", style="bold", markup=False)
            draw(console, one)
        return
    lines = list(_lines(answer))
    if not lines:
        console.print("nothing in it is known: neither an engine's words, nor systemd's, a GPU tool's or a counter's", markup=False)
    width = max((len(name) for name, _, _ in lines), default=0)
    for name, text, style in lines:
        first, *rest = text.split("\n")
        console.print(f"{name:<{width}}  {first}", style=style, markup=False, soft_wrap=True)
        for line in rest:
            console.print(f"{'':<{width}}  {line}", style=style, markup=False, soft_wrap=True)


def _lines(answer: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    state = answer.get("state")
    if state:
        engine = " ".join(str(part) for part in (answer.get("engine"), answer.get("engine_version")) if part)
        yield "state", f"{STATES.get(state, state)}{f' ({engine})' if engine else ''}", _STYLES.get(state)
    if answer.get("phase"):
        yield "phase", _phase(answer), None
    if answer.get("reason"):
        told = answer.get("reason_text")
        yield "reason", f"{told} ({answer['reason']})" if told else str(answer["reason"]), "red" if state in {"failed", "stalled"} else None
    for name, key in (("component", "component"), ("evidence", "evidence"), ("remedy", "remedy")):
        if answer.get(key):
            yield name, shortened(str(answer[key])), "bold" if name == "remedy" else None
    if answer.get("retriable") is not None and answer.get("reason"):
        yield "retry", "may help" if answer["retriable"] else "does not help by itself", None
    yield from _unit(answer)
    yield from _gpu(answer)
    yield from _speculation(answer)
    yield from _facts(answer.get("facts") or {})
    for warning in answer.get("warnings") or []:
        yield "warning", str(warning), "yellow"


def shortened(text: str) -> str:
    """Each long line without its middle: its end tells too, for there stands the value that was refused."""
    end = _OF_THE_END
    lines = (line if len(line) <= _MOST_SHOWN else f"{line[: _MOST_SHOWN - end - 5]} ... {line[-end:]}" for line in text.split("\n"))
    return "\n".join(lines)


def _phase(answer: Mapping[str, Any]) -> str:
    from service.domain.wording import LOAD_PHASES  # noqa: PLC0415 - only where a phase is known

    text = LOAD_PHASES.get(str(answer["phase"]), str(answer["phase"]))
    text += f", {answer['stage']}" if answer.get("stage") else ""
    if answer.get("total"):
        text += f" {answer.get('done')}/{answer['total']}"
    return text + (f" ({answer['percent']:.0f} %)" if answer.get("percent") is not None else "")


def _unit(answer: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    parts = [
        f"{name.replace('_', ' ')} {answer[name]}"
        for name in ("unit_state", "exit_status", "signal", "restarts")
        if answer.get(name) is not None
    ]
    if parts:
        yield "unit", ", ".join(parts), None
    if answer.get("command"):
        yield "command", str(answer["command"]).replace("_", " "), None
    if answer.get("argv"):
        import shlex  # noqa: PLC0415 - only for a unit

        yield "runs", shlex.join(answer["argv"]), None


def _gpu(answer: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    if "gpu_freed" not in answer:
        return
    freed = answer["gpu_freed"]
    yield "GPUs", "free" if freed else "not free" if freed is False else "not known, and so not free", None if freed else "yellow"
    for gpu in answer.get("gpus") or []:
        used, total = ("?" if gpu[name] is None else gpu[name] for name in ("used_mib", "total_mib"))
        yield f"GPU {gpu['index']}", f"{used} of {total} MiB used", None
    for one in answer.get("processes") or []:
        yield "holds", f"pid {one['pid']} ({one['name'] or 'no name'}) {one['used_mib'] if one['used_mib'] is not None else '?'} MiB", None


def _speculation(answer: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    spans = [answer] if "status" in answer else list(answer.get("speculation") or [])[-1:]
    for span in spans:
        length, rate = span.get("mean_acceptance_length"), span.get("draft_acceptance_rate")
        figures = f", acceptance length {length:.2f}" if length is not None else ""
        figures += f", {100 * rate:.1f} % of drafts accepted" if rate is not None else ""
        yield "speculation", f"{span.get('status')}{figures}", None


def _facts(facts: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    shown = {name: value for name, value in facts.items() if name not in _NOT_SHOWN and value is not None}
    if shown:
        listed = list(shown.items())
        more = [f"and {len(listed) - _MOST_FACTS} more with --json"] if len(listed) > _MOST_FACTS else []
        yield "figures", ", ".join([*(f"{name} {value}" for name, value in listed[:_MOST_FACTS]), *more]), None
