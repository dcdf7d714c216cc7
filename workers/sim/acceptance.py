"""Which drafts are accepted: a low-discrepancy process with chosen proportions.

Step n of a request has the point frac(offset + n * phi) (golden ratio), which the inverse distribution maps to the length
accepted. Such a Weyl sequence fills the unit interval evenly: in any window of forty steps each share is right to within
three steps, and in a few hundred nearly exact. The offset depends on seed, prompt and the ordinal of the request among those
of its prompt, never on the order in which different prompts arrive.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

GOLDEN = 0.6180339887498949
SILVER = 0.4142135623730951  # frac(sqrt 2): another irrational, so that drafting and accepting are not in step


@dataclass(frozen=True)
class Verified:
    """One decode step: how many tokens were drafted and how many of them were accepted."""

    drafted: int
    accepted: int


def hash_unit(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts only, the same on every machine."""
    digest = hashlib.blake2b("\0".join(str(part) for part in parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def extend_positions(per_position: Sequence[float], length: int) -> list[float]:
    """Unconditional acceptance for `length` positions; beyond the known ones each is 0.85 of the one before."""
    extended = list(per_position[:length])
    while len(extended) < length:
        extended.append(extended[-1] * 0.85 if extended else 0.0)
    return extended


def steps(per_position: Sequence[float], coverage: float, offset: float, *, drafts: bool = True) -> Iterator[Verified]:
    """Decode steps without end. A step drafts with probability `coverage`; position i is accepted with probability `per_position[i]`."""
    if not drafts:
        yield from (Verified(0, 0) for _ in count())
    # P(accepted < i + 1) = 1 - per_position[i]: the inverse of this distribution maps a point to a length.
    edges = [1.0 - share for share in per_position]
    verifying = 0
    for n in count(1):
        if (offset * 7 + n * SILVER) % 1.0 >= coverage:
            yield Verified(0, 0)
            continue
        verifying += 1
        yield Verified(len(per_position), bisect_right(edges, (offset + verifying * GOLDEN) % 1.0))


def request_offset(seed: int, prompt: str, ordinal: int) -> float:
    """Where a request's sequence begins. The ordinals of one prompt are spread evenly too."""
    return (hash_unit(seed, prompt) + ordinal * SILVER) % 1.0
