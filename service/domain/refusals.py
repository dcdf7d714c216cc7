"""What a model refuses, in our words: pydantic's speak of inputs and of regular expressions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from service.domain.spec import NOT_BEFORE, NOTIFIER
from service.domain.spec_base import NAME

LARGEST = 2**64 - 1
SMALLEST = -(2**63)

_PLAIN = {
    "missing": "is missing",
    "extra_forbidden": "there is no such key",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "has too many digits",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "string_unicode": "must be text in UTF-8",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
}
_LIMITS = {
    "greater_than_equal": "must be {ge} or more",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be {le} or less",
    "less_than": "must be less than {lt}",
    "string_too_short": "must have {min_length} characters or more",
    "string_too_long": "may have at most {max_length} characters",
    "too_short": "must have {min_length} entries or more",
    "too_long": "may have at most {max_length} entries",
}
_PATTERNS = {
    NAME: "must be one line of text with something to see in it",
    NOT_BEFORE: "write a time such as 22:00 or 2026-12-01T22:00",
    NOTIFIER: "name a notifier, such as infra or slack:infra",
    r"^[^\x00]*$": "may not hold a NUL",
}
_BY_KEY = {
    "base_url": "write it like http://127.0.0.1:8000/v1",
    "metrics_url": "write it like http://127.0.0.1:8000/metrics, or: off",
    "ids": "write ids with commas between them, such as 2,3",
    "last-event-id": "must be the id of an event",
}
"""For patterns of single keys."""


def refusal(problem: Mapping[str, Any]) -> str:
    """One error of a validation, to be read after the place where it stands."""
    kind, context = str(problem["type"]), problem.get("ctx") or {}
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == "string_pattern_mismatch":
        key = str(problem["loc"][-1]) if problem["loc"] else ""
        return _PATTERNS.get(str(context.get("pattern"))) or _BY_KEY.get(key, "is not written as it should be")
    if kind in {"literal_error", "enum"}:
        return f"must be {context['expected']}"
    if kind == "json_invalid":
        return f"is not JSON: {context['error']}"
    return _limit(kind, context) or str(problem["msg"]).removeprefix("Value error, ")


def _limit(kind: str, context: Mapping[str, Any]) -> str | None:
    """A number, a text or a list that is too small or too large."""
    limit = {key: f"{value:.15g}" for key, value in context.items() if isinstance(value, int | float)}
    if limit.get("min_length") == "1":
        return "may not be empty"
    return _LIMITS[kind].format(**limit) if kind in _LIMITS else None


def unusable_number(value: Any, path: tuple[str | int, ...] = ()) -> tuple[tuple[str | int, ...], str] | None:
    """Where in plain values a number stands that JSON or a program of ours could not carry, and what is wrong with it."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return next((found for key, item in items if (found := unusable_number(item, (*path, key)))), None)
    if isinstance(value, float) and not math.isfinite(value):
        return path, f"{value} is no number that could be passed on"
    if isinstance(value, int) and not SMALLEST <= value <= LARGEST:
        return path, "has more than 64 bits"
    return None


def unusable_text(value: Any) -> str | None:
    """The first text among plain values that holds half a character: half a surrogate pair is none at all."""
    if isinstance(value, str):
        return value if any("\ud800" <= sign <= "\udfff" for sign in value) else None
    items = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return next((found for item in items if (found := unusable_text(item)) is not None), None)
