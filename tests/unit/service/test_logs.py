"""Log lines as they are written, of ours and of libraries."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from service import logs
from service.domain.tokentext import make

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, paramiko = root.handlers[:], root.level, logging.getLogger("paramiko").level
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("paramiko").setLevel(paramiko)


def test_for_people_a_line_begins_with_when_and_what(capsys: Capture) -> None:
    logs.configure(json=False)
    with structlog.contextvars.bound_contextvars(host="gpu0", experiment=42, step="load"):
        structlog.get_logger().info("a fact", more="two words")
    said = capsys.readouterr().err
    assert said.endswith(' level=info event="a fact" host=gpu0 experiment=42 step=load more="two words"\n')
    assert said.startswith("timestamp=20")


def test_for_programs_it_is_json_with_what_was_bound(capsys: Capture) -> None:
    logs.configure(json=True)
    with structlog.contextvars.bound_contextvars(host="gpu0", experiment=42, step="load"):
        structlog.get_logger().warning("a fact", why=ValueError("odd"))
    structlog.get_logger().info("later")
    first, later = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    at = first.pop("timestamp")
    assert at.endswith("Z")
    assert first == {"level": "warning", "event": "a fact", "host": "gpu0", "experiment": 42, "step": "load", "why": "odd"}
    assert set(later) == {"timestamp", "level", "event"}


def test_libraries_come_out_the_same_way(capsys: Capture) -> None:
    logs.configure(json=True)
    logging.getLogger("uvicorn.error").info("started")
    try:
        raise ZeroDivisionError("the reason")  # noqa: TRY301 - a traceback is what is looked for
    except ZeroDivisionError:
        logging.getLogger("uvicorn.error").exception("Exception in %s", "the application")
    [line] = [json.loads(one) for one in capsys.readouterr().err.splitlines()]
    assert (line["level"], line["logger"], line["event"]) == ("error", "uvicorn.error", "Exception in the application")
    assert line["exception"].endswith("ZeroDivisionError: the reason")


@pytest.mark.parametrize("as_json", [True, False])
def test_no_secret_is_written(capsys: Capture, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    token = make()
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    logs.configure(json=as_json)
    structlog.get_logger().info(f"it was {token}", detail={"key": ["sk-very-secret"]}, error=OSError("redis://:hidden-pw@r/0"))
    try:
        raise ValueError(f"{token} sk-very-secret")  # noqa: TRY301 - as above
    except ValueError:
        logging.getLogger("celery").exception("at redis://:hidden-pw@r/0")
    said = capsys.readouterr().err
    assert said.count("***") >= 5
    assert not [secret for secret in (token, "sk-very-secret", "hidden-pw") if secret in said]
