"""A log file read piece by piece: whole lines, and a cursor that survives a restart, a new invocation and a truncated file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workers.hosts.base import LogChunk


def read_chunk(path: Path, invocation_id: str, start: int, cursor: str | None, limit_bytes: int, ended: Callable[[], bool]) -> LogChunk:
    """Whole lines after `cursor`, which is `<invocation>:<byte offset>`; a cursor of another invocation reads from `start`.

    A last line without its newline is given once `ended` says that nobody writes any more. A line longer than the limit is
    given in pieces, since waiting for its end would mean waiting for ever.
    """
    piece, offset, size = _read(path, _offset(cursor, invocation_id, start), start, limit_bytes)
    whole = piece.rfind(b"\n") + 1
    if whole < len(piece) and offset + len(piece) >= size and len(piece) < limit_bytes and ended():
        # Asked first, read again after: what is there now is the last word.
        piece, offset, size = _read(path, offset, start, limit_bytes)
        whole = len(piece) if offset + len(piece) >= size else piece.rfind(b"\n") + 1
    if whole == 0 and len(piece) >= limit_bytes:
        whole = _character_boundary(piece)
    lines = piece[:whole].removesuffix(b"\n").split(b"\n") if whole else []
    # PostgreSQL takes no NUL in text, and a NUL says nothing to people either.
    texts = tuple(line.decode("utf-8", "replace").replace("\0", "�") for line in lines)
    return LogChunk(lines=texts, cursor=f"{invocation_id}:{offset + whole}", at_end=offset + len(piece) >= size)


def _offset(cursor: str | None, invocation_id: str, start: int) -> int:
    invocation, _, number = (cursor or "").rpartition(":")
    return int(number) if invocation == invocation_id and number.isdecimal() else start


def _read(path: Path, offset: int, start: int, limit_bytes: int) -> tuple[bytes, int, int]:
    """Bytes from `offset`, the offset really used, and the file's size. A file that shrank is read from its start."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if offset > size:
                offset = start if start <= size else 0
            file.seek(offset)
            return file.read(limit_bytes), offset, size
    except FileNotFoundError:
        return b"", 0, 0


def _character_boundary(piece: bytes) -> int:
    """Where to cut so that no UTF-8 character is split."""
    end = len(piece)
    while end > len(piece) - 4 and end > 1 and piece[end - 1] & 0xC0 == 0x80:  # noqa: PLR2004 - continuation bytes are 10xxxxxx
        end -= 1
    return end - 1 if end > 1 and piece[end - 1] & 0xC0 == 0xC0 else len(piece)  # noqa: PLR2004 - leading bytes are 11xxxxxx
