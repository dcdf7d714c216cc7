"""What can happen to a deployed service. Each returns when whoever looks after it has started it again."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.acceptance.installation import API, STEWARD

if TYPE_CHECKING:
    from tests.lab.chaos.lane import Lane


def _worker_killed(lane: Lane) -> None:
    part = lane.installation.parts[lane.worker]
    part.kill()
    part.start()


def _api_killed(lane: Lane) -> None:
    lane.installation.parts[API].kill()
    lane.installation.start_api()


def _steward_killed(lane: Lane) -> None:
    lane.installation.parts[STEWARD].kill()
    lane.installation.start_steward()


def _redis_killed(lane: Lane) -> None:
    lane.redis.restart()


def _redis_emptied(lane: Lane) -> None:
    lane.redis.restart(empty=True)


def _postgres_restarted(lane: Lane) -> None:
    lane.postgres.crash()
    lane.postgres.start()


def _postgres_gone(lane: Lane) -> None:
    lane.postgres.crash()
    lane.pause(1.5 * lane.lease_s)
    lane.postgres.start()


def _worker_frozen(lane: Lane) -> None:
    """It sleeps past its lease, another one takes over, and then it wakes up."""
    frozen = lane.installation.parts[lane.worker]
    fence = lane.fence()
    frozen.signal(signal.SIGSTOP)
    try:
        lane.start_another_worker()
        lane.until(lambda: lane.fence() > fence, "another worker has taken over")
    finally:
        frozen.signal(signal.SIGCONT)
    frozen.stop()


FAULTS: dict[str, Callable[[Lane], None]] = {
    "worker killed": _worker_killed,
    "worker frozen past its lease": _worker_frozen,
    "API killed": _api_killed,
    "steward killed": _steward_killed,
    "Redis killed": _redis_killed,
    "Redis killed and emptied": _redis_emptied,
    "PostgreSQL killed": _postgres_restarted,
    "PostgreSQL gone for longer than a lease": _postgres_gone,
}
