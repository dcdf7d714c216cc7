from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.unit.hosts.helper.box import PARKED, UNIT, Box, Inside
from workers.hosts.helper import journal as journal_module

RUN = "a" * 32


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine may take long to start a program; that is not what these tests are about."""
    monkeypatch.setattr(journal_module, "READ_S", 120.0)


def entry(number: int, message: Any, **fields: Any) -> dict[str, Any]:
    return {"__CURSOR": f"c{number:04d}", "MESSAGE": message, "_SYSTEMD_UNIT": UNIT, "_SYSTEMD_INVOCATION_ID": RUN, **fields}


def keep(box: Box, *entries: dict[str, Any]) -> None:
    box.write("fake/journal.json", json.dumps(entries))


def read(inside: Inside, cursor: str | None = None, **changed: Any) -> dict[str, Any]:
    return inside.good("journal", {"unit": UNIT, "invocation_id": RUN, "cursor": cursor, **changed})


def test_lines_are_read_on_from_the_cursor(box: Box) -> None:
    keep(box, entry(1, "one"), entry(2, "two"))
    wanted = {"unit": UNIT, "invocation_id": RUN}
    first = box.good("journal", wanted)
    assert first == {"lines": ["one", "two"], "cursor": "c0002", "at_end": True, "gap": False, "invocation_id": RUN}
    again = box.good("journal", {**wanted, "cursor": "c0002"})
    assert (again["lines"], again["cursor"], again["gap"], again["at_end"]) == ([], "c0002", False, True)
    keep(box, entry(1, "one"), entry(2, "two"), entry(3, "three"))
    assert box.good("journal", {**wanted, "cursor": "c0002"})["lines"] == ["three"]


def test_only_this_invocation_of_this_unit(inside: Inside) -> None:
    keep(
        inside.box,
        entry(1, "before", _SYSTEMD_INVOCATION_ID="b" * 32),
        entry(2, "another's", _SYSTEMD_UNIT="sshd.service"),
        entry(3, "mine"),
        {"__CURSOR": "c0004", "MESSAGE": "systemd's own", "_PID": "1", "UNIT": UNIT, "INVOCATION_ID": RUN},
        {"__CURSOR": "c0005", "MESSAGE": "forged", "_PID": "77", "UNIT": UNIT, "INVOCATION_ID": RUN},
    )
    assert read(inside)["lines"] == ["mine", "systemd's own"]


def test_words_of_a_program_that_was_gone_too_soon_for_its_run_to_be_noted(inside: Inside) -> None:
    """Seen on a busy host: nine of 150 short runs lost their only line."""
    inside.box.set_unit(UNIT, InvocationID=RUN, ExecMainStartTimestampMonotonic="5000000")
    boot = inside.clock.boot_id().replace("-", "")

    def nameless(number: int, message: str, at_us: int, **fields: Any) -> dict[str, Any]:
        return {
            "__CURSOR": f"c{number:04d}",
            "MESSAGE": message,
            "_SYSTEMD_UNIT": UNIT,
            "__MONOTONIC_TIMESTAMP": str(at_us),
            "_BOOT_ID": boot,
            **fields,
        }

    keep(
        inside.box,
        nameless(1, "an earlier run's", 4_999_999),
        entry(2, "an earlier run's too", _SYSTEMD_INVOCATION_ID="b" * 32),
        nameless(3, "another boot's", 6_000_000, _BOOT_ID="c" * 32),
        nameless(4, "it is broken", 5_000_000),
        {"__CURSOR": "c0005", "MESSAGE": "Failed", "_PID": "1", "UNIT": UNIT, "INVOCATION_ID": RUN},
    )
    assert read(inside)["lines"] == ["it is broken", "Failed"]
    assert read(inside, invocation_id="b" * 32)["lines"] == ["an earlier run's too"], "of a run that is over, only what names it"


def test_an_empty_cursor_is_the_beginning(inside: Inside) -> None:
    keep(inside.box)
    first = read(inside)
    assert (first["lines"], first["cursor"]) == ([], "")
    keep(inside.box, entry(1, "one"))
    assert read(inside, first["cursor"]) == {**read(inside), "lines": ["one"], "gap": False}


def test_without_an_invocation_it_is_the_present_one(inside: Inside) -> None:
    keep(inside.box, entry(1, "mine"))
    inside.box.set_unit(UNIT, InvocationID=RUN)
    assert inside.good("journal", {"unit": UNIT})["lines"] == ["mine"]
    assert inside.good("journal", {"unit": PARKED})["lines"] == []
    assert inside.good("journal", {"unit": PARKED})["at_end"] is True


def test_a_place_that_is_no_longer_kept_is_a_gap(inside: Inside) -> None:
    keep(inside.box, entry(5, "five"), entry(6, "six"))
    answer = read(inside, "c0003")
    assert (answer["gap"], answer["lines"]) == (True, ["five", "six"])
    keep(inside.box)
    answer = read(inside, "c0003")
    assert (answer["gap"], answer["lines"], answer["cursor"], answer["at_end"]) == (True, [], "c0003", True)


def test_pieces_are_bounded_and_together_complete(inside: Inside) -> None:
    keep(inside.box, *(entry(number, f"{number}-" + "x" * 500) for number in range(20)))
    seen: list[str] = []
    cursor, at_end, calls = None, False, 0
    while not at_end:
        answer = read(inside, cursor, limit_bytes=2048)
        assert sum(len(line) + 1 for line in answer["lines"]) <= 2048
        assert not answer["gap"]
        seen += answer["lines"]
        cursor, at_end, calls = answer["cursor"], answer["at_end"], calls + 1
    assert [line.partition("-")[0] for line in seen] == [str(number) for number in range(20)]
    assert calls == 5


def test_one_line_longer_than_the_limit_is_given_whole(inside: Inside) -> None:
    keep(inside.box, entry(1, "x" * 5000), entry(2, "next"))
    answer = read(inside, limit_bytes=1024)
    assert ([len(line) for line in answer["lines"]], answer["at_end"], answer["cursor"]) == ([5000], False, "c0001")


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        ([104, 105, 13, 255], ["hi", "\ufffd"]),
        (["twice", "told"], ["twice", "told"]),
        ([[104, 105], "told"], ["hi", "told"]),
        (" 10%|#  |\r 20%|## |\r\n", [" 10%|#  |", " 20%|## |"]),
        ("two\nlines", ["two", "lines"]),
        ("", [""]),
        (None, [""]),
        ("a\0b", ["a\ufffdb"]),
        ("\ud800", ["?"]),
        ("x\u2028y\x0cz", ["x\u2028y\x0cz"]),
    ],
)
def test_messages_of_every_shape(inside: Inside, message: Any, lines: list[str]) -> None:
    keep(inside.box, entry(1, message))
    assert read(inside)["lines"] == lines


def test_an_entry_that_is_too_long_is_left_out_and_passed(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "ENTRY_BYTES", 1000)
    monkeypatch.setattr(journal_module, "PIECE_BYTES", 100)
    # Of every length, so that a piece may end anywhere in an entry: in its last character, too.
    keep(inside.box, *(entry(number, "x" * (5000 + number)) for number in range(110)), entry(110, "next"))
    answer = read(inside)
    assert answer["lines"] == ["[an entry that is too long is left out]"] * 110 + ["next"]
    assert answer["cursor"] == "c0110"


@pytest.mark.parametrize("cursor", ["--help", "a b", "x\n", "s=1;$(id)", "x" * 600])
def test_cursors_that_are_none(inside: Inside, cursor: str) -> None:
    answer = inside.bad("journal", {"unit": UNIT, "invocation_id": RUN, "cursor": cursor})
    assert answer["reason"] == "permission_denied"


@pytest.mark.parametrize("invocation", ["x", "a" * 31, "A" * 32, "a" * 32 + "\n", "--" + "a" * 30])
def test_invocations_that_are_none(inside: Inside, invocation: str) -> None:
    assert inside.bad("journal", {"unit": UNIT, "invocation_id": invocation})["reason"] == "permission_denied"


def test_the_last_words_of_the_dead_are_waited_for(inside: Inside) -> None:
    keep(inside.box, entry(1, "dying"))
    inside.box.set_unit(UNIT, ActiveState="active")
    read(inside)
    assert not (inside.box.root / "fake/synced").exists()
    inside.box.set_unit(UNIT, ActiveState="failed")
    read(inside)
    assert (inside.box.root / "fake/synced").exists()


def test_a_journal_that_fails_is_no_end_of_the_log(inside: Inside) -> None:
    answer = inside.bad("journal", {"unit": UNIT, "invocation_id": RUN})  # its file is missing
    assert answer["reason"] == "remote_command_failed"


def test_what_was_read_before_it_failed_is_kept(inside: Inside) -> None:
    keep(inside.box, entry(1, "one"), entry(2, "two", exit=1))
    answer = read(inside)
    assert (answer["lines"], answer["cursor"], answer["at_end"]) == (["one", "two"], "c0002", False)


def test_a_journal_that_is_silent_is_not_waited_for_for_ever(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "READ_S", 0.5)
    keep(inside.box, entry(1, "one"))
    inside.box.write("fake/silent", "")
    before = time.monotonic()
    assert inside.bad("journal", {"unit": UNIT, "invocation_id": RUN})["reason"] == "remote_command_failed"
    assert time.monotonic() - before < 10
