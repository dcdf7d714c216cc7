from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from service.domain.clock import span
from service.domain.eta import Remaining, Spread
from service.domain.eta_wording import Basis, Reader, night_text, running_text, waiting_text
from service.domain.night import Refused, Slot, Unknown

NOW = datetime(2026, 11, 30, 21, 0, tzinfo=UTC)
HERE = Reader(NOW, ZoneInfo("UTC"))
BASIS = Basis(12, "configuration", 12, "configuration", "vllm")


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


WAITS = Slot(42, at(60), at(70), at(115), at(130))
RUNS = Slot(41, at(0), at(0), at(60), at(80))
LEFT = Remaining(Spread(41 * 60, 55 * 60))
ROOM = "needs about 1 h 20 min, 40 min are left"
REFUSED = Refused(80 * 60, 40 * 60, at(23 * 60), whole_window=False)


def test_what_waits() -> None:
    assert waiting_text(WAITS, BASIS, HERE) == "starts about 22:00, ends about 22:55 (p90 23:10); by 12 loads of this configuration"


def test_times_are_the_host_s_and_the_zone_is_named_where_the_reader_s_is_another() -> None:
    berlin = Reader(NOW, ZoneInfo("Europe/Berlin"))
    assert waiting_text(WAITS, None, berlin) == "starts about 23:00 CET, ends about 23:55 CET (p90 00:10 CET)"


def test_what_will_not_fit() -> None:
    told = waiting_text(WAITS._replace(refused=REFUSED, night=1), None, HERE)
    assert told.startswith("will not fit tonight: needs about 1 h 20 min, 40 min are left; next window opens 20:00; starts about 22:00")
    never = Slot(42, unknown=Unknown.FAR, refused=replace(REFUSED, whole_window=True))
    assert waiting_text(never, None, HERE) == "does not fit into the window at all: needs about 1 h 20 min, 40 min is the most there is"


@pytest.mark.parametrize(
    ("slot", "text"),
    [
        (Slot(42, unknown=Unknown.NO_HISTORY), "no history yet"),
        (Slot(42, unknown=Unknown.BEHIND, because_of=41), "no history yet of 41, which runs before it"),
        (Slot(42, unknown=Unknown.DEPENDS, because_of=40), "when 40 has succeeded"),
        (Slot(42, unknown=Unknown.SHUT), "the host takes nothing new"),
        (Slot(42, unknown=Unknown.NO_WINDOW), "the host has no window"),
        (Slot(42, unknown=Unknown.FAR), "not within 3 nights"),
        (Slot(42, unknown=Unknown.FAR, refused=REFUSED), f"will not fit tonight: {ROOM}; next window opens 20:00; not within 3 nights"),
        (Slot(42, at(60), at(60), unknown=Unknown.NO_HISTORY), "starts about 22:00; how long it takes: no history yet"),
        (WAITS._replace(at_least=True), "starts not before 22:00, ends not before 22:55 (p90 23:10)"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_said_plainly(slot: Slot, text: str) -> None:
    assert waiting_text(slot, None, HERE) == text


def test_every_reason_has_words() -> None:
    for why in Unknown:
        assert waiting_text(Slot(42, unknown=why, because_of=1), None, HERE)


def test_what_runs() -> None:
    told = running_text(RUNS, LEFT, BASIS, HERE, ["torch_compile", "cuda_graph_capture"])
    assert told == (
        "then compiling and CUDA graphs, about 41 min left (p90 55 min), all done about 22:00 (p90 22:20); "
        "by 12 loads of this configuration"
    )
    assert running_text(RUNS, None, None, HERE) == "no history yet"
    assert running_text(RUNS._replace(cut=True), LEFT, None, HERE) == (
        "about 41 min left (p90 55 min); will be cut when production is wanted back"
    )


def test_longer_than_ever_before() -> None:
    late = Remaining(Spread(600.0, 700.0), 41 * 60)
    assert running_text(RUNS._replace(at_least=True), late, None, HERE) == "longer than ever before (max 41 min), at least 10 min more"
    assert running_text(RUNS, Remaining(Spread(), 4.0), None, HERE) == "longer than ever before (max 4 s)"


@pytest.mark.parametrize(
    ("basis", "text"),
    [
        (Basis(1, "model", 1, "model", "vllm"), "by 1 load of this model"),
        (Basis(3, "kind", 3, "kind", "vllm"), "by 3 loads of vllm"),
        (Basis(3, "kind", 2, "bench", "vllm"), "by 3 loads of vllm, 2 measurements of this kind"),
    ],
)
def test_what_it_stands_on(basis: Basis, text: str) -> None:
    assert basis.text() == text


def test_the_night() -> None:
    slots = [WAITS._replace(id=number) for number in range(5)] + [WAITS._replace(night=1), Slot(9, unknown=Unknown.FAR)]
    assert night_text(slots, at(620), HERE) == "the night: 5 of 7 fit before 07:20"
    assert night_text(slots, None, HERE) == "the night: 5 of 7 foreseen, done about 22:55"
    assert night_text([*slots, Slot(8, unknown=Unknown.NO_HISTORY)], at(620), HERE).endswith(
        "5 of 8 known to fit before 07:20; no history yet of 8"
    )
    assert night_text([Slot(8, unknown=Unknown.SHUT)], at(620), HERE) == "the night: 1 wait, and the host takes nothing new"
    assert night_text([], at(620), HERE) == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (99, "99 s"), (100, "2 min"), (59 * 60, "59 min"), (3600, "1 h"), (4799, "1 h 20 min")]
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text
