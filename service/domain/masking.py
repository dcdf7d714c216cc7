"""Secrets never reach the database or a log, whatever a server or an engine prints of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

SHORTEST = 6
"""A shorter text may stand anywhere by chance; blotting it out would only mislead."""
BLOT = "***"

_TELLING_NAME = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(API|ACCESS|PRIVATE|SIGNING)_?KEY)S?$", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")
_LOOKS = (
    (_URL_PASSWORD, rf"\1:{BLOT}@"),
    (re.compile(r"\bexpctl_[0-9A-Za-z]{20,}"), f"expctl_{BLOT}"),
    (re.compile(r"\bwhsec_[0-9A-Za-z+/=_-]+"), f"whsec_{BLOT}"),
    (re.compile(r"(hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/)[\w/-]+"), rf"\1{BLOT}"),
    (re.compile(r"\b(bearer|basic)\s+[0-9A-Za-z._~+/=-]{6,}", re.IGNORECASE), rf"\1 {BLOT}"),
)
"""What can be told for a secret by its looks alone."""


class Mask:
    """Replaces secrets in texts, and in texts inside of lists and mappings."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # Longest first: one secret may begin with another.
        self._secrets = sorted((one for one in set(secrets) if len(one) >= SHORTEST), key=len, reverse=True)

    def text(self, value: str) -> str:
        """A text without secrets."""
        for secret in self._secrets:
            value = value.replace(secret, BLOT)
        return value

    def __call__(self, value: Any) -> Any:
        """Any value of JSON's kinds without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self(item) for item in value]
        return value


class LogMask(Mask):
    """The same for a log line: also what has the looks of a secret, and values of any kind, as they would be written."""

    def text(self, value: str) -> str:
        """A text without secrets."""
        value = super().text(value)
        for looks, instead in _LOOKS:
            value = looks.sub(instead, value)
        return value

    def __call__(self, value: Any) -> Any:
        """Any value without secrets."""
        if value is None or isinstance(value, bool | int | float):
            return value
        return super().__call__(value if isinstance(value, str | dict | list | tuple) else str(value))


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """The values of an environment that are secret by their names, and the passwords in its addresses."""
    found = [value for name, value in environ.items() if _TELLING_NAME.search(name)]
    return found + [match[2] for value in environ.values() for match in _URL_PASSWORD.finditer(value)]
