"""Which of vLLM's n-gram proposers ran: acceptance lengths mean the same only within one family."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_NUMBA_FROM, _GPU_V2_FROM = (0, 10, 1), (0, 32, 0)


def ngram_family(version: str | None, facts: Mapping[str, object], method: str | None) -> str | None:
    """`legacy`, `numba`, `gpu_v1` or `gpu_v2`; None where method or version is not known, or it is no n-gram.

    From 0.32 the model runner decides: V2 brings a proposer that always drafts and takes the last match.
    """
    if method not in {"ngram", "ngram_gpu"}:
        return None
    numbers = version_numbers(version)
    runner = facts.get("model_runner")
    if runner == "V2":
        return "gpu_v2" if numbers is None or numbers >= _GPU_V2_FROM else None
    if method == "ngram_gpu":
        return "gpu_v1" if numbers is not None and (runner == "V1" or numbers < _GPU_V2_FROM) else None
    if numbers is None:
        return "numba" if runner == "V1" else None
    if numbers < _NUMBA_FROM:
        return "legacy"
    return "numba" if numbers < _GPU_V2_FROM or runner == "V1" else None


def version_numbers(version: str | None) -> tuple[int, int, int] | None:
    """`0.10.2rc1` -> (0, 10, 2)."""
    match = _VERSION.match(version or "")
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


_METHODS = (
    re.compile(r"speculative_config=SpeculativeConfig\(.{0,80}?method='(\w{1,40})'"),
    re.compile(r"method['\"]: ['\"](\w{1,40})['\"]"),
)
"""Each begins with a word, which is found faster in a long line than one of several signs."""


def speculative_method(message: str) -> str | None:
    """The method in the line by which vLLM repeats its configuration."""
    match = next(filter(None, (pattern.search(message) for pattern in _METHODS)), None)
    return match[1] if match else None
