"""Prompts: the built-in five, the warm-up's own, and files of JSON lines."""

from __future__ import annotations

import difflib
import json
from importlib import resources
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from service.domain.errors import UsageError
from service.domain.refusals import refusal
from service.domain.spec import Bench, Prompt

_TODO = (
    'write a line like {"id": "p", "messages": [{"role": "user", "content": "..."}], "max_tokens": 256}, or with "prompt" for plain text'
)


def resolve(bench: Bench) -> list[Prompt]:
    """The prompts that a benchmark measures."""
    return builtin_prompts() if isinstance(bench.prompts, str) else list(bench.prompts)


def builtin_prompts() -> list[Prompt]:
    """Code, maths, structured output, explanation and long reasoning."""
    return _packaged("five.jsonl")


def warmup_prompts() -> list[Prompt]:
    """Prompts that are never measured, so that no measured one finds itself in a prefix cache."""
    return _packaged("warmup.jsonl")


def _packaged(name: str) -> list[Prompt]:
    text = resources.files("workers.bench").joinpath("prompts", name).read_text(encoding="utf-8")
    return _parse(text, name)


def load_prompts(path: str | Path) -> list[Prompt]:
    """The prompts of a file with one JSON object a line; ids default to p0, p1 and so on."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"the prompts {file} cannot be read", error.strerror or str(error), "give the path of a JSONL file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"the prompts {file} are not UTF-8", str(error), "save the file as UTF-8") from None
    prompts = _parse(text, str(file))
    if not prompts:
        raise UsageError(f"{file} holds no prompt", "every line of it is empty", _TODO)
    return prompts


def _parse(text: str, source: str) -> list[Prompt]:
    prompts: list[Prompt] = []
    seen: dict[str, int] = {}
    # Not splitlines(): JSON may hold U+2028 and its like unescaped.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        prompt = _prompt(line, f"{source}, line {number}", len(prompts))
        if prompt.id in seen:
            raise UsageError(
                f"{source}, line {number}: the id {prompt.id} stands in line {seen[prompt.id]} already", "", "give each its own"
            )
        seen[prompt.id] = number
        prompts.append(prompt)
    return prompts


def _prompt(line: str, where: str, index: int) -> Prompt:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where} is not JSON", f"at column {error.colno}: {_plain(error.msg)}", _TODO) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, a list in a list in a list
        raise UsageError(f"{where} is not JSON", str(error), _TODO) from None
    if not isinstance(value, dict):
        raise UsageError(f"{where} is not a JSON object", "", _TODO)
    try:
        return Prompt.model_validate({"id": f"p{index}", **value})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise UsageError(f"{where} is not a prompt", _why(cast(dict[str, Any], problem), value), _TODO) from None


def _plain(said: str) -> str:
    """What the JSON reader says, as a person would."""
    return {"Extra data": "something stands behind the object", "Expecting value": "a value is missing"}.get(
        said, said[:1].lower() + said[1:]
    )


def _why(problem: dict[str, Any], value: dict[str, Any]) -> str:
    """Which key, what is wrong with it, and what stands there."""
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = [name for name in Prompt.model_fields if name not in value]
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        return f"unknown key {key}; " + (f"did you mean {close[0]}?" if close else f"known: {', '.join(Prompt.model_fields)}")
    shown = problem["input"]
    got = f" (it is {shown!r:.60})" if isinstance(shown, str | int | float | bool) or shown is None else ""
    return f"{key}: {refusal(problem)}{got}" if key else refusal(problem)
