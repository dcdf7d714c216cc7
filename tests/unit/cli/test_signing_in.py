"""Where the command line finds its token, what it sends, and what it says where that is not enough."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from expctl.client import Client
from expctl.main import run
from expctl.tokenclient import number_of
from service.domain.errors import NotFound
from service.domain.tokentext import make
from tests.unit.cli.fake_service import FakeService

Capture = pytest.CaptureFixture[str]
TOKEN = make()
BARRED: dict[str, Any] = {"reason": "not-signed-in", "title": "not signed in", "detail": "", "todo": "set EXPCTL_TOKEN"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "expctl" / "token"
    path.parent.mkdir()
    return path


def sent(fake: FakeService) -> str | None:
    return {name.lower(): value for name, value in fake.headers[-1].items()}.get("authorization")


def test_the_environment_goes_before_the_file(fake: FakeService, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.answers = {"GET /v1/hosts": []}
    other = make()
    file.write_text(f"{other}\n")
    file.chmod(0o600)
    assert run(["host", "list"]) == 0
    assert sent(fake) == f"Bearer {other}"
    monkeypatch.setenv("EXPCTL_TOKEN", f" {TOKEN}\n")
    assert run(["host", "list"]) == 0
    assert sent(fake) == f"Bearer {TOKEN}"
    monkeypatch.setenv("EXPCTL_TOKEN", "")
    assert run(["host", "list"]) == 0
    assert sent(fake) is None, "said to be none"


def test_a_password_in_the_address_goes_before_both(fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.answers = {"GET /v1/hosts": []}
    monkeypatch.setenv("EXPCTL_TOKEN", TOKEN)
    monkeypatch.setenv("EXPCTL_SERVER", fake.url.replace("://", "://ann:pw@"))
    assert run(["host", "list"]) == 0
    assert (sent(fake) or "").startswith("Basic ")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_is_not_used(fake: FakeService, file: Path, capsys: Capture, mode: int) -> None:
    file.write_text(TOKEN)
    file.chmod(mode)
    assert run(["host", "list"]) == 4
    said = capsys.readouterr().err
    assert f"its mode is {mode:o}" in said
    assert f"chmod 600 {file}" in said
    assert TOKEN not in said
    assert fake.asked == []


def test_a_mistyped_token_is_not_sent_and_not_shown(fake: FakeService, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPCTL_TOKEN", TOKEN[:-1])
    assert run(["host", "list"]) == 4
    said = capsys.readouterr().err
    assert "EXPCTL_TOKEN holds no whole token" in said
    assert TOKEN[:-1] not in said
    assert fake.asked == []


def test_not_signed_in_is_exit_4_with_what_to_do(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"GET /v1/hosts": (401, BARRED)}
    assert run(["host", "list"]) == 4
    assert capsys.readouterr().err == "error: not signed in\n  set EXPCTL_TOKEN\n"


def test_a_missing_scope_is_named(fake: FakeService, capsys: Capture) -> None:
    fake.answers = {"POST /v1/hosts/local/pause": (403, {"reason": "forbidden", "title": "this needs the scope admin"})}
    assert run(["pause"]) == 1
    assert "this needs the scope admin" in capsys.readouterr().err


def test_what_came_too_early_is_sent_again_when_it_is_time(fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []

    def pass_time(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 2:
            fake.answers = {"POST /v1/hosts/local/pause": {"paused": True}}

    monkeypatch.setattr(time, "sleep", pass_time)
    fake.answers = {"POST /v1/hosts/local/pause": (429, {"reason": "too-many-requests", "title": "too many requests"})}
    with Client(fake.url) as client:
        assert client.pause("local", paused=True) == {"paused": True}
    assert paused == [1.0, 1.0]
    assert len(fake.asked) == 3


def test_a_token_is_printed_once_and_alone_on_stdout(fake: FakeService, capsys: Capture) -> None:
    made = {"id": 3, "owner": "joe", "scopes": ["submit"], "expires_at": "2027-02-28T20:00:00Z", "token": TOKEN}
    fake.answers = {"POST /v1/tokens": (201, made)}
    assert run(["token", "create", "ci", "--owner", "joe", "--scope", "read", "--scope", "run-code", "--expires", "90d"]) == 0
    out = capsys.readouterr()
    assert out.out == f"{TOKEN}\n"
    assert TOKEN not in out.err
    assert json.loads(fake.bodies[-1]) == {"name": "ci", "owner": "joe", "scopes": ["read", "run-code"], "expires_in_s": 7776000.0}


@pytest.mark.parametrize("expires", ["0s", "never", "9999999d"])
def test_an_end_that_is_none(fake: FakeService, expires: str) -> None:
    assert run(["token", "create", "ci", "--expires", expires]) == 2
    assert fake.asked == []


def test_a_name_goes_before_an_id() -> None:
    living = [{"id": 1, "name": "ci"}, {"id": 2, "name": "1"}]
    assert [number_of(which, living) for which in ("ci", "1", "7")] == [1, 2, 7]
    with pytest.raises(NotFound, match="there is no token named laptop"):
        number_of("laptop", living)


def test_the_first_token_is_made_on_the_database_itself(tmp_path: Path, capsys: Capture) -> None:
    data = ["--data", str(tmp_path), "--local"]
    assert run(["token", "create", "boot", "--scope", "admin", *data]) == 6
    assert "run `expctl db upgrade`" in capsys.readouterr().err
    assert run(["db", "upgrade", "--data", str(tmp_path)]) == 0
    assert run(["token", "create", "boot", "--scope", "admin", "--owner", "ann", *data]) == 0
    token = capsys.readouterr().out.splitlines()[-1]
    assert token.startswith("expctl_")
    assert run(["token", "list", *data]) == 0
    said = capsys.readouterr().out
    assert "boot  ann  admin  expctl_" in said
    assert token not in said
    assert run(["token", "revoke", "boot", *data]) == 0
    assert run(["token", "list", "--quiet", *data]) == 0
    assert capsys.readouterr().out == ""
