"""What `expctl host` asks of a host's worker: check, trust, install, rehearse."""

from __future__ import annotations

import io
import json
import sys

import pytest

from expctl import hostasked, hostclient
from expctl.main import run
from tests.unit.cli.fake_hosts import CHECKS, OTHER, SHA, answering, asked, key, request
from tests.unit.cli.fake_service import FakeService, Json

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostclient, "POLL_S", 0.01)
    monkeypatch.setattr(hostclient, "UNTAKEN_S", 0.0)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A person's keyboard."""

    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    keys = Keyboard()
    monkeypatch.setattr(sys, "stdin", keys)
    return keys


def test_check_shows_each_with_its_remedy_and_fails(fake: FakeService, capsys: Capture) -> None:
    answering(fake, "check", request("check", ok=False, checks=CHECKS))
    assert run(["host", "check", "llm-two"]) == 1
    shown = capsys.readouterr().out
    assert [line.rstrip() for line in shown.splitlines()] == [
        "CHECK            FOUND",
        "ssh     ok       OpenSSH 9.2",
        "helper  WRONG    not installed",
        "                 expctl host install llm-two",
        "GPUs    unknown",
        "                 install the helper first",
    ]


def test_check_as_json_is_the_whole_request(fake: FakeService, capsys: Capture) -> None:
    answering(fake, "check", request("check", checks=CHECKS[:1]))
    assert run(["host", "check", "llm-two", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == request("check", checks=CHECKS[:1])
    assert run(["host", "check", "llm-two", "--fields", "ok"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True}


@pytest.mark.parametrize("status", ["queued", "running"])
@pytest.mark.parametrize("busy", [False, True])
def test_no_answer_in_time(fake: FakeService, status: str, busy: bool, capsys: Capture) -> None:
    answering(fake, "check", request("check", None, status), busy=busy)
    assert run(["host", "check", "llm-two", "--timeout", "50ms"]) == 124
    said = capsys.readouterr().err
    taken = status == "running"
    assert ("no worker for llm-two has been seen; start `expctl worker --host llm-two`" in said) == (not taken and not busy)
    assert ("the worker of llm-two is busy" in said) == (not taken and busy)
    assert ("goes on; its answer will stand at" in said) == taken
    assert ("nobody took it up, so it is withdrawn" in said) == (not taken)
    assert asked(fake, "DELETE") == ([] if taken else ["/v1/hosts/llm-two/requests/7"])
    assert said.endswith("the time is up\n")


def test_a_worker_that_could_not_says_why(fake: FakeService, capsys: Capture) -> None:
    answering(fake, "rehearse", request("rehearse", ok=False, error="the host does not answer", remedy="check the network"))
    assert run(["host", "rehearse", "llm-two"]) == 1
    assert capsys.readouterr().err == "error: the host does not answer\n  check the network\n"


def test_a_rehearsal_is_measured(fake: FakeService, capsys: Capture) -> None:
    steps = [{"name": "park", "seconds": 12.4, "detail": "a.service"}, {"name": "restore", "seconds": None, "detail": "all"}]
    answering(fake, "rehearse", request("rehearse", steps=steps, downtime_s=1872.4))
    assert run(["host", "rehearse", "llm-two"]) == 0
    shown = capsys.readouterr().out
    assert "park     12s   a.service" in shown
    assert "restore  -     all" in shown
    assert "production did not serve for 31m" in shown
    answering(fake, "rehearse", request("rehearse", steps=[], downtime_s=None))
    assert run(["host", "rehearse", "llm-two"]) == 0
    assert "an unknown time" in capsys.readouterr().out


def test_a_rehearsal_is_asked_about_in_a_terminal(fake: FakeService, terminal: io.StringIO) -> None:
    answering(fake, "rehearse", request("rehearse", steps=[], downtime_s=0.0))
    terminal.write("n\n")
    terminal.seek(0)
    assert run(["host", "rehearse", "llm-two"]) == 130
    assert fake.asked == []
    assert run(["host", "rehearse", "llm-two", "--yes"]) == 0


LONG = "chmod 0440 /etc/sudoers.d/expctl && " + "visudo -c && " * 30 + "true"
INSTALL = {
    "installed": False, "path": "/usr/local/sbin/expctl-host", "sha256": "f00d", "sudoers": "expctl ALL=(root) NOPASSWD: x",
    "config": {"parked": []}, "commands": ["install -m 755 a b", LONG], "text": "#!/usr/bin/python3\nhello\n",
}  # fmt: skip


def test_install_shows_what_an_admin_would_do(fake: FakeService, capsys: Capture) -> None:
    answering(fake, "install", request("install", **INSTALL))
    assert run(["host", "install", "llm-two"]) == 0
    said = capsys.readouterr()
    for words in ("/usr/local/sbin/expctl-host  sha256 f00d", "expctl ALL=(root) NOPASSWD: x", '{"parked": []}', "install -m 755 a b"):
        assert words in said.out
    assert LONG in said.out, "a command that is broken in two would be pasted as two"
    assert "hello" not in said.out
    assert said.err == "nothing was done; the whole file: expctl host install llm-two --file\n"


def test_the_helper_file_as_it_is(fake: FakeService, capsys: Capture) -> None:
    answering(fake, "install", request("install", **INSTALL))
    assert run(["host", "install", "llm-two", "--file"]) == 0
    assert capsys.readouterr() == ("#!/usr/bin/python3\nhello\n", "")
    assert run(["host", "install", "llm-two", "--file", "--apply"]) == 2


def test_installed(fake: FakeService, capsys: Capture) -> None:
    answering(fake, "install", request("install", **INSTALL | {"installed": True}))
    assert run(["host", "install", "llm-two", "--apply"]) == 0
    assert capsys.readouterr() == ("installed /usr/local/sbin/expctl-host, sha256 f00d\n", "")


def pins(fake: FakeService) -> int:
    return len(asked(fake, "POST"))


@pytest.mark.parametrize(
    ("keys", "words", "code", "requests"),
    [
        ([key()], ["--yes"], 0, 2),
        ([key()], ["--fingerprint", SHA], 0, 2),
        ([key()], ["--fingerprint", SHA.removeprefix("SHA256:") + "="], 0, 2),
        ([key(known="changed")], ["--fingerprint", SHA], 0, 2),
        ([key(known="changed")], ["--yes"], 6, 1),
        ([key()], ["--fingerprint", OTHER], 6, 1),
        ([key()], ["--fingerprint", OTHER, "--yes"], 6, 1),
        ([key()], [], 2, 1),
        ([key()], ["--json"], 1, 1),
        ([key(known="pinned")], [], 0, 1),
        ([key(known="pinned")], ["--yes"], 0, 1),
        ([key(known="pinned")], ["--json"], 0, 1),
        ([], ["--yes"], 1, 1),
    ],
)
def test_a_key_is_pinned_only_when_somebody_says_so(
    fake: FakeService, monkeypatch: pytest.MonkeyPatch, keys: list[Json], words: list[str], code: int, requests: int
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    answering(fake, "trust", request("trust", keys=keys))
    assert run(["host", "trust", "llm-two", *words]) == code
    assert pins(fake) == requests


@pytest.mark.parametrize(("said", "code", "requests"), [("y\n", 0, 2), ("\n", 1, 1), ("no\n", 1, 1)])
def test_a_person_is_asked(fake: FakeService, terminal: io.StringIO, said: str, code: int, requests: int, capsys: Capture) -> None:
    terminal.write(said)
    terminal.seek(0)
    answering(fake, "trust", request("trust", keys=[key()]))
    assert run(["host", "trust", "llm-two"]) == code
    assert pins(fake) == requests
    assert SHA in capsys.readouterr().err


def test_only_what_was_named_is_pinned() -> None:
    keys = [key(), key(OTHER), key("SHA256:c", "pinned")]
    assert hostasked.chosen("h", keys, [OTHER], yes=True) == [OTHER]
    assert hostasked.chosen("h", keys, [], yes=True) == [SHA, OTHER]


def test_keys_that_could_not_be_fetched(fake: FakeService, capsys: Capture) -> None:
    answering(fake, "trust", request("trust", ok=False, error="connection refused"))
    assert run(["host", "trust", "llm-two", "--yes"]) == 1
    assert capsys.readouterr().err == "error: connection refused\n"
    assert pins(fake) == 1


@pytest.mark.parametrize("timeout", ["soon", "-1s", ""])
def test_a_timeout_that_is_none(fake: FakeService, timeout: str) -> None:
    assert run(["host", "check", "llm-two", "--timeout", timeout]) == 2
    assert fake.asked == []
