"""What is kept of a stream."""

from __future__ import annotations

import pytest

from workers.hosts.kept import Kept, KeptAfter


def fed(kept: Kept, *pieces: bytes) -> Kept:
    for piece in pieces:
        kept.feed(piece)
    return kept


@pytest.mark.parametrize(
    ("pieces", "data", "truncated"), [([b"abc"], b"abc", False), ([b"ab", b"cd"], b"abc", True), ([b"abc", b""], b"abc", False)]
)
def test_the_first_bytes_are_kept(pieces: list[bytes], data: bytes, *, truncated: bool) -> None:
    kept = fed(Kept(3), *pieces)
    assert (kept.data, kept.truncated) == (data, truncated)


@pytest.mark.parametrize("size", range(1, 12))
def test_a_mark_may_be_cut_anywhere(size: int) -> None:
    stream = b"noise MA noMARK\nafterMARK\n"
    kept = KeptAfter(b"MARK\n", 100)
    fed(kept, *(stream[start : start + size] for start in range(0, len(stream), size)))
    assert (kept.begun, kept.data, kept.noise.data) == (True, b"afterMARK\n", b"noise MA no")


def test_without_a_mark_all_is_noise_and_a_little_of_it_is_kept() -> None:
    kept = KeptAfter(b"MARK\n", 100)
    fed(kept, b"x" * 10_000, b"MAR")
    kept.close()
    assert (kept.begun, kept.data, kept.truncated) == (False, b"", False)
    assert len(kept.noise.data) == KeptAfter.NOISE_BYTES
    short = KeptAfter(b"MARK\n", 100)
    fed(short, b"no MAR")
    short.close()
    assert short.noise.data == b"no MAR"
