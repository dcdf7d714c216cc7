"""Files of a command, fetched from a host by short commands; the host is this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.hosts import fetching
from workers.hosts.base import HostError
from workers.hosts.fetching import Fetch
from workers.hosts.local_transport import LocalTransport


def fetch(tmp_path: Path, limit_bytes: int = 10_000) -> Fetch:
    return Fetch(LocalTransport(), None, tmp_path / "kept", limit_bytes, lambda: None)


def test_files_come_whole_in_pieces_and_what_does_not_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PIECE_BYTES", 400)
    there = tmp_path / "there"
    (there / "out").mkdir(parents=True)
    (there / "out" / "a.bin").write_bytes(bytes(range(250)) * 4)
    (there / "out" / "large").write_bytes(b"x" * 9_500)
    (there / "leads-out").symlink_to("/etc/passwd")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old").touch()
    kept = fetch(tmp_path).all(["out", "out/a.bin", "leads-out", "nothing-*"], str(there))
    assert [(file.path, file.size) for file in kept.files] == [("out/a.bin", 1000)]
    assert (tmp_path / "kept" / "out" / "a.bin").read_bytes() == bytes(range(250)) * 4
    assert not (tmp_path / "kept" / "old").exists(), "copies of an earlier attempt are replaced"
    told = "\n".join(kept.warnings)
    for words in ("leads-out is left out: it is a link that leads out", "nothing-* matches no file", "large is left out: with its 9,500"):
        assert words in told


def test_a_file_whose_folder_became_a_link_meanwhile_is_not_read(tmp_path: Path) -> None:
    real, secret = tmp_path / "there", tmp_path / "elsewhere"
    for folder in (real, secret):
        folder.mkdir()
        (folder / "f").write_text(folder.name)

    def swap() -> None:
        if not real.is_symlink():
            real.rename(tmp_path / "moved")
            real.symlink_to(secret)

    kept = Fetch(LocalTransport(), None, tmp_path / "kept", 1000, swap).all(["f"], str(real))
    assert kept.files == ()
    assert "has become a link" in kept.warnings[0]


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="is not there"):
        fetch(tmp_path).all(["*"], str(tmp_path / "gone"))


def test_a_name_that_leads_out_of_the_data_folder_is_not_believed(tmp_path: Path) -> None:
    made = fetch(tmp_path)
    made._keep("../../x", "/etc/passwd", 1)
    assert made.files == []
    assert "no path below" in made.warnings[0]
