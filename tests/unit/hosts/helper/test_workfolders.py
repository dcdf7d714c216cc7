"""Folders of commands: what is removed, and all that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.hosts.helper.box import CLAIM, UNIT, Inside
from tests.unit.hosts.helper.test_looking import process

REQUEST = {"claim": CLAIM, "unit": UNIT}
NAME = UNIT.removesuffix(".service")


@pytest.fixture
def work(inside: Inside) -> Path:
    """The folder of all folders, with one that a command has worked in."""
    place = inside.box.root / "var/lib/expctl-work"
    (place / NAME / "out/deep").mkdir(parents=True)
    place.chmod(0o755)
    (place / NAME / "out/deep/weights").write_text("x")
    mounted(inside)
    return place


def mounted(inside: Inside, *places: Path) -> None:
    lines = ["22 1 8:1 / / rw - ext4 /dev/sda1 rw", *(f"30 22 8:2 / {place} rw - xfs /dev/sdb rw" for place in places)]
    inside.box.write("proc/self/mountinfo", "\n".join(lines) + "\n")


def test_a_folder_is_removed_and_nothing_that_its_links_lead_to(inside: Inside, work: Path) -> None:
    others = inside.box.root / "srv/models"
    others.mkdir(parents=True)
    (others / "kept").write_text("x")
    (work / NAME / "models").symlink_to(others)
    (work / NAME / "out/kept").symlink_to(others / "kept")
    assert inside.good("remove-work", REQUEST) == {"removed": True}
    assert not (work / NAME).exists()
    assert (others / "kept").read_text() == "x"
    assert inside.good("remove-work", REQUEST) == {"removed": False}


def test_only_folders_of_units_are_named(inside: Inside, work: Path) -> None:
    for name in ("lost+found", "expctl-x", "..data"):
        (work / name).mkdir()
    (work / "expctl-8-file").write_text("")
    (work / "expctl-9-link").symlink_to(work / NAME)
    assert inside.good("work-folders") == {"units": [UNIT]}
    inside.box.root.joinpath("var/lib/expctl-work").rename(inside.box.root / "away")
    assert inside.good("work-folders") == {"units": []}


@pytest.mark.parametrize("unit", ["../../etc.service", "expctl-1-../x.service", "vllm-kimi.service", "expctl-1-x", "expctl-*.service", "."])
def test_a_name_that_is_no_unit_of_ours_is_refused(inside: Inside, work: Path, unit: str) -> None:
    assert inside.bad("remove-work", {**REQUEST, "unit": unit})["reason"] == "permission_denied"
    assert (work / NAME).exists()


def test_a_link_in_the_place_of_the_folder_is_refused(inside: Inside, work: Path) -> None:
    (work / NAME).rename(inside.box.root / "elsewhere")
    (work / NAME).symlink_to(inside.box.root / "elsewhere")
    assert "a link or a file" in inside.bad("remove-work", REQUEST)["message"]
    assert (inside.box.root / "elsewhere/out/deep/weights").exists()


def test_a_place_that_others_may_write_to_is_refused(inside: Inside, work: Path) -> None:
    work.chmod(0o777)
    assert inside.bad("remove-work", REQUEST)["reason"] == "permission_denied"
    assert inside.bad("work-folders")["reason"] == "permission_denied"
    work.chmod(0o755)
    work.rename(inside.box.root / "real")
    work.symlink_to(inside.box.root / "real")
    assert inside.bad("remove-work", REQUEST)["reason"] == "permission_denied"


@pytest.mark.parametrize("below", ["", "out/deep"])
def test_what_is_mounted_there_is_not_emptied(inside: Inside, work: Path, below: str) -> None:
    mounted(inside, (work / NAME / below).resolve())
    assert "is mounted" in inside.bad("remove-work", REQUEST)["message"]
    assert (work / NAME / "out/deep/weights").exists()


def test_a_unit_that_lives_keeps_its_folder(inside: Inside, work: Path) -> None:
    process(inside.box, 60, UNIT)
    assert inside.bad("remove-work", REQUEST)["reason"] == "stale_unit_definition"
    assert (work / NAME).exists()


def test_an_older_worker_removes_nothing(inside: Inside, work: Path) -> None:
    inside.good("remove-work", {**REQUEST, "unit": "expctl-99.service", "claim": {**CLAIM, "fence": CLAIM["fence"] + 1}})
    assert inside.bad("remove-work", REQUEST)["reason"] == "claim_lost"
    assert (work / NAME).exists()
