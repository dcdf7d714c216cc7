"""What is vendored is what its table says, with its licence; and the policy lets nothing else in."""

from __future__ import annotations

import hashlib
import re

from service.pages.assets import FOLDER, assets
from service.pages.rendering import POLICY, TEMPLATES

TABLE = (FOLDER / "vendor" / "README.md").read_text()


def test_every_vendored_file_is_the_one_of_the_table() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \|.*, `([\w.]+)` \| `([0-9a-f]{64})` \|$", TABLE, re.MULTILINE)
    here = {path.name for path in (FOLDER / "vendor").iterdir() if path.suffix in {".js", ".css"}}
    assert {name for name, _, _ in rows} == here
    for name, licence, digest in rows:
        assert hashlib.sha256((FOLDER / "vendor" / name).read_bytes()).hexdigest() == digest
        assert (FOLDER / "vendor" / licence).read_text().strip()


def test_no_file_of_ours_names_another_server() -> None:
    ours = [*TEMPLATES.glob("*.html"), *(path for path in FOLDER.glob("*.*"))]
    assert len(ours) > 15
    for path in ours:
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", path.read_text())) - {"http://www.w3.org"}
        assert addresses == set(), path


def test_all_that_a_page_loads_fits_its_budget_compressed() -> None:
    assert sum(len(asset.compressed) for asset in assets().values()) < 60_000


def test_scripts_and_styles_come_from_files_alone() -> None:
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
