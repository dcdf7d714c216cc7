"""Which process of an engine a line comes from: the same role has had many names."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

_ROLES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"api_?server", re.IGNORECASE), "api_server"),
    (re.compile(r"engine_?core", re.IGNORECASE), "engine_core"),
    (re.compile(r"dp_?coordinator", re.IGNORECASE), "coordinator"),
    (re.compile(r"worker|^(?:TP|DP|PP|EP)\d", re.IGNORECASE), "worker"),
)
_RANKS = re.compile(r"(?<![A-Za-z])(DP|TP|PP|EP|PCP|DCP|ETP)(\d{1,4})(?!\d)")
_INDEX = re.compile(r"[A-Za-z][_-](\d{1,4})$")
_RANK = re.compile(r" rank=(\d{1,4})")


@dataclass(frozen=True)
class Speaker:
    """A process by its prefix; None for what the prefix does not say."""

    role: str | None
    index: int | None = None
    pid: int | None = None
    rank: int | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None

    def as_json(self) -> dict[str, object]:
        """Every field by name."""
        return asdict(self)


def speaker(process: str | None, pid: int | None) -> Speaker:
    """Read `APIServer`, `ApiServer_1`, `EngineCore_DP0`, `Worker_TP1_EP1`, `VllmWorker rank=2`, `VllmWorkerProcess`, `DP0_TP1`."""
    if process is None:
        return Speaker(None)
    role = next((role for pattern, role in _ROLES if pattern.search(process)), None)
    ranks = {name.lower(): int(number) for name, number in _RANKS.findall(process)}
    index, rank = _INDEX.search(process), _RANK.search(process)
    return Speaker(
        role=role,
        index=int(index[1]) if index else None,
        pid=pid,
        rank=int(rank[1]) if rank else None,
        dp=ranks.get("dp"),
        tp=ranks.get("tp"),
        pp=ranks.get("pp"),
        ep=ranks.get("ep"),
    )


DEPTH: dict[str | None, int] = {"worker": 0, "engine_core": 1, "coordinator": 2, "api_server": 3, None: 0}
"""How near a process is to where things go wrong; a line without a prefix may be anybody's."""
