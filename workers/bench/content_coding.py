"""Bodies that arrive compressed, though nobody asked for it: some proxies do not care."""

from __future__ import annotations

import zlib

KNOWN = frozenset({"gzip", "x-gzip", "deflate"})
_EITHER = 47
"""zlib's word for: gzip or zlib, whichever the first bytes say."""


class BadCoding(ValueError):
    """Bytes that are not what the head said, or in a way that is not known."""


class Unpacker:
    """Takes a compressed body in pieces, and gives what each of them completes."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inflate = zlib.decompressobj(_EITHER) if coding in KNOWN else None

    def feed(self, data: bytes) -> bytes:
        """The plain bytes. BadCoding where there are none to be had."""
        if self._inflate is None:
            raise BadCoding(f"the answer is compressed ({self._coding}) though none of that was asked for")
        try:
            return self._inflate.decompress(data)
        except zlib.error as error:
            raise BadCoding(f"the answer is no {self._coding}, though its head says so: {error}") from None
