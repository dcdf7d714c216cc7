"""Reading a request: every key by name, type and bounds, and none that nobody asked for."""

from __future__ import annotations

import json
import re
from typing import Any

from workers.hosts.helper.refusals import PERMISSION_DENIED, Misuse, Refused

LIMIT_BYTES = 1_048_576
"""Of a request, of the config, of each state file and of each unit file."""

OUR_UNIT = re.compile(r"expctl-[0-9]{1,19}(?:-[a-z0-9-]{1,80})?\.service")
LISTED_UNIT = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9:_.\\@-]{0,200}\.service")
"""A unit that an admin may list. No blank, no slash, and nothing that systemctl takes for a pattern."""
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
"""Not a number: `User=0` would be root."""
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
OWNER = re.compile(r"[A-Za-z0-9._:@/#+ -]{1,200}")
SHA256 = re.compile(r"[0-9a-f]{64}")
INVOCATION = re.compile(r"[0-9a-f]{32}")
CURSOR = re.compile(r"(?:[a-z][A-Za-z0-9=;_-]{0,500})?")
SENTENCE = re.compile(r"[ -~]{1,500}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
MOST_WORDS = 4096


class Fields:
    """One object of a request. Reading a key takes it out; `done` refuses what is left."""

    def __init__(self, value: Any, what: str) -> None:
        if not isinstance(value, dict):
            raise Misuse(f"{what} must be an object")
        self._left = dict(value)
        self._what = what

    def done(self) -> None:
        """Refuse keys that nobody read: they would mean something to a newer helper, and be ignored by this one."""
        if self._left:
            raise Misuse(f"{self._what} has unknown keys: {', '.join(sorted(map(repr, self._left)))}")

    def has(self, name: str) -> bool:
        """Given, and not null."""
        return self._left.get(name) is not None

    def take(self, name: str) -> Any:
        """The value as it is; None where it is missing."""
        return self._left.pop(name, None)

    def text(self, name: str, pattern: re.Pattern[str]) -> str:
        """A text that matches as a whole."""
        value = self.take(name)
        if not isinstance(value, str):
            raise Misuse(f"{self._what}: {name} must be a text")
        if pattern.fullmatch(value) is None:
            raise Refused(PERMISSION_DENIED, f"{name} {value[:200]!r} is not of the form {pattern.pattern}")
        return value

    def text_or_none(self, name: str, pattern: re.Pattern[str]) -> str | None:
        """As `text`, or None where it is missing or null."""
        return self.text(name, pattern) if self.has(name) else self.take(name)

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """A number within bounds."""
        value = self.take(name)
        if value is None and default is not None:
            return default
        # bool is an int in Python, and never what was meant; NaN is within no bounds.
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise Misuse(f"{self._what}: {name} must be a number from {low} to {high}")
        return value

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number within bounds."""
        value = self.number(name, low, high, default)
        if not isinstance(value, int):
            raise Misuse(f"{self._what}: {name} must be a whole number")
        return value

    def flag(self, name: str) -> bool:
        """True or false; false where it is missing."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise Misuse(f"{self._what}: {name} must be true or false")
        return bool(value)

    def texts(self, name: str) -> list[str]:
        """A list of texts that systemd can carry; empty where it is missing or null."""
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > MOST_WORDS:
            raise Misuse(f"{self._what}: {name} must be a list of at most {MOST_WORDS} texts")
        return [plain(one, f"{self._what}: {name}") for one in value]

    def pids(self, name: str) -> list[int]:
        """A list of process ids; empty where it is missing or null."""
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > MOST_WORDS:
            raise Misuse(f"{self._what}: {name} must be a list of at most {MOST_WORDS} numbers")
        return [Fields({"pid": one}, name).integer("pid", 1, 2**31) for one in value]

    def table(self, name: str) -> dict[str, str]:
        """Texts by name of a variable; empty where it is missing or null."""
        value = self.take(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or len(value) > MOST_WORDS:
            raise Misuse(f"{self._what}: {name} must be an object of at most {MOST_WORDS} texts")
        for key in value:
            if VARIABLE.fullmatch(key) is None:
                raise Refused(PERMISSION_DENIED, f"{key[:200]!r} is not the name of a variable")
        return {key: plain(one, f"{self._what}: {name}.{key}") for key, one in value.items()}


def plain(value: Any, what: str) -> str:
    """A text without NUL and half surrogates, which no argument and no variable can hold."""
    if not isinstance(value, str):
        raise Misuse(f"{what} must be a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Misuse(f"{what} is not valid Unicode") from None
    if "\0" in value:
        raise Misuse(f"{what} has a NUL")
    return value


def parsed(raw: bytes, what: str) -> Any:
    """JSON, strictly: no key twice, no NaN, at most 1 MiB."""
    if len(raw) > LIMIT_BYTES:
        raise Misuse(f"{what} is longer than {LIMIT_BYTES} bytes")
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"{what} is not JSON: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice")
    return table


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
