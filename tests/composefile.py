"""docker-compose.yml as a test reads it: parsed, and with the variables that a person would have set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "docker-compose.yml"
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")


class Unset(Exception):
    """A variable that has to be set is not; the message is the file's own."""


def read() -> dict[str, Any]:
    """The file, with its anchors merged and its variables as they stand there."""
    found: dict[str, Any] = YAML(typ="safe").load(COMPOSE)
    return found


def variables() -> dict[str, str]:
    """Every variable, and what the file says of it: `?` and the reason why it must be set, `-` and its default, or nothing."""
    return {found["name"]: f"{found['kind'] or ''}{found['rest'] or ''}" for found in _VARIABLE.finditer(COMPOSE.read_text())}


def filled_in(value: Any, given: Mapping[str, str]) -> Any:
    """The same with variables replaced, as compose does it."""
    if isinstance(value, dict):
        return {key: filled_in(item, given) for key, item in value.items()}
    if isinstance(value, list):
        return [filled_in(item, given) for item in value]
    return _VARIABLE.sub(lambda found: _value(found, given), value) if isinstance(value, str) else value


def _value(found: re.Match[str], given: Mapping[str, str]) -> str:
    if given.get(found["name"]):
        return given[found["name"]]
    if found["kind"] == "-":
        return str(found["rest"])
    raise Unset(found["rest"])
