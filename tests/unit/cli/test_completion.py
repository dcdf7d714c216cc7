"""Completion: what is offered, how long the service may take, and the script in a real bash."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from expctl.commands.completion import SCRIPTS, Shell
from expctl.completing import offers
from expctl.main import VERBS, run
from tests.unit.cli.fake_hosts import host
from tests.unit.cli.fake_service import FakeService, item

Capture = pytest.CaptureFixture[str]


def words(*line: str) -> list[str]:
    return [offer.word for offer in offers(line)]


@pytest.fixture
def known(fake: FakeService) -> FakeService:
    fake.answers = {
        "GET /v1/experiments": {"items": [item(42, name="eagle3 k=3"), item(41)]},
        "GET /v1/hosts": [host(name="gpu-01"), host(name="gpu-02", busy=True)],
    }
    return fake


def test_verbs_come_first() -> None:
    assert words("") == [verb for group in VERBS.values() for verb in group]
    assert words("qu") == ["queue"]
    assert words() == words("")
    assert "--server" in words("--")
    assert words("nonsense", "") == []


def test_each_verb_is_said_to_do_something() -> None:
    assert all(offer.what for offer in offers([""]))
    assert all(offer.what for offer in offers(["host", ""]))


@pytest.mark.parametrize("verb", [verb for group in VERBS.values() for verb in group])
def test_every_verb_has_its_options_or_verbs(verb: str) -> None:
    offered = words(verb, "") + words(verb, "--")
    assert offered, "what it takes, or the verbs it has"


@pytest.mark.usefixtures("known")
def test_ids_come_with_name_and_status() -> None:
    assert offers(["show", ""]) == [("42", "eagle3 k=3, Queued"), ("41", "base, Queued")]
    assert words("show", "41") == ["41"]
    assert words("compare", "41", "") == ["42"], "not once more"
    assert words("wait", "41", "42", "") == []


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (["cancel", ""], {"held", "queued", "running", "stopping"}),
        (["release", ""], {"held"}),
        (["retry", ""], {"finished"}),
        (["baseline", "set", ""], {"finished"}),
        (["show", ""], set()),
    ],
)
def test_only_experiments_for_which_the_verb_makes_sense(known: FakeService, line: list[str], asked: set[str]) -> None:
    words(*line)
    [path] = known.asked
    assert {part.removeprefix("status=") for part in path.split("?", 1)[1].split("&") if part.startswith("status=")} == asked


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    "line",
    [
        ["queue", "--host", ""],
        ["queue", "--host", "=", ""],
        ["queue", "--status", "held", "--host", ""],
        ["host", "show", ""],
        ["pause", "--host", "gpu"],
        ["--json", "worker", "--host", ""],
    ],
)
def test_hosts(line: list[str]) -> None:
    assert words(*line) == ["gpu-01", "gpu-02"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (["results", "41", "--format", ""], ["table", "json", "csv", "md"]),
        (["logs", "41", "--step", "l"], ["launch", "load"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["submit", ""], [":files"]),
        (["diagnose", "--before", ""], [":files"]),
        (["queue", "--fields", "eta"], ["eta", "eta_p90", "eta_text"]),
        (["queue", "--fields", "id,eta,eta"], ["id,eta,eta_p90", "id,eta,eta_text"]),
        (["queue", "--status", ""], ["held", "queued", "running", "stopping", "finished"]),
        (["results", "41", "--format=c"], ["--format=csv"]),
        (["results", "41", "--format", "="], ["table", "json", "csv", "md"]),
        (["host", "add", ""], []),
        (["--server", ""], []),
        (["queue", "--limit", ""], []),
    ],
)
def test_what_needs_no_service(line: list[str], offered: list[str]) -> None:
    assert words(*line) == offered


def test_the_service_that_the_line_names_is_asked(known: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPCTL_SERVER", "http://127.0.0.1:1")
    assert words("show", "") == []
    assert words("--server", known.url, "show", "") == ["42", "41"]
    assert words("show", f"--server={known.url}", "") == ["42", "41"]


@pytest.mark.parametrize(
    "answer", [(401, {"reason": "not-signed-in", "title": "no"}), (429, {"reason": "too-many-requests", "title": "no"}), (200, ["x"])]
)
def test_a_service_that_says_no_is_silence(fake: FakeService, answer: object, capsys: Capture) -> None:
    fake.answers = {"GET /v1/experiments": answer}
    assert run(["completion", "--answer", "--", "show", ""]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_service_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("EXPCTL_SERVER", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        began = time.monotonic()
        assert words("show", "") == []
        assert time.monotonic() - began < 5, "a shell stands still meanwhile"


def test_the_answer_is_a_word_a_tab_and_what_it_is(capsys: Capture) -> None:
    assert run(["completion", "--answer", "--", "que"]) == 0
    assert capsys.readouterr().out == "queue\thow the night is going (plain `expctl` is the same)\n"


@pytest.mark.parametrize("shell", Shell)
def test_each_shell_has_a_script_that_asks(shell: Shell, capsys: Capture) -> None:
    assert run(["completion", shell]) == 0
    assert capsys.readouterr().out == SCRIPTS[shell]
    assert "completion --answer --" in SCRIPTS[shell]


def completed(line: str, folder: Path, listing: bool = False) -> list[str]:
    """What a real bash makes of a line that ends where TAB is pressed."""
    command = folder / "expctl"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m expctl "$@"\n')
    command.chmod(0o755)
    parts = line.split(" ")
    script = f"""
        {SCRIPTS[Shell.BASH]}
        compopt() {{ :; }}
        COMP_WORDS=({" ".join(repr(part) for part in parts)}); COMP_CWORD={len(parts) - 1}; COMP_TYPE={63 if listing else 37}
        _expctl
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environ = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-uec", script], capture_output=True, text=True, check=True, timeout=30, env=environ)
    return done.stdout.splitlines()


@pytest.mark.usefixtures("known")
def test_in_bash(tmp_path: Path) -> None:
    assert completed("expctl show ", tmp_path) == ["42", "41"]
    assert completed("expctl show ", tmp_path, listing=True) == ["42  eagle3 k=3, Queued", "41  base, Queued"]
    assert completed("expctl que", tmp_path, listing=True) == ["queue"], "what is inserted stands alone"
