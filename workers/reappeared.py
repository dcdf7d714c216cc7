"""Production that was parked and is there again: who brought it back."""

from __future__ import annotations

from collections.abc import Sequence

from service.domain.reasons import Reason
from workers.hosts.base import ProductionHost, UnitPhase
from workers.steps.base import ShiftOver


def reappeared(host: ProductionHost, park: Sequence[str], boot_id: str | None) -> ShiftOver | None:
    """Why nothing more may be run on a host whose production was parked in that boot; None while all is as it was left."""
    states = [host.unit(name) for name in park]
    living = [name for name, state in zip(park, states, strict=True) if state.phase == UnitPhase.ACTIVE]
    if boot_id is not None and any(state.boot_id not in {None, boot_id} for state in states):
        # Also where production is not there yet: it may be about to start, and then it would meet an experiment.
        more = f", and {', '.join(living)} started by itself" if living else ""
        return ShiftOver(Reason.HOST_REBOOTED, f"the host was rebooted while production was parked{more}")
    if not living:
        return None
    fired = host.given_back()
    if fired is not None:
        return ShiftOver(Reason.HOST_UNREACHABLE, fired.story)
    return ShiftOver(Reason.PRODUCTION_STARTED_BY_HAND, f"{', '.join(living)} was started by hand")
