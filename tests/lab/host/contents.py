"""The files that make a root a host: one archive, unpacked inside."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

FILES = Path(__file__).parent / "files"
PROGRAMS = {"nvidia-smi": "usr/bin/nvidia-smi", "vllm": "opt/vllm/bin/vllm", "hold-gpus": "opt/lab/hold-gpus"}
HOMES = {"root": "root", "expctl": "home/expctl", "ops": "home/ops"}


def archive(texts: Mapping[str, str], our_key: str, host_key: str, public_key: str) -> bytes:
    """A tar of everything, by the names of its owners."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, text in texts.items():
            _add(tar, name, text)
        for file, name in PROGRAMS.items():
            _add(tar, name, (FILES / file).read_text(), 0o755)
        _add(tar, "etc/ssh/ssh_host_ed25519_key", host_key, 0o600)
        _add(tar, "etc/ssh/ssh_host_ed25519_key.pub", public_key + "\n")
        for user, home in HOMES.items():
            _add(tar, f"{home}/.ssh", None, 0o700, user)
            _add(tar, f"{home}/.ssh/authorized_keys", our_key, 0o600, user)
    return whole.getvalue()


def _add(tar: tarfile.TarFile, name: str, text: str | None, mode: int = 0o644, owner: str = "root") -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.uname, entry.gname = mode, owner, owner
    if text is None:
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
        return
    content = text.encode()
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
