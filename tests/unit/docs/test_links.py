"""Links, and the places in the tree that documents name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.docs.reading import PAGES, ROOT, anchors, inline_code, links, name

PLACE = re.compile(r"(alembic|benchmarks|deploy|docs|examples|expctl|service|tests|workers)/[\w./-]*\w")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_place_that_is_named_is_there(page: Path) -> None:
    found = [code for code in inline_code(page.read_text()) if PLACE.fullmatch(code)]
    assert [code for code in found if not (ROOT / code).exists()] == []


def test_every_page_is_found_from_the_index() -> None:
    index = {link.partition("#")[0] for link in links(ROOT / "docs" / "README.md")}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= index


def test_every_example_is_in_the_list() -> None:
    listed = set(links(ROOT / "examples" / "README.md"))
    assert {file.name for file in (ROOT / "examples").iterdir() if file.is_file()} - {"README.md"} <= listed


def test_links_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One thing: `more`\n[a](b.md#c) and [d](http://e/f)\n\n```\n[no](link.md)\n```\n")
    assert links(page) == ["b.md#c"]
    assert anchors(page) == {"one-thing-more"}
