"""Documents and code say the same: blocks that are made from the code, and lists that are held against it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import blocks, commands, experimentfile, reasons
from expctl import environment
from expctl.exitcodes import MEANINGS, ExitCode
from expctl.globals import GLOBAL_OPTIONS
from expctl.main import VERBS, usage
from expctl.topics import TOPICS
from service.domain.errors import ExpctlError
from service.domain.meanings import meanings
from service.domain.reasons import RULES, Reason
from service.domain.spec import Spec
from service.domain.specschema import json_schema, models
from service.settings import Settings
from tests.unit.docs.reading import ROOT
from workers.engines import remedies

DOCS = ROOT / "docs"
SOURCES = [path for room in ("expctl", "service", "workers") for path in (ROOT / room).rglob("*.py")]
VARIABLE = re.compile(r"\bEXPCTL_[A-Z]+(?:_[A-Z]+)*\b(?!_)")


@pytest.mark.parametrize("page", blocks.pages(), ids=lambda page: page.name)
def test_no_block_is_old(page: Path) -> None:
    assert not blocks.outdated([page]), "run: python -m docs.generate"


def test_every_block_is_on_one_page() -> None:
    used = [name for page in blocks.pages() for name in blocks.names(page.read_text())]
    assert sorted(used) == sorted(blocks.BLOCKS)


def test_a_block_is_made_anew_and_nothing_else_is_touched() -> None:
    page = "before\n<!-- begin one: x -->\nold\n<!-- end one -->\nafter\n"
    assert blocks.filled(page, {"one": lambda: "new\n\n"}) == page.replace("old", "new")


@pytest.mark.parametrize("page", ["<!-- begin one: x -->\n", "<!-- begin two: x -->\n<!-- end two -->\n"])
def test_a_block_that_is_unknown_or_has_no_end_is_refused(page: str) -> None:
    with pytest.raises(blocks.BlockError):
        blocks.filled(page, {"one": lambda: "new"})


@pytest.mark.parametrize("model", [*json_schema()["$defs"], Spec.__name__])
def test_every_key_of_the_experiment_file_has_a_meaning(model: str) -> None:
    made = models()[model]
    assert set(made.model_fields) == set(meanings(made))


def test_editors_see_the_meanings() -> None:
    schema = json_schema()
    assert schema["properties"]["priority"]["description"] == "Higher runs first."
    assert schema["$defs"]["Load"]["properties"]["stall"]["description"].startswith("Longest time without any sign of progress.")
    shapes = schema["$defs"].items()
    undescribed = [f"{name}.{key}" for name, one in shapes for key, field in one["properties"].items() if "description" not in field]
    assert undescribed == []


def test_every_key_is_in_the_reference() -> None:
    page = (DOCS / "experiment-file.md").read_text()
    made = [block() for block in experimentfile.BLOCKS.values()]
    keys = re.findall(r"^\| `(\w+)` \|", "".join(made), re.MULTILINE)
    defined = [key for one in (*json_schema()["$defs"].values(), json_schema()) for key in one["properties"]]
    assert sorted(keys) == sorted(defined)
    assert all(f"| `{key}` |" in page for key in defined)


def test_every_reason_is_in_the_list_once() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (DOCS / "reasons.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(Reason)


def test_every_remedy_that_can_hold_figures_is_shown_with_some() -> None:
    assert reasons.FIGURES.keys() == remedies._SPECIAL.keys()
    for reason, figures in reasons.FIGURES.items():
        assert remedies.remedy(reason, figures) != RULES[reason].remedy


def test_every_setting_has_a_meaning_and_is_in_the_list() -> None:
    page = (DOCS / "settings.md").read_text()
    assert set(Settings.model_fields) == set(meanings(Settings))
    assert [one.variable for one in environment.settings()] == [f"EXPCTL_{name.upper()}" for name in Settings.model_fields]
    assert all(f"| `{one.variable}` |" in page for one in environment.settings())


def test_every_variable_of_the_code_is_in_the_list_and_none_else() -> None:
    code = {found for path in SOURCES for found in VARIABLE.findall(path.read_text())}
    settings = {one.variable for one in environment.settings()}
    # The simulation joins its prefix with names.
    knobs = re.findall(r'(?:_read\(env, |env\.get\(PREFIX \+ )"(\w+)"', (ROOT / "workers/sim/knobs.py").read_text())
    simulated = {f"EXPCTL_SIM_{name}" for name in knobs}
    assert set(VARIABLE.findall((DOCS / "settings.md").read_text())) == code | settings | simulated


def test_every_verb_and_option_is_in_the_list() -> None:
    page = (DOCS / "cli.md").read_text()
    verbs = [verb for group in VERBS.values() for verb in group]
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == verbs
    for verb in verbs:
        for one in commands.commands(verb):
            assert f"`{one.usage}`" in page
            assert [parameter.shown for parameter in one.parameters if not parameter.about] == [], f"{one.usage}: without a help text"


def test_every_exit_code_is_in_the_list() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", (DOCS / "cli.md").read_text(), re.MULTILINE)}
    assert listed == set(ExitCode) == set(MEANINGS)
    assert listed >= {kind.exit_code for kind in _below(ExpctlError)}
    assert all(re.search(rf"\b{code} ", usage()) for code in listed)


def test_every_topic_and_global_option_is_in_the_list() -> None:
    page = (DOCS / "cli.md").read_text()
    assert re.findall(r"^\| `expctl help ([a-z-]+)` \|", page, re.MULTILINE) == list(TOPICS)
    assert all(f"`{word}`" in page for names in GLOBAL_OPTIONS for word in names.split(", "))


def _below(kind: type[ExpctlError]) -> list[type[ExpctlError]]:
    return [kind, *(found for one in kind.__subclasses__() for found in _below(one))]
