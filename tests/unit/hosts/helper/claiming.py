"""What a worker asks of the helper: a claim, the dead-man's arming, and room for an experiment."""

from __future__ import annotations

from typing import Any

from tests.unit.hosts.helper.box import CLAIM, PARKED, PRODUCTION, SERVICE, UNIT, Inside

HERE = {"claim": CLAIM, "unit": UNIT}
SECOND = "embedder.service"


def arm(inside: Inside, claim: dict[str, Any] = CLAIM, ttl_s: float = 600, units: tuple[str, ...] = (PARKED,)) -> dict[str, Any]:
    parked = [{"unit": unit, "sha256": inside.good("source", {"unit": unit})["sha256"], "live_argv": ["a"]} for unit in units]
    return inside.good("arm", {"claim": claim, "ttl_s": ttl_s, "record": {"parked": parked}})


def claim(fence: int, owner: str = "worker@here") -> dict[str, Any]:
    return {"service": SERVICE, "owner": owner, "fence": fence}


def state_of(inside: Inside, unit: str) -> str:
    return inside.good("status", {"unit": unit})["show"]["ActiveState"]  # type: ignore[no-any-return]


def park(inside: Inside, *units: str, ttl_s: float = 600) -> None:
    """Production serves, is recorded, and makes room for an experiment."""
    units = units or (PARKED,)
    inside.box.configure(parked=list(units))
    for unit in units:
        inside.box.source(unit, PRODUCTION)
        inside.box.systemctl("start", unit)
    arm(inside, ttl_s=ttl_s, units=units)
    for unit in units:
        inside.good("stop", {"claim": CLAIM, "unit": unit})
    inside.good("write-unit", {**HERE, "argv": ["/bin/engine"], "conflicts": list(units)})
    inside.good("start", HERE)


def renew(inside: Inside, ttl_s: float = 600, who: dict[str, Any] = CLAIM) -> dict[str, Any]:
    return inside.ask("arm", {"claim": who, "ttl_s": ttl_s})
