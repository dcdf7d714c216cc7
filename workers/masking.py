"""Secrets never reach the database, whatever a server or an engine prints of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SHORTEST = 6
"""A shorter text may stand anywhere by chance; blotting it out would only mislead."""
BLOT = "***"


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
