"""What is refused before anything is done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.hosts.helper.box import CLAIM, PARKED, UNIT, Box, Inside
from workers.hosts.helper.places import calling, places_for
from workers.hosts.helper.refusals import Misuse, Refused
from workers.hosts.helper.request import LIMIT_BYTES, parsed

WRITE = {"claim": CLAIM, "unit": UNIT, "argv": ["/bin/true"]}


@pytest.mark.parametrize(
    "raw",
    [
        b"[]",
        b"{",
        b'"x"',
        b'{"unit": "a.service", "unit": "b.service"}',
        b'{"port": NaN}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"unit": "' + b"x" * 1_048_576 + b'"}',
    ],
)
def test_what_is_no_request_is_a_usage_mistake(box: Box, raw: bytes) -> None:
    status, answer = box.ask("status", raw)
    assert (status, answer["ok"], answer["reason"]) == (2, False, "internal_error")


@pytest.mark.parametrize(
    ("verb", "request_"),
    [
        ("hello", {"more": 1}),
        ("status", {"unit": UNIT, "glob": True}),
        ("port", {"port": "80"}),
        ("port", {"port": True}),
        ("port", {"port": 0}),
        ("port", {"port": 80.5}),
        ("processes", {"pids": ["1"]}),
        ("processes", {"pids": list(range(1, 4100))}),
        ("stop", {"claim": CLAIM, "unit": UNIT, "grace_s": 3600}),
        ("stop", {"unit": UNIT}),
        ("stop", {"claim": {**CLAIM, "force": True}, "unit": UNIT}),
        ("write-unit", {**WRITE, "argv": None}),
        ("write-unit", {**WRITE, "argv": ["/bin/true", 1]}),
        ("write-unit", {**WRITE, "argv": ["/bin/a\0b"]}),
        ("write-unit", {**WRITE, "argv": ["/bin/a", "\ud800"]}),
        ("write-unit", {**WRITE, "env": {"A": 1}}),
        ("write-unit", {**WRITE, "argv": None, "fork": {"from_unit": PARKED, "words": []}}),
        ("write-unit", {**WRITE, "argv": None, "fork": {"from_unit": PARKED, "words": ["/a"], "env": {}}}),
        ("disarm", {"claim": CLAIM, "force": 1}),
    ],
)
def test_mistakes_of_the_caller(inside: Inside, verb: str, request_: dict[str, Any]) -> None:
    assert inside.bad(verb, request_)["reason"] == "misuse"


UNLISTED: list[Any] = [
    "sshd.service",
    "expctl-deadman.service",
    "expctl-deadman.timer",
    "expctl-.service",
    "expctl-1-A.service",
    "expctl-1-a.service\n",
    "expctl-1-a.service --now",
    "../expctl-1-a.service",
    "expctl-1-a/../../x.service",
    "expctl-1-*.service",
    "expctl-1-a.timer",
    "expctl-1-a",
    "-expctl-1-a.service",
    "",
    None,
    7,
]


def test_a_request_is_bounded() -> None:
    assert parsed(b'"' + b"x" * (LIMIT_BYTES - 2) + b'"', "it")
    with pytest.raises(Misuse, match="longer than"):
        parsed(b'"' + b"x" * (LIMIT_BYTES - 1) + b'"', "it")


@pytest.mark.parametrize("verb", ["status", "journal", "look", "stop", "start", "write-unit", "remove-unit", "source"])
def test_units_that_nobody_listed(inside: Inside, verb: str) -> None:
    for unit in UNLISTED:
        request: dict[str, Any] = {"unit": unit}
        if verb in ("stop", "start", "write-unit", "remove-unit"):
            request["claim"] = CLAIM
        assert inside.bad(verb, request)["reason"] in ("permission_denied", "misuse")
    assert inside.box.calls("show") == []


@pytest.mark.parametrize("verb", ["start", "write-unit", "remove-unit"])
def test_production_is_never_written_or_started_as_a_unit_of_ours(inside: Inside, verb: str) -> None:
    answer = inside.bad(verb, {**WRITE, "unit": PARKED} if verb == "write-unit" else {"claim": CLAIM, "unit": PARKED})
    assert answer["reason"] == "permission_denied"


@pytest.mark.parametrize(
    "claim",
    [
        {**CLAIM, "service": "x"},
        {**CLAIM, "fence": -1},
        {**CLAIM, "fence": 1.5},
        {**CLAIM, "owner": "a\nb"},
        {**CLAIM, "owner": ""},
        None,
        1,
    ],
)
def test_claims_that_are_none(inside: Inside, claim: Any) -> None:
    assert inside.bad("disarm", {"claim": claim})["reason"] in ("permission_denied", "misuse")


@pytest.mark.parametrize(
    "changed",
    [
        {"more": 1},
        {"parked": ["a b.service"]},
        {"parked": ["vllm*.service"]},
        {"parked": ["/etc/x.service"]},
        {"parked": ["vllm.timer"]},
        {"parked": ["expctl-1-a.service"]},
        {"parked": ["a.service", "a.service"]},
        {"fork": ["--now.service"]},
        {"run_as": ["root"]},
        {"run_as": ["0"]},
        {"run_as": ["a b"]},
        {"allow_root": "no"},
    ],
)
def test_a_config_that_is_wrong_stops_everything(box: Box, changed: dict[str, Any]) -> None:
    box.configure(**changed)
    assert box.bad("hello")["reason"] == "helper_missing"


def test_no_config_is_no_permission(box: Box) -> None:
    (box.root / "etc/expctl-host.json").unlink()
    assert box.bad("status", {"unit": UNIT})["reason"] == "helper_missing"


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_config_that_others_may_write_is_not_trusted(box: Box, mode: int) -> None:
    (box.root / "etc/expctl-host.json").chmod(mode)
    assert box.bad("hello")["reason"] == "permission_denied"


def test_a_config_that_is_a_link_is_not_trusted(box: Box) -> None:
    config = box.root / "etc/expctl-host.json"
    config.rename(config.with_name("elsewhere"))
    config.symlink_to(config.with_name("elsewhere"))
    assert box.bad("hello")["reason"] == "permission_denied"


def test_a_config_in_a_folder_that_others_may_write_is_not_trusted(box: Box) -> None:
    (box.root / "etc").chmod(0o777)
    assert box.bad("hello")["reason"] == "permission_denied"


def test_a_config_that_is_a_pipe_does_not_hang(box: Box) -> None:
    config = box.root / "etc/expctl-host.json"
    config.unlink()
    os.mkfifo(config)
    box.own(config)
    assert box.bad("hello")["reason"] == "permission_denied"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file another's")
def test_a_config_of_another_user_is_not_trusted(box: Box) -> None:
    os.chown(box.root / "etc/expctl-host.json", 0, 0)
    assert box.bad("hello")["reason"] == "permission_denied"


def test_a_link_in_the_place_of_a_state_file_is_not_followed(box: Box) -> None:
    (box.root / "var/lib/expctl-host").mkdir(mode=0o700)
    box.own(box.root / "var/lib/expctl-host")
    (box.root / "var/lib/expctl-host/claim.json").symlink_to(box.root / "victim")
    assert box.bad("stop", {"claim": CLAIM, "unit": UNIT})["reason"] == "permission_denied"
    for path in (box.root / "var/lib/expctl-host").iterdir():
        path.unlink()
    (box.root / "var/lib/expctl-host/work.lock").symlink_to(box.root / "victim")
    assert box.bad("stop", {"claim": CLAIM, "unit": UNIT})["reason"] == "internal_error"
    assert not (box.root / "victim").exists()


def test_state_is_closed_to_others(box: Box) -> None:
    box.good("write-unit", {**WRITE, "env": {"TOKEN": "hush"}})
    folder = box.root / "var/lib/expctl-host"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    secret = box.root / f"run/expctl-host/{UNIT}.env"
    assert (secret.stat().st_mode & 0o777, secret.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (box.root / f"run/systemd/system/{UNIT}").stat().st_mode & 0o777 == 0o644
    assert "hush" not in (box.root / f"run/systemd/system/{UNIT}").read_text()


def test_the_test_mode_is_not_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert places_for({"EXPCTL_HOST_ROOT": "/srv/x"}).config == Path("/etc/expctl-host.json")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert places_for({"EXPCTL_HOST_ROOT": "/srv/x"}).config == Path("/srv/x/etc/expctl-host.json")
    with pytest.raises(Refused):
        places_for({})


@pytest.mark.parametrize(
    ("environment", "uid", "root"),
    [
        ({}, 0, True),
        ({"SUDO_UID": "0"}, 0, True),
        ({"SUDO_UID": "1000"}, 1000, False),
        ({"PKEXEC_UID": "1000"}, 1000, False),
        ({"SUDO_UID": "0", "PKEXEC_UID": "1000"}, 1000, False),
        ({"DOAS_USER": "nobody"}, None, False),
        ({"SUDO_UID": "rubbish-xyz"}, -1, False),
        ({"SUDO_UID": ""}, -1, False),
    ],
)
def test_who_asks(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], uid: int | None, root: bool) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    found = calling(environment)
    assert found.root is root
    assert uid is None or found.uid == uid


def test_a_systemd_that_does_not_answer_is_no_state_of_a_unit(box: Box) -> None:
    box.write("fake/broken", "")
    for verb, request in [("status", {"unit": UNIT}), ("units", {}), ("look", {"unit": UNIT}), ("source", {"unit": PARKED})]:
        answer = box.bad(verb, request)
        assert answer["reason"] == "remote_command_failed"
        assert "told to be broken" in answer["message"]


def test_hello_says_who_and_what(box: Box) -> None:
    answer = box.good("hello")
    assert answer["caller"] == {"uid": 12345, "user": "12345", "root": False}
    assert (answer["version"], answer["protocol"], answer["systemd"], answer["boot_id"]) == ("1", 1, 252, "boot-1")
    assert (answer["armed"], answer["holder"], answer["record"]) == (False, None, None)
    assert json.dumps(answer["config"]) == '{"parked": ["vllm-kimi.service"], "fork": [], "run_as": ["nobody"], "allow_root": false}'
