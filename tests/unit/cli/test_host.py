"""`expctl host` in this process, against a service that says what the test tells it to."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from expctl import fields
from expctl.hostadd import settings_of
from expctl.main import run
from service.api.hostviews import HostDetail, HostRequestOut
from service.api.schemas import HostOut
from service.domain.errors import UsageError
from tests.unit.cli.fake_hosts import CHECKS, asked, host
from tests.unit.cli.fake_night import night
from tests.unit.cli.fake_service import FakeService, Json, item

Capture = pytest.CaptureFixture[str]


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
        "next: expctl host check llm-two      (`expctl up` has started its worker; a team's service: expctl worker --host llm-two)",
    ]


def test_add_of_a_known_host_is_a_change(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"GET /v1/hosts": [host()], "POST /v1/hosts": host()}
    assert run(["host", "add", "llm-two", "--experiment-port", "8002"]) == 0
    assert capsys.readouterr().err == "changed llm-two: window opens 20:00\n"
    fake.answers["POST /v1/hosts"] = (409, {"reason": "conflict", "title": "park of llm-two cannot change now"})
    assert run(["host", "add", "llm-two", "--park", "b.service"]) == 6


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
        "units": ["a.service"], "parked": {"armed": True, "not_clean": "one process is left"}, "failures": 0, "idle_since": None,
    }  # fmt: skip
    config = {
        "park": ["a.service"],
        "close_after": 600.0,
        "window": "20:00-08:00",
        "hooks": {"before_park": ["drain", "a b"], "after_restore": []},
    }
    fake.answers = {"GET /v1/hosts/llm-two": host(shift=shift, window=window, open_by="ann", config=config)}
    assert run(["host", "show", "llm-two"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "parked since 30 Nov 20:00 UTC, ends: window closes",
        "20:00-08:00 Europe/Berlin, open until 01 Dec 08:00 UTC+01:00",
        "01 Dec 07:00",
        "not clean",
        "one process is left",
    ):
        assert words in shown
    assert "never checked: expctl host check llm-two" in shown
    assert "armed" not in shown
    assert "close_after  10m\nbefore_park  drain 'a b'\nnever" in "\n".join(line.rstrip() for line in shown.splitlines())


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
def test_the_queue_has_a_line_per_host(fake: FakeService, items: list[Json], capsys: Capture) -> None:
    quiet = host(name="local", shift_text="", night_text="")
    fake.answers = {"GET /v1/night": night(open=items, hosts=[host(night_text="the night: 5 of 7 fit before 07:20"), quiet])}
    assert run(["queue"]) == 0
    out, err = capsys.readouterr()
    said = out.splitlines()
    assert "llm-two  idle   window opens 20:00 · the night: 5 of 7 fit before 07:20" in said
    assert "local    idle   -" in said
    assert ("nothing was submitted" in err) == (not items)


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
