"""A token as text: 256 random bits that can be recognised, checked for typing errors, and kept as a hash alone.

`expctl_`, 43 letters and digits, and six more that are a checksum of those: a scanner for leaked secrets finds it without doubt, and
one that was cut off or mistyped is told from one that is wrong. It is one word, so that a double click takes all of it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PREFIX = "expctl_"
LENGTH, CHECK_LENGTH = 43, 6
PATTERN = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{LENGTH}}})([0-9A-Za-z]{{{CHECK_LENGTH}}})")
SHOWN = len(PREFIX) + 6


def make() -> str:
    """A new token."""
    body = _written(secrets.randbits(256), LENGTH)
    return f"{PREFIX}{body}{_checksum(body)}"


def well_formed(text: str) -> bool:
    """Whether it can be a token at all: its form and its checksum are right."""
    found = PATTERN.fullmatch(text)
    return found is not None and _checksum(found[1]) == found[2]


def digest(token: str) -> str:
    """What is kept of it. Nobody can try 2^256 tokens, so nothing is gained by a slow hash, or by a salt.

    A token is found by its hash with an index. How long that takes says nothing of use: an attacker would have to choose tokens by
    their hashes, so there is nothing to compare in constant time.
    """
    return hashlib.sha256(token.encode()).hexdigest()


def shown(token: str) -> str:
    """Its first letters, to tell it from others."""
    return token[:SHOWN]


def _checksum(body: str) -> str:
    return _written(zlib.crc32(body.encode()), CHECK_LENGTH)


def _written(number: int, length: int) -> str:
    letters = []
    for _ in range(length):
        number, digit = divmod(number, len(DIGITS))
        letters.append(DIGITS[digit])
    return "".join(reversed(letters))
