"""`expctl host` in this process, against a service that says what the test tells it to."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
import typer

from expctl import fields, hostasked, hostclient
from expctl.hostadd import settings_of
from expctl.main import run
from service.api.hostviews import HostDetail, HostRequestOut
from service.api.schemas import HostOut
from service.domain.errors import UsageError
from tests.unit.cli.fake_service import FakeService, item

Capture = pytest.CaptureFixture[str]
Json = dict[str, Any]
SHA, OTHER = "SHA256:" + "a" * 43, "SHA256:" + "b" * 43


def host(**changes: Any) -> Json:
    base: Json = {
        "name": "llm-two", "transport": "ssh", "simulated": False, "busy": False, "worker": None, "worker_silent": False, "blocked": None,
        "paused": False, "config": {"ssh": "admin@llm-two", "park": ["a.service"], "window": None}, "shift_text": "window opens 20:00",
        "needs_person": False, "created_at": "2026-11-30T20:00:00Z", "shift": None, "window": None, "open_by": None, "give_back_by": None,
        "unreachable_since": None, "report": {},
    }  # fmt: skip
    return {**base, **changes}


def request(kind: str, ok: bool | None = True, status: str = "finished", **answer: Any) -> Json:
    return {
        "id": 7, "host": "llm-two", "kind": kind, "args": {}, "status": status, "ok": ok, "answer": answer, "created_by": "ann",
        "created_at": "2026-11-30T20:00:00Z", "started_at": None, "finished_at": None,
    }  # fmt: skip


def answering(fake: FakeService, kind: str, found: Json, **more: Any) -> None:
    address = "/v1/hosts/llm-two"
    fake.answers |= {
        f"POST {address}/{kind}": (202, request(kind, None, "queued")),
        f"GET {address}/requests/7": found,
        f"DELETE {address}/requests/7": found,
        f"GET {address}": host(**more),
    }


def asked(fake: FakeService, method: str) -> list[str]:
    return [one.split(" ", 1)[1] for one in fake.asked if one.startswith(method)]


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


# Settings.

NOTHING: Json = {}


@pytest.mark.parametrize(
    ("plain", "park", "executables", "hooks", "sent"),
    [
        (NOTHING, [], [], {}, {}),
        ({"window": "20:00-08:00", "ssh": None}, [], [], {}, {"window": "20:00-08:00"}),
        ({"window": "none"}, ["none"], [], {"before_park": "none"}, {"window": None, "park": None, "hooks": {"before_park": None}}),
        ({"ssh": "h"}, [], [], {}, {"ssh": "h", "units": "systemd"}),
        ({"ssh": "none"}, [], [], {}, {"ssh": None}),
        (NOTHING, ["a.service", "b.service"], [], {}, {"park": ["a.service", "b.service"], "units": "systemd"}),
        ({"units": "process", "ssh": "h"}, [], [], {}, {"ssh": "h", "units": "process"}),
        (NOTHING, [], ["vllm=/opt/a=b", "sglang=none"], {}, {"executables": {"vllm": "/opt/a=b", "sglang": None}}),
        (NOTHING, [], [], {"after_restore": "undrain --why 'all done'"}, {"hooks": {"after_restore": ["undrain", "--why", "all done"]}}),
    ],
)
def test_what_is_sent_of_a_command_line(plain: Json, park: list[str], executables: list[str], hooks: Json, sent: Json) -> None:
    assert settings_of(plain, park, executables, hooks) == sent


@pytest.mark.parametrize(
    ("executables", "hooks"), [(["vllm"], {}), (["=x"], {}), (["vllm="], {}), ([], {"before_park": "'"}), ([], {"before_park": " "})]
)
def test_what_cannot_be_meant(executables: list[str], hooks: Json) -> None:
    with pytest.raises(UsageError):
        settings_of({}, [], executables, hooks)


def test_add_sends_all_and_says_what_comes_next(fake: FakeService, capsys: Capture) -> None:
    window = {"window": "20:00-08:00", "time_zone": "UTC", "open": False, "closes_at": None, "next_opening": "2026-11-30T20:00:00Z"}
    fake.answers = {"GET /v1/hosts": [], "POST /v1/hosts": (201, host(window=window))}
    assert (
        run(["host", "add", "llm-two", "--ssh", "admin@llm-two", "--park", "a.service", "--park", "b.service", "--window", "20:00-08:00"])
        == 0
    )
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "added llm-two: window opens 20:00",
        "its window is meant in UTC; --time-zone changes that",
        "next: expctl worker --host llm-two      and then: expctl host check llm-two",
    ]


def test_add_of_a_known_host_is_a_change(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"GET /v1/hosts": [host()], "POST /v1/hosts": host()}
    assert run(["host", "add", "llm-two", "--experiment-port", "8002"]) == 0
    assert capsys.readouterr().err == "changed llm-two: window opens 20:00\n"
    fake.answers["POST /v1/hosts"] = (409, {"reason": "conflict", "title": "park of llm-two cannot change now"})
    assert run(["host", "add", "llm-two", "--park", "b.service"]) == 6


# Requests.

CHECKS = [
    {"name": "ssh", "ok": True, "found": "OpenSSH 9.2", "remedy": "never shown"},
    {"name": "helper", "ok": False, "found": "not installed", "remedy": "expctl host install llm-two"},
    {"name": "GPUs", "ok": None, "found": "", "remedy": "install the helper first"},
]


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
    steps = [{"name": "park", "seconds": 12.4, "detail": "a.service"}, {"name": "restore", "seconds": 1860, "detail": ""}]
    answering(fake, "rehearse", request("rehearse", steps=steps, downtime_s=1872.4))
    assert run(["host", "rehearse", "llm-two"]) == 0
    shown = capsys.readouterr().out
    assert "park     12s   a.service" in shown
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


INSTALL = {
    "installed": False, "path": "/usr/local/sbin/expctl-host", "sha256": "f00d", "sudoers": "expctl ALL=(root) NOPASSWD: x",
    "config": {"parked": []}, "commands": ["install -m 755 a b"], "text": "#!/usr/bin/python3\nhello\n",
}  # fmt: skip


def test_install_shows_what_an_admin_would_do(fake: FakeService, capsys: Capture) -> None:
    answering(fake, "install", request("install", **INSTALL))
    assert run(["host", "install", "llm-two"]) == 0
    said = capsys.readouterr()
    for words in ("/usr/local/sbin/expctl-host  sha256 f00d", "expctl ALL=(root) NOPASSWD: x", '{"parked": []}', "install -m 755 a b"):
        assert words in said.out
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


# Trust.


def key(fingerprint: str = SHA, known: str = "unknown") -> Json:
    return {"type": "ssh-ed25519", "fingerprint": fingerprint, "host": "llm-two", "known": known}


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


# The rest.


def test_list_and_show(fake: FakeService, capsys: Capture) -> None:
    red = host(name="gpu-2", config={"ssh": None}, shift_text="PRODUCTION IS NOT RESTORED (a.service): it died", needs_person=True)
    fake.answers = {
        "GET /v1/hosts": [host(), red],
        "GET /v1/hosts/llm-two": host(report={"at": "2026-11-30T20:00:00+00:00", "checks": CHECKS}),
    }
    assert run(["host", "list"]) == 0
    shown = capsys.readouterr().out
    assert "llm-two  ssh admin@llm-two  a.service" in shown
    assert "PRODUCTION IS NOT RESTORED (a.service): it died" in shown
    assert run(["host", "list", "-q"]) == 0
    assert capsys.readouterr().out == "llm-two\ngpu-2\n"
    assert run(["host", "show", "llm-two", "--no-color"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("llm-two · window opens 20:00; idle")
    assert "checked 30 Nov 20:00 UTC" in shown
    assert "WRONG" in shown


def test_show_a_host_in_the_middle_of_a_shift(fake: FakeService, capsys: Capture) -> None:
    window = {
        "window": "20:00-08:00",
        "time_zone": "Europe/Berlin",
        "open": True,
        "closes_at": "2026-12-01T08:00:00+01:00",
        "next_opening": "x",
    }
    shift = {
        "id": 1, "phase": "parked", "opened_at": "2026-11-30T20:00:00Z", "closing": "window closes", "due_back": "2026-12-01T07:00:00Z",
        "units": ["a.service"], "parked": {}, "failures": 0, "idle_since": None,
    }  # fmt: skip
    fake.answers = {"GET /v1/hosts/llm-two": host(shift=shift, window=window, open_by="ann")}
    assert run(["host", "show", "llm-two"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "parked since 30 Nov 20:00 UTC, ends: window closes",
        "20:00-08:00 Europe/Berlin, open until 01 Dec 08:00 UTC+01:00",
        "01 Dec 07:00",
    ):
        assert words in shown
    assert "never checked: expctl host check llm-two" in shown


def test_give_back_and_open(fake: FakeService, capsys: Capture) -> None:
    address = "/v1/hosts/llm-two"
    fake.answers = {f"POST {address}/give-back": (202, host()), f"POST {address}/open": host(), f"DELETE {address}/open": host()}
    assert run(["host", "give-back", "llm-two"]) == 0
    assert "is being brought back" in capsys.readouterr().err
    assert run(["host", "open", "llm-two"]) == 0
    assert run(["host", "open", "llm-two", "--withdraw"]) == 0
    assert fake.asked[1:] == [f"POST {address}/open", f"DELETE {address}/open"]
    capsys.readouterr()
    fake.answers[f"POST {address}/open"] = host(config={"park": []})
    assert run(["host", "open", "llm-two"]) == 0
    assert capsys.readouterr().err == "nothing is parked on llm-two: it needs no opening\n"


@pytest.mark.parametrize("words", [["show"], ["check"], ["give-back"], ["open"], ["rehearse"], ["trust"], ["install"]])
def test_an_unknown_host_is_exit_5(fake: FakeService, words: list[str]) -> None:
    assert run(["host", *words, "nowhere"]) == 5
    assert fake.asked


def test_submit_now_opens_each_host_once(fake: FakeService, tmp_path: Any) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\nengine: {kind: vllm, model: m}\n")
    fake.answers = {"POST /v1/experiments": (201, item(host="llm-two")), "POST /v1/hosts/llm-two/open": host()}
    assert run(["submit", str(file), "--now"]) == 0
    assert asked(fake, "POST")[1:] == ["/v1/hosts/llm-two/open"]
    assert run(["submit", str(file)]) == 0
    assert len(asked(fake, "POST")) == 3


@pytest.mark.parametrize("items", [[], [item()]])
def test_the_queue_ends_with_a_line_per_host(fake: FakeService, items: list[Json], capsys: Capture) -> None:
    quiet = host(name="local", shift_text="")
    fake.answers = {"GET /v1/experiments": {"items": items}, "GET /v1/hosts": [host(), quiet]}
    assert run(["queue"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "llm-two: window opens 20:00"
    assert not any(line.startswith("local:") for line in said)


@pytest.mark.parametrize("timeout", ["soon", "-1s", ""])
def test_a_timeout_that_is_none(fake: FakeService, timeout: str) -> None:
    assert run(["host", "check", "llm-two", "--timeout", timeout]) == 2
    assert fake.asked == []


@pytest.mark.parametrize(
    ("verb", "model"),
    [("list", HostOut), *((verb, HostDetail) for verb in ("add", "show", "give-back", "open")),
     *((verb, HostRequestOut) for verb in ("check", "trust", "install", "rehearse"))],
)  # fmt: skip
def test_the_known_fields_are_those_of_the_answer(fake: FakeService, verb: str, model: Any) -> None:
    assert sorted(fields.OF_VERB[f"host {verb}"]) == sorted(model.model_fields)
    assert run(["host", verb, "llm-two", "--fields", "bogus"]) == 2
    assert fake.asked == []


def test_every_subverb_says_what_it_does() -> None:
    from expctl.commands.host import app  # noqa: PLC0415 - the only test of the table

    group = typer.main.get_command(app)
    assert sorted(group.commands) == ["add", "check", "give-back", "install", "list", "open", "rehearse", "show", "trust"]  # type: ignore[attr-defined]
    assert all(command.help for command in group.commands.values())  # type: ignore[attr-defined]
