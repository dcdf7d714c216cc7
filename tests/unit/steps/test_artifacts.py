"""The files that a command leaves, on a real disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from workers.hosts import collecting
from workers.hosts.base import HostError
from workers.hosts.collecting import collect
from workers.hosts.local import LocalHost
from workers.steps.base import Cancelled

UNIT = "expctl-7-train"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for name in ("a.bin", "b.txt", ".hidden", "out/one.bin", "out/deep/two.bin", "out/.part/three.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (tmp_path / "secret.bin").write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.bin").write_text("far")
    return folder


def kept(work: Path, *patterns: str, limit: int = 10**6) -> tuple[dict[str, str], list[str]]:
    """Path -> content, and the warnings."""
    into = work.parent / "data" / "7"
    found = collect(patterns, str(work), into, limit, lambda: None)
    for file in found.files:
        content = (into / file.path.lstrip("/")).read_bytes()
        assert (file.size, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert sum(path.is_file() for path in into.rglob("*")) == len(found.files)
    return {file.path: (into / file.path.lstrip("/")).read_text() for file in found.files}, list(found.warnings)


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["a.bin"], ["a.bin"]),
        (["*"], ["a.bin", "b.txt", "out/.part/three.bin", "out/deep/two.bin", "out/one.bin"]),
        (["*.bin"], ["a.bin"]),
        (["**/*.bin"], ["a.bin", "out/one.bin", "out/deep/two.bin"]),
        (["**/**/two.bin"], ["out/deep/two.bin"]),
        (["out"], ["out/.part/three.bin", "out/deep/two.bin", "out/one.bin"]),
        (["out/", "./out/one.bin"], ["out/.part/three.bin", "out/deep/two.bin", "out/one.bin"]),
        (["out/**"], ["out/.part/three.bin", "out/deep/two.bin", "out/one.bin"]),
        ([".h*"], [".hidden"]),
        (["?.[bt]*"], ["a.bin", "b.txt"]),
    ],
)
def test_patterns(work: Path, patterns: list[str], names: list[str]) -> None:
    assert (list(kept(work, *patterns)[0]), kept(work, *patterns)[1]) == (names, [])


def test_a_pattern_without_a_match_is_a_warning(work: Path) -> None:
    assert kept(work, "*.pt", "a.bin") == ({"a.bin": "a.bin"}, ["*.pt matches no file"])


def test_links_are_followed_inside_and_not_out(work: Path) -> None:
    (work / "latest").symlink_to("out")
    (work / "link.bin").symlink_to("out/one.bin")
    (work / "round").symlink_to(".")
    (work / "steal.bin").symlink_to(work.parent / "secret.bin")
    (work / "away").symlink_to(work.parent / "elsewhere")
    files, warnings = kept(work, "latest/one.bin", "link.bin", "steal.bin", "away", "away/*.bin", "away/far.bin")
    assert files == {"latest/one.bin": "out/one.bin", "link.bin": "out/one.bin"}
    assert [warning.partition(":")[0] for warning in warnings] == ["steal.bin is left out", "away is left out"]
    assert list(kept(work, "**/*.bin")[0]) == ["a.bin", "link.bin", "out/one.bin", "out/deep/two.bin"]


def test_a_link_round_in_a_circle_is_gone_through_once(work: Path) -> None:
    (work / "out" / "round").symlink_to("..")
    (work / "out" / "latest").symlink_to("deep")
    files, warnings = kept(work, "out", "out/latest")
    assert list(files) == ["out/.part/three.bin", "out/deep/two.bin", "out/one.bin", "out/latest/two.bin"]
    assert warnings == [f"out/{name} is left out: it is a link to a folder" for name in ("latest", "round")]


def test_an_absolute_path_is_taken_at_its_word_and_no_further(work: Path) -> None:
    far = work.parent / "elsewhere"
    (far / "steal.bin").symlink_to(work.parent / "secret.bin")
    files, warnings = kept(work, f"{far}/*.bin", f"{work}/a.bin")
    assert files == {f"{far}/far.bin": "far", "a.bin": "a.bin"}
    assert len(warnings) == 1
    assert "leads out" in warnings[0]


def test_what_is_no_file_is_not_waited_for(work: Path) -> None:
    os.mkfifo(work / "pipe")
    (work / "gone").symlink_to("nowhere")
    assert kept(work, "pipe", "gone") == (
        {},
        ["pipe is left out: it is no regular file", "gone is left out: No such file or directory"],
    )


def test_bounds(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, warnings = kept(work, "a.bin", "out/one.bin", "b.txt", limit=10)
    assert list(files) == ["a.bin", "b.txt"]
    assert "out/one.bin is left out: with its 11 bytes there would be more than 10 in all" in warnings
    monkeypatch.setattr(collecting, "MAX_FILES", 2)
    files, warnings = kept(work, "**")
    assert len(files) == 2
    assert "the rest is left out" in warnings[0]


def test_what_was_kept_before_is_replaced_and_a_copy_is_not_copied(work: Path) -> None:
    into = work / "data"
    for _ in range(2):
        found = collect(["**/*.bin", "data"], str(work), into, 10**6, lambda: None)
        assert [file.path for file in found.files] == ["a.bin", "out/one.bin", "out/deep/two.bin"]
    (work / "a.bin").unlink()
    collect(["a.bin"], str(work), into, 10**6, lambda: None)
    assert list(into.rglob("*")) == []


def test_a_folder_that_is_gone(work: Path) -> None:
    with pytest.raises(HostError, match="is not there"):
        collect(["*"], str(work / "none"), work.parent / "data", 1, lambda: None)


def test_names_of_any_bytes(work: Path) -> None:
    os.close(os.open(os.fsencode(work) + b"/odd\xff.bin", os.O_CREAT))
    found = collect(["odd*"], str(work), work.parent / "data", 1, lambda: None)
    assert found.files[0].path == "odd�.bin"
    found.files[0].path.encode()


def test_keeping_files_can_be_interrupted(work: Path) -> None:
    def tick() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        collect(["**"], str(work), work.parent / "data", 10**6, tick)


def test_the_local_host_has_a_place_for_both(tmp_path: Path) -> None:
    host = LocalHost("here", tmp_path, nvidia_smi="no-such-nvidia-smi", devices=tmp_path)
    folder = Path(host.work_folder(UNIT))
    assert folder == tmp_path / "work" / UNIT
    (folder / "a").write_text("a")
    assert host.work_folder(UNIT) == str(folder)
    assert host.collect_files(["a"], str(folder), "7", 10, lambda: None).folder == str(tmp_path / "artifacts" / "7")
    assert (tmp_path / "artifacts" / "7" / "a").read_text() == "a"
    with pytest.raises(HostError):
        host.work_folder("../x")
