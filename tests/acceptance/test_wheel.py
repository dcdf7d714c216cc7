"""An installed expctl finds its migrations, examples and prompts inside its packages."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel of this tree holds, away from the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=root, check=True, capture_output=True
    )
    [wheel] = folder.glob("expctl-*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_migrations_examples_and_prompts_are_inside(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from service.store import migrate; from expctl.commands.demo import examples;"
        "from workers.bench.prompts import builtin_prompts; from expctl.serve import upgrade_database, settings_for;"
        "print(migrate.folder()); print(examples()); print(len(builtin_prompts()));"
        f"print(upgrade_database(settings_for(Path({str(tmp_path)!r}))) == migrate.head())"
    )
    # -P and a path of its own: neither the tree nor an editable install of it may answer first.
    argv = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(unpacked)!r}); {code}"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(unpacked / "service/store/alembic"), str(unpacked / "expctl/examples"), "5", "True"]


@pytest.mark.costly
def test_pages_are_inside_and_what_only_tests_need_is_not(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "from service.pages.rendering import environment; from service.pages.assets import assets;"
        "print(len(environment().list_templates()) > 10, sorted(assets()));"
        "import service.pages; print(service.pages.__file__)"
    )
    argv = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(unpacked)!r}); {code}"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "True" in done.stdout
    for name in ("app.css", "app.js", "vendor/htmx.min.js", "vendor/uPlot.min.js"):
        assert name in done.stdout
    assert str(unpacked) in done.stdout
    vendored = unpacked / "service/pages/static/vendor"
    assert {path.name for path in vendored.iterdir()} >= {"README.md", "htmx.LICENSE", "uPlot.LICENSE"}
    assert not list(unpacked.rglob("axe*"))
