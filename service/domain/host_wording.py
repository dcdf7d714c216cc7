"""The words for what a host's shift is at: the same on the command line, in the API, on pages and in messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from service.domain.clock import clock
from service.domain.host_config import HostConfig
from service.domain.status import ShiftPhase

OUT_OF_HAND = frozenset({ShiftPhase.PARKING, ShiftPhase.PARKED, ShiftPhase.RESTORING})
"""Phases in which production does not serve, or is not proven to."""


@dataclass(frozen=True)
class HostMoment:
    """What is known of a host just now, as far as words need it."""

    name: str
    config: HostConfig
    now: datetime
    """In the reader's zone."""
    phase: ShiftPhase | None = None
    """Of the open shift; None: no shift is open."""
    opened_at: datetime | None = None
    parked: Mapping[str, Any] = field(default_factory=dict)
    open_by: str | None = None
    give_back_by: str | None = None
    unreachable_since: datetime | None = None
    silent: bool = False
    """Its worker went without handing the host back."""

    @property
    def due_back(self) -> datetime | None:
        """When the window closes that the shift was opened in; None outside of any."""
        window = self.config.opening
        return window.closes_at(self.opened_at) if window and self.opened_at else None


def shift_text(host: HostMoment) -> str:
    """Such as `production parked since 20:03 (vllm-kimi.service), back by 08:00`; empty where there is nothing to say."""
    parts = [f"unreachable since {_clock(host, host.unreachable_since)}"] if host.unreachable_since else []
    parts.append(_production(host))
    return "; ".join(part for part in parts if part)


def needs_person(host: HostMoment) -> bool:
    """Whether somebody should look: production is not back, or nobody may be there to bring it back."""
    out = host.phase in OUT_OF_HAND
    overdue = out and host.due_back is not None and host.due_back <= host.now
    return _not_restored(host) or overdue or (out and host.silent) or host.unreachable_since is not None


def waits_for_window(host: HostMoment) -> str | None:
    """Why nothing starts on a host whose production would have to be parked first; None where that may be done, or is."""
    if not host.config.park or host.phase in {ShiftPhase.PARKING, ShiftPhase.PARKED}:
        return None
    if host.phase == ShiftPhase.RESTORING:
        return "waits until production is back"
    window = host.config.opening
    if host.open_by or (window and window.closes_at(host.now)):
        return None
    return f"waits for the window (opens {_clock(host, window.next_opening(host.now))})" if window else _no_window(host)


def does_not_fit(host: HostMoment) -> str:
    """Why an experiment waits that would not end before production has to come back."""
    window = host.config.opening
    return "does not fit before the window closes" + (f"; the next opens {_clock(host, window.next_opening(host.now))}" if window else "")


def units_of(host: HostMoment) -> list[str]:
    """The units that the shift parks or has parked, in the order of the record."""
    recorded = [str(one["name"]) for one in host.parked.get("units", ())]
    return recorded or list(host.config.park)


def _production(host: HostMoment) -> str:
    units = ", ".join(units_of(host))
    if _not_restored(host):
        return f"PRODUCTION IS NOT RESTORED ({units}), tried since {_clock(host, _noted(host, 'restoring_since'))}"
    if host.phase == ShiftPhase.PARKING:
        return f"parking production ({units})"
    if host.phase == ShiftPhase.PARKED:
        return f"production parked since {_clock(host, _noted(host, 'parked_at'))} ({units}), {_way_back(host)}"
    if host.phase == ShiftPhase.RESTORING:
        return f"bringing production back ({units})" + _and_nobody(host)
    return _window(host) if host.config.park else ""


def _not_restored(host: HostMoment) -> bool:
    return host.parked.get("not_restored_at") is not None and host.parked.get("restored_at") is None


def _noted(host: HostMoment, key: str) -> datetime:
    """A time that the shift wrote down; until it has, that of its opening."""
    at = host.parked.get(key)
    return datetime.fromtimestamp(at, UTC) if at else host.opened_at or host.now


def _way_back(host: HostMoment) -> str:
    due = host.due_back
    if host.give_back_by:
        text = f"to be given back now for {host.give_back_by}"
    elif due is None:
        text = f"opened by {host.open_by or 'an admin'}, back when nothing is left to do"
    else:
        text = f"back by {_clock(host, due)}" if due > host.now else f"WAS DUE BACK at {_clock(host, due)}"
    return text + _and_nobody(host)


def _and_nobody(host: HostMoment) -> str:
    return (
        f"; its worker is gone: the host brings production back {host.config.dead_man / 60:.0f}m after its last sign" if host.silent else ""
    )


def _window(host: HostMoment) -> str:
    window = host.config.opening
    if host.open_by:
        return f"{host.open_by} allows one shift now"
    if window is None:
        return _no_window(host)
    closes = window.closes_at(host.now)
    return f"window open until {_clock(host, closes)}" if closes else f"window opens {_clock(host, window.next_opening(host.now))}"


def _no_window(host: HostMoment) -> str:
    return f"no window: `expctl host open {host.name}`"


def _clock(host: HostMoment, moment: datetime) -> str:
    return clock(moment, host.now, ZoneInfo(host.config.time_zone))
