"""Keys of an experiment as words of vLLM's command line."""

from __future__ import annotations

import json

from service.domain.engine_spec import Speculative
from service.domain.spec_base import ArgValue


def argument(name: str, value: ArgValue) -> list[str]:
    """One key of `engine.args` as command-line words: true --flag, false --no-flag, null nothing, dict or list JSON."""
    dashes = "-" if len(name) == 1 else "--"
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"{dashes}{name}" if value else f"--no-{name}"]
    text = compact_json(value) if isinstance(value, dict | list) else str(value)
    # A value that begins with a dash would be taken for the next option.
    return [f"{dashes}{name}={text}"] if text.startswith("-") and dashes == "--" else [f"{dashes}{name}", text]


def speculative_json(speculative: Speculative) -> str:
    """`--speculative-config` as written: our own keys where set, every other key as it is, null included."""
    values = speculative.model_dump(mode="json")
    own = type(speculative).model_fields
    return compact_json({key: value for key, value in values.items() if value is not None or key not in own})


def compact_json(value: object) -> str:
    """JSON without blanks, as people write it on a command line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
