"""Every exit code that is promised has a case here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from expctl.client import Client
from expctl.exitcodes import ExitCode
from expctl.main import run
from tests.unit.cli.fake_service import FAILED, FakeService, item

DONE = FAILED | {"outcome": "succeeded"}


def problem(status: int, reason: str) -> tuple[int, dict[str, Any]]:
    return status, {"reason": reason, "title": "no", "detail": "because", "todo": "do this"}


CASES: list[tuple[int, list[str], dict[str, Any]]] = [
    (0, ["wait", "41"], {"GET /v1/experiments/41": DONE}),
    (0, ["--help"], {}),
    (1, ["show", "41"], {"GET /v1/experiments/41": problem(403, "forbidden")}),
    (1, ["show", "41"], {"GET /v1/experiments/41": problem(503, "unavailable")}),
    (1, ["--server", "http://127.0.0.1:1", "queue"], {}),
    (2, ["show", "x"], {}),
    (2, ["nonsense"], {}),
    (2, ["report", "--since", "soon"], {}),
    (2, ["pause", "--host", "h"], {"POST /v1/hosts/h/pause": problem(422, "invalid-input")}),
    (3, ["wait", "41"], {"GET /v1/experiments/41": FAILED}),
    (3, ["watch", "41"], {"GET /v1/experiments/41": FAILED, "GET /v1/experiments/41/events": []}),
    (4, ["timeline"], {"GET /v1/timeline": problem(401, "not-signed-in")}),
    (5, ["report", "--host", "x"], {"GET /v1/report": problem(404, "not-found")}),
    (6, ["hold", "41"], {"POST /v1/experiments/41/hold": problem(409, "conflict")}),
    (6, ["results", "41"], {"GET /v1/experiments/41/results": problem(409, "not-ready")}),
    (124, ["wait", "41", "--timeout", "0"], {"GET /v1/experiments/41": item()}),
]


@pytest.mark.parametrize(("code", "words", "answers"), CASES)
def test_it_is_given(fake: FakeService, code: int, words: list[str], answers: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers = answers
    assert run(words) == code
    if code in {1, 2, 4, 5, 6}:
        assert capsys.readouterr().err.strip(), "and it is said why"


def test_an_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "wait", interrupted)
    assert run(["wait", "41"]) == ExitCode.INTERRUPTED == 130
    assert capsys.readouterr().err == "interrupted; what runs keeps running\n"


def test_what_is_wrong_is_said_in_three_lines(fake: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers = {"GET /v1/timeline": problem(401, "not-signed-in")}
    assert run(["timeline"]) == 4
    assert capsys.readouterr().err == "error: no\n  because\n  do this\n"


def test_every_code_has_a_case() -> None:
    of_processes = {ExitCode.INTERRUPTED, ExitCode.READER_LEFT}
    assert set(ExitCode) == {code for code, _, _ in CASES} | of_processes


@pytest.mark.parametrize("words", [["queue"], ["show", "41"], ["wait", "41"], ["cancel", "41"]])
@pytest.mark.parametrize(
    ("answer", "code"), [(problem(401, "not-signed-in"), 4), (problem(404, "not-found"), 5), (problem(409, "conflict"), 6)]
)
def test_each_verb_hands_the_service_s_answer_on(fake: FakeService, words: list[str], answer: Any, code: int) -> None:
    every: Callable[[], Any] = lambda: answer  # noqa: E731 - one line says it
    paths = ("GET /v1/night", "GET /v1/experiments/41", "POST /v1/experiments/41/cancel")
    fake.answers = dict.fromkeys(paths, every)
    assert run(words) == code
