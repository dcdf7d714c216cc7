"""`expctl help`: verbs and topics, what each topic promises, and how wide it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from expctl import moments, specfiles, topics
from expctl.completing import offers
from expctl.exitcodes import MEANINGS
from expctl.globals import GLOBAL_OPTIONS, take_globals
from expctl.main import VERBS, run
from service.domain.durations import seconds
from service.domain.errors import UsageError
from service.domain.evening import moment_behind
from service.domain.schedule import resolve_not_before
from service.domain.spec import Spec
from service.domain.window import Window
from service.settings import Settings

Capture = pytest.CaptureFixture[str]
NOW = datetime(2026, 11, 30, 21, tzinfo=UTC)


def said(capsys: Capture, *words: str) -> str:
    assert run(["help", *words]) == 0
    return capsys.readouterr().out


def test_alone_it_says_what_help_says(capsys: Capture) -> None:
    text = said(capsys)
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == text
    for name in (*VERBS, *topics.TOPICS, *(verb for group in VERBS.values() for verb in group)):
        assert name in text


@pytest.mark.parametrize("words", [("compare",), ("host", "add")])
def test_of_a_verb_it_is_the_verbs_own(capsys: Capture, words: tuple[str, ...]) -> None:
    text = said(capsys, *words)
    assert run([*words, "--help"]) == 0
    assert capsys.readouterr().out == text
    assert f"expctl {' '.join(words)} [OPTIONS]" in text


@pytest.mark.parametrize("width", ["40", "80", "300"])
@pytest.mark.parametrize("words", [(), *((name,) for name in topics.TOPICS)])
def test_it_fits_the_screen(capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = said(capsys, *words).splitlines()
    examples = {f"  {line}" for line in topics.EXAMPLE.splitlines()}
    assert [line for line in lines if len(line) > min(int(width), 120) and " " in line.strip() and line not in examples] == []
    assert not any("`" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "todo"),
    [
        (["exit-code"], "did you mean `expctl help exit-codes`?"),
        (["compar"], "did you mean `expctl help compare`?"),
        (["zzzz"], "topics: exit-codes, environment, experiment-file, formatting, times; verbs: expctl help"),
        (["times", "x"], "did you mean `expctl help times`?"),
    ],
)
def test_what_there_is_not_is_refused_with_the_nearest(capsys: Capture, words: list[str], todo: str) -> None:
    assert run(["help", *words]) == 2
    assert capsys.readouterr() == ("", f"error: there is no verb and no topic {' '.join(words)}\n  {todo}\n")


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("exit-codes", [str(int(code)) for code in MEANINGS]),
        ("environment", [f"EXPCTL_{name.upper()}" for name in Settings.model_fields]),
        ("experiment-file", [*Spec.model_fields, "expctl schema", "endpoint, command"]),
        ("formatting", [*topics.FORMATTING, "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"]),
        ("times", [*moments.BEHIND, *moments.DURATIONS, *moments.AHEAD]),
    ],
)
def test_a_topic_has_all_of_its_table(capsys: Capture, topic: str, words: list[str]) -> None:
    text = said(capsys, topic)
    assert [word for word in words if word not in text] == []


def test_every_form_of_a_time_is_understood() -> None:
    for form in moments.BEHIND:
        assert NOW - timedelta(days=2) < moment_behind(form, NOW) <= NOW, form
    assert moment_behind("today 06:00", NOW) == NOW.replace(hour=6)
    lengths = [seconds(form) for form in moments.DURATIONS]
    assert lengths == [90, 1800, 8 * 3600, 7 * 86400, 0.5, 5400]
    assert moments.time_limit("90") == moments.time_limit("90s") == 90
    with pytest.raises(UsageError):
        moments.duration("--older-than", "90")
    *at, window = moments.AHEAD
    assert [resolve_not_before(form, NOW, UTC) for form in at] == [NOW.replace(hour=22), datetime(2026, 12, 1, 22, tzinfo=UTC)]
    assert Window.parse(window, ZoneInfo("UTC")).closes_at(NOW) == datetime(2026, 12, 1, 8, tzinfo=UTC)


def test_the_example_of_an_experiment_file_is_one(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(topics.EXAMPLE)
    [spec] = specfiles.read(str(file), [])
    assert spec.engine.kind == "vllm"


def test_every_global_option_is_taken() -> None:
    for names in GLOBAL_OPTIONS:
        for word in names.split(", "):
            assert take_globals(word.split()) == [], word


def test_completion_knows_verbs_and_topics() -> None:
    words = [offer.word for offer in offers(["help", ""])]
    assert words[: len(topics.TOPICS)] == list(topics.TOPICS)
    assert "submit" in words
    assert offers(["help", "times", ""]) == []
