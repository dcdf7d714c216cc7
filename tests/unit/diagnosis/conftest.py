"""Recorded evidence, and what it means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

DATA = Path(__file__).parents[2] / "data"


def cases(topic: str) -> list[dict[str, Any]]:
    """`{name, input, expect}` of one file of tests/data/diagnosis."""
    return list(YAML(typ="safe").load(DATA / "diagnosis" / f"{topic}.yaml"))


def flat(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer as JSON would carry it, its facts beside its keys."""
    plain = json.loads(json.dumps(answer))
    return {**plain.get("facts", {}), **plain}


def agrees(want: Any, got: Any) -> bool:
    """Whether an answer says what is expected: the keys named, numbers within half a percent."""
    if isinstance(want, dict):
        return isinstance(got, dict) and all(key in got and agrees(value, got[key]) for key, value in want.items())
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(agrees, want, got))
    if isinstance(want, bool) or want is None or isinstance(got, bool):
        return want is got
    if isinstance(want, int | float) and isinstance(got, int | float):
        return abs(want - got) <= max(0.005 * abs(want), 0.0006)
    return want == got


def differences(expect: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Keys whose value is not the expected one, with the one that came. Evidence and warnings need only begin so."""
    have = flat(answer)
    wrong = {}
    for key, want in expect.items():
        got = have.get(key, "absent")
        if key == "evidence":
            right = isinstance(got, str) and want in got
        elif key == "warnings":
            right = len(got) == len(want) and all(one.startswith(begin) for begin, one in zip(want, got, strict=True))
        elif key == "facts":
            right = agrees(want, have.get("facts"))
        else:
            right = agrees(want, got)
        if not right:
            wrong[key] = got
    return wrong
