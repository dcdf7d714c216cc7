"""Changing the settings of a host: what is given is laid over what is known, and refused in words that a person understands."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from service.domain.errors import UsageError
from service.domain.host_config import HostConfig
from service.domain.refusals import refusal
from service.domain.specfile import ENGINE_KINDS

HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")

FREE = frozenset({"window", "time_zone", "close_after", "dead_man", "restore_timeout", "hooks", "production_address", "production_api_key"})
"""What may change while a shift is open: it decides when production comes back, how long that may take and how it is proven, and
a wrong proof has to be corrected just then. All else says which host, which units and which ports the shift has in hand; with
other settings it would look for them elsewhere, and what it parked would stay parked."""

_WRITTEN = {
    "ssh": "write it like user@host, user@host:port or an alias of ssh_config",
    "park": "write the whole name of a systemd unit, such as vllm-kimi.service",
    "engine_address": "write it like http://10.0.0.5, without a port",
    "production_address": "write it like http://10.0.0.5:8000",
    "production_api_key": "write a reference such as env:VLLM_API_KEY",
}


def check_name(name: object) -> str:
    """The name of a host: it stands in addresses, in file names and in the names of queues."""
    if isinstance(name, str) and HOST_NAME.fullmatch(name):
        return name
    raise UsageError(
        f"{name!r:.80} is no name for a host",
        "letters, digits, dots and dashes are possible, 63 of them at most, beginning and ending with a letter or a digit",
        "such as llm-two",
    )


def changed(known: Mapping[str, Any], given: Mapping[str, Any]) -> HostConfig:
    """The settings with those given laid over those known. Null is back to the default; in a mapping, each key counts for itself."""
    merged = dict(known)
    for key, value in given.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both else value
        if isinstance(value, dict):
            merged[key] = {inner: item for inner, item in merged[key].items() if item is not None}
    merged = {key: value for key, value in merged.items() if value is not None}
    try:
        config = HostConfig.model_validate(merged)
    except ValidationError as error:
        problems = [_sentence(dict(problem)) for problem in error.errors(include_url=False)]
        raise UsageError("these settings are not possible", "\n".join(problems), "see `expctl host add --help`") from None
    unknown = [kind for kind in config.executables if "executable" not in getattr(ENGINE_KINDS.get(kind), "model_fields", {})]
    if unknown:
        kinds = ", ".join(kind for kind, model in ENGINE_KINDS.items() if "executable" in model.model_fields)
        raise UsageError(f"executables: no engine of the kind {unknown[0]!r} is started by expctl", f"kinds: {kinds}", "")
    return config


def locked(before: Mapping[str, Any], after: HostConfig) -> list[str]:
    """The settings that differ and may not change while a shift is open."""
    return [key for key in differing(before, after) if key not in FREE]


def differing(before: Mapping[str, Any], after: HostConfig) -> list[str]:
    """The settings that differ, defaults written out on both sides."""
    old, new = HostConfig.model_validate(before).model_dump(mode="json"), after.model_dump(mode="json")
    return [key for key in new if new[key] != old[key]]


def _sentence(problem: Mapping[str, Any]) -> str:
    path = [str(part) for part in problem["loc"]]
    where = ".".join(path)
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(path[-1], HostConfig.model_fields, n=1)
        return f"{where}: there is no such setting" + (f"; did you mean {close[0]}?" if close else "")
    if problem["type"] == "string_pattern_mismatch" and path[0] in _WRITTEN:
        return f"{where}: {_WRITTEN[path[0]]}"
    return f"{where}: {refusal(problem)}" if where else refusal(problem)
