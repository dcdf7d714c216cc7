"""What every table's columns share: how constraints are named, moments, JSON."""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Column, Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel

from service.store.database import UtcDateTime

SQLModel.metadata.naming_convention = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Set before the first table is made. A constraint without a name cannot be dropped by a migration."""


def utc_now() -> datetime:
    """Now, aware."""
    return datetime.now(UTC)


def time_column(*, nullable: bool = True) -> Any:
    """A moment, aware, in UTC."""
    return Column(UtcDateTime(), nullable=nullable)


def json_column() -> Any:
    """A value that is never null."""
    return Column(JSON, nullable=False)


_WIDTH = 4
"""Bytes of a token's id."""


def packed(ids: Sequence[int]) -> bytes | None:
    """Token ids as bytes: zlib over 32-bit numbers, first the lowest byte of every id, then the next of every id.

    Apart, the low bytes stay as they are and the high ones, which hardly vary, take no room. None for what is no id of 32 bits.
    """
    try:
        numbers = array("I", ids)
    except (OverflowError, TypeError):
        return None
    if sys.byteorder == "big":
        numbers.byteswap()
    plain = numbers.tobytes()
    return zlib.compress(b"".join(plain[place::_WIDTH] for place in range(_WIDTH)))


def unpacked(data: bytes) -> list[int]:
    """The token ids again."""
    planes = zlib.decompress(data)
    count = len(planes) // _WIDTH
    plain = bytearray(len(planes))
    for place in range(_WIDTH):
        plain[place::_WIDTH] = planes[place * count : (place + 1) * count]
    numbers = array("I")
    numbers.frombytes(bytes(plain))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


class TokenIds(TypeDecorator[list[int]]):
    """Token ids in a quarter to half of their room as JSON."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Sequence[int] | None, dialect: Dialect) -> bytes | None:
        """Packed; null where there are none."""
        del dialect
        return None if value is None else packed(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> list[int] | None:
        """As they were."""
        del dialect
        return None if value is None else unpacked(value)
