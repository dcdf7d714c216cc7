from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from service.domain.host_config import HostConfig
from service.domain.host_wording import HostMoment, does_not_fit, needs_person, shift_text, waits_for_window
from service.domain.status import ShiftPhase

NIGHT = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)
DAY = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EVENING = datetime(2026, 11, 30, 20, 3, tzinfo=UTC)
NOT_RESTORED = {"units": [{"name": "a.service"}], "restoring_since": EVENING.timestamp(), "not_restored_at": NIGHT.timestamp()}
PARKED = "production parked since 20:03 (vllm-kimi.service)"


def moment(now: datetime = NIGHT, *, window: str | None = "20:00-08:00", zone: str = "UTC", **changes: Any) -> HostMoment:
    config = HostConfig(units="systemd", park=["vllm-kimi.service"], window=window, time_zone=zone)
    return HostMoment(**{"name": "llm-two", "config": config, "now": now, **changes})


def parked(now: datetime = NIGHT, **changes: Any) -> HostMoment:
    record = {"units": [{"name": "vllm-kimi.service"}], "parked_at": EVENING.timestamp()}
    return moment(now, **{"phase": ShiftPhase.PARKED, "opened_at": EVENING - timedelta(minutes=1), "parked": record, **changes})


@pytest.mark.parametrize(
    ("host", "text", "urgent"),
    [
        (moment(DAY), "window opens 20:00", False),
        (moment(NIGHT), "window open until 08:00", False),
        (moment(DAY, window=None), "no window: `expctl host open llm-two`", False),
        (moment(DAY, open_by="ann"), "ann allows one shift now", False),
        (moment(phase=ShiftPhase.OPEN, opened_at=EVENING), "window open until 08:00", False),
        (moment(phase=ShiftPhase.OPEN, opened_at=EVENING, silent=True), "window open until 08:00", False),
        (moment(phase=ShiftPhase.PARKING, opened_at=EVENING), "parking production (vllm-kimi.service)", False),
        (parked(), f"{PARKED}, back by 08:00", False),
        (parked(give_back_by="bob"), f"{PARKED}, to be given back now for bob", False),
        (
            parked(NIGHT + timedelta(hours=10, minutes=1)),
            f"{PARKED}, WAS DUE BACK at 08:00",
            True,
        ),
        (
            parked(DAY, opened_at=DAY, parked={}, open_by="ann"),
            "production parked since 12:00 (vllm-kimi.service), opened by ann, back when nothing is left to do",
            False,
        ),
        (
            parked(silent=True),
            f"{PARKED}, back by 08:00; its worker is gone: the host brings production back 30m after its last sign",
            True,
        ),
        (parked(phase=ShiftPhase.RESTORING), "bringing production back (vllm-kimi.service)", False),
        (
            parked(phase=ShiftPhase.RESTORING, parked=NOT_RESTORED),
            "PRODUCTION IS NOT RESTORED (a.service), tried since 20:03",
            True,
        ),
        (
            parked(phase=ShiftPhase.RESTORING, parked=NOT_RESTORED | {"restored_at": NIGHT.timestamp()}),
            "bringing production back (a.service)",
            False,
        ),
        (parked(unreachable_since=EVENING), f"unreachable since 20:03; {PARKED}, back by 08:00", True),
        (HostMoment("local", HostConfig(), DAY), "", False),
        (HostMoment("local", HostConfig(), DAY, phase=ShiftPhase.OPEN, opened_at=DAY), "", False),
        (HostMoment("local", HostConfig(), DAY, unreachable_since=EVENING), "unreachable since 20:03", True),
    ],
)
def test_one_line_about_a_host(host: HostMoment, text: str, urgent: bool) -> None:
    assert (shift_text(host), needs_person(host)) == (text, urgent)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (moment(DAY), "waits for the window (opens 20:00)"),
        (moment(DAY, window=None), "no window: `expctl host open llm-two`"),
        (moment(NIGHT), None),
        (moment(DAY, open_by="ann"), None),
        (moment(DAY, window=None, open_by="ann"), None),
        (moment(DAY, phase=ShiftPhase.PARKED, opened_at=DAY), None),
        (moment(NIGHT, phase=ShiftPhase.RESTORING, opened_at=EVENING), "waits until production is back"),
        (moment(DAY, phase=ShiftPhase.OPEN, opened_at=DAY), "waits for the window (opens 20:00)"),
        (HostMoment("local", HostConfig(), DAY), None),
    ],
)
def test_what_a_waiting_experiment_waits_for(host: HostMoment, why: str | None) -> None:
    assert waits_for_window(host) == why


def test_the_zone_is_named_where_the_readers_clock_shows_another_time() -> None:
    in_berlin = DAY.astimezone(timezone(timedelta(hours=1)))
    assert shift_text(moment(in_berlin, zone="Europe/Berlin")) == "window opens 20:00"
    assert shift_text(moment(in_berlin, zone="UTC")) == "window opens 20:00 UTC"
    assert shift_text(moment(DAY, zone="Europe/Berlin")) == "window opens 20:00 CET"


def test_what_is_long_ago_has_a_date() -> None:
    assert shift_text(moment(DAY, unreachable_since=DAY - timedelta(days=2))).startswith("unreachable since 28 Nov 12:00; ")


def test_what_would_not_end_in_time() -> None:
    assert does_not_fit(moment(NIGHT)) == "does not fit before the window closes; the next opens 20:00"
