from __future__ import annotations

import pytest

from expctl import globals as module
from expctl.globals import Options, join_lists, take_globals
from service.domain.errors import UsageError


@pytest.fixture(autouse=True)
def options(monkeypatch: pytest.MonkeyPatch) -> Options:
    fresh = Options()
    monkeypatch.setattr(module, "options", fresh)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return fresh


@pytest.mark.parametrize(
    "line", ["--json --server http://h queue -q", "queue --json -q --server http://h", "--server=http://h queue --quiet --json"]
)
def test_before_and_after_the_verb(options: Options, line: str) -> None:
    assert take_globals(line.split()) == ["queue"]
    assert options == Options(server="http://h", json=True, quiet=True)


def test_fields_mean_json(options: Options) -> None:
    assert take_globals(["show", "1", "--fields", "id,,status"]) == ["show", "1"]
    assert (options.fields, options.json) == (("id", "status"), True)


def test_nothing_said_is_nothing_set(options: Options) -> None:
    assert take_globals(["submit", "x.yaml", "--set", "a=b"]) == ["submit", "x.yaml", "--set", "a=b"]
    assert options == Options()


def test_what_follows_two_dashes_is_not_ours(options: Options) -> None:
    assert take_globals(["run", "--quiet", "--", "engine", "--json", "--server", "x"]) == ["run", "--", "engine", "--json", "--server", "x"]
    assert options == Options(quiet=True)


@pytest.mark.parametrize("line", [["queue", "--server"], ["--fields"], ["--server="]])
def test_a_value_is_missing(line: list[str]) -> None:
    with pytest.raises(UsageError, match="needs a value"):
        take_globals(line)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_is_off_where_the_environment_says_so(options: Options, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    take_globals(["queue"])
    assert options.color is False


@pytest.mark.parametrize("name", ["CLICOLOR_FORCE", "FORCE_COLOR"])
def test_colour_is_on_where_the_environment_says_so(options: Options, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "0")
    take_globals(["queue"])
    assert options.color is None
    monkeypatch.setenv(name, "1")
    take_globals(["queue"])
    assert options.color is True


def test_no_colour_wins(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    take_globals(["queue"])
    assert options.color is False


def test_colour_is_off_where_asked_for(options: Options) -> None:
    take_globals(["queue", "--no-color"])
    assert options.color is False


def test_version(options: Options) -> None:
    assert take_globals(["--version"]) == []
    assert options.version


@pytest.mark.parametrize(
    ("line", "joined"),
    [
        ("bench --concurrency 1 8 --repeat 3", "bench --concurrency 1,8 --repeat 3"),
        ("bench --concurrency 1,8", "bench --concurrency 1,8"),
        ("bench --concurrency 1, 8", "bench --concurrency 1,8"),
        ("bench --concurrency 1 8 http://h", "bench --concurrency 1,8 http://h"),
        ("bench --concurrency", "bench --concurrency"),
        ("bench --repeat 3 4", "bench --repeat 3 4"),
    ],
)
def test_a_list_may_have_blanks(line: str, joined: str) -> None:
    assert join_lists(line.split()) == joined.split()
