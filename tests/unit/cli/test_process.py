"""The command line as a process: how it ends when its output cannot be written, is not wanted any more, or Ctrl-C comes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.fake_night import ended, night
from tests.unit.cli.fake_service import FakeService, item

EXPCTL = [sys.executable, "-m", "expctl"]


def start(*words: str, **how: Any) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | how
    # A shell starts what it puts in the background deaf to Ctrl-C, and children inherit that.
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    return subprocess.Popen([*EXPCTL, *words], preexec_fn=heed, **streams)  # noqa: PLW1509 - no locks are held


@pytest.mark.parametrize("words", [["--help"], ["queue"], ["queue", "-q"], ["queue", "--json"], ["schema"]])
def test_a_full_disk_is_one_clear_line(fake: FakeService, words: list[str]) -> None:
    fake.answers = {"GET /v1/experiments": {"items": [item()]}, "GET /v1/night": night(open=[item()])}
    with Path("/dev/full").open("w") as full, start(*words, stdout=full) as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said.startswith("error: the output cannot be written\n  No space left on device\n")
    assert "Traceback" not in said
    assert "Exception" not in said


@pytest.mark.parametrize("words", [["--help"], ["queue"], ["queue", "--json"], ["show", "41"]])
def test_a_reader_that_leaves_is_no_error(fake: FakeService, words: list[str]) -> None:
    fake.answers = {
        "GET /v1/experiments": {"items": [item(number) for number in range(500)]},
        "GET /v1/night": night(open=[item(number) for number in range(500)]),
        "GET /v1/experiments/41": item(),
    }
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe, start(*words, stdout=pipe) as process:
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (141, "")


@pytest.mark.parametrize(("words", "code", "told"), [("queue", 0, ""), ("submit -", 2, "error: standard input is empty\n")])
def test_closed_streams_lead_nowhere(fake: FakeService, words: str, code: int, told: str) -> None:
    fake.answers = {"GET /v1/night": night(open=[item()])}
    line = f"exec {' '.join(EXPCTL)} {words} <&- >&-"
    done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr[: len(told)] if told else done.stderr) == (code, told)


@pytest.mark.parametrize("words", [["logs", "-f", "41"], ["watch", "41"]])
def test_ctrl_c_is_130_without_a_traceback(fake: FakeService, words: list[str]) -> None:
    fake.answers = {"GET /v1/experiments/41": item(), "GET /v1/experiments/41/events": []}
    with start(*words) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "interrupted; what runs keeps running\n")


def on_a_terminal(*words: str, **environ: str) -> bytes:
    """What a terminal is sent, escapes and all."""
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}}
    with start(*words, stdout=theirs, stderr=theirs, env=plain | {"TERM": "xterm-256color"} | environ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how Linux says that the other side is closed
                break
            shown += piece
    os.close(ours)
    assert process.returncode in {0, 3}, shown
    return shown


DONE = item(status="finished", outcome="failed", status_text="Failed: it broke", where_text="")


@pytest.mark.parametrize("words", [["queue"], ["show", "41"], ["watch", "41"], ["show", "--help"]])
def test_no_colour_is_plain_text(fake: FakeService, words: list[str]) -> None:
    fake.answers = {
        "GET /v1/night": night(ended=[ended(DONE)], outcomes={"failed": 1}),
        "GET /v1/experiments/41": DONE,
        "GET /v1/experiments/41/events": [],
    }
    assert b"\x1b[" in on_a_terminal(*words)
    assert b"\x1b" not in on_a_terminal(*words, "--no-color")
    assert b"\x1b" not in on_a_terminal(*words, NO_COLOR="1")


def test_a_narrow_terminal_keeps_the_ids(fake: FakeService) -> None:
    fake.answers = {"GET /v1/night": night(open=[item(12345), item(7)]), "GET /v1/experiments/12345": item(12345)}
    shown = on_a_terminal("queue", COLUMNS="20", NO_COLOR="1").decode().replace("\r", "")
    assert "\n12345  base\nQueued · next on its\nhost · local\n7  base\n" in shown
    assert b"12345 base" in on_a_terminal("show", "12345", COLUMNS="20", NO_COLOR="1")
