"""What a look finds on a real machine: this one, through the script that hosts are sent."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from workers.hosts.base import HostError
from workers.hosts.local_transport import LocalTransport
from workers.hosts.looking import look


def test_paths_models_programs_and_disks_in_one_command(tmp_path: Path) -> None:
    model, broken = tmp_path / "model", tmp_path / "broken"
    for folder in (model, broken):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"dtype": "bfloat16", "secret": 1}))
    (model / "model.safetensors").write_bytes(b"x" * 1000)
    (model / "consolidated.safetensors").write_bytes(b"x" * 1000)
    (broken / "model-00001-of-00003.safetensors").write_bytes(b"")
    (broken / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model-00001-of-00003.safetensors", "b": "model-00002-of-00003.safetensors"}})
    )
    program = tmp_path / "env" / "bin" / "vllm"
    (tmp_path / "env" / "lib" / "python3.12" / "site-packages" / "vllm-0.32.0.dist-info").mkdir(parents=True)
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    asked = {
        "paths": [str(model), str(program), "/nowhere/at/all", f"{program}/below"],
        "models": [str(model), str(broken), "/nowhere"],
        "programs": [str(program), "no-such-program-here", "sh"],
        "disks": ["/nowhere/at/all"],
    }
    found = look(LocalTransport(), asked, python=sys.executable)
    assert [one["kind"] for one in found["paths"].values()] == ["folder", "file", "missing", "missing"]
    assert found["models"][str(model)]["bytes"] == 1000, "of two copies of the weights, one is loaded"
    assert found["models"][str(model)]["config"] == {"dtype": "bfloat16"}
    assert (found["models"][str(broken)]["missing"], found["models"][str(broken)]["empty"]) == (
        ["model-00002-of-00003.safetensors"],
        ["model-00001-of-00003.safetensors"],
    )
    assert found["models"]["/nowhere"] == {"kind": "missing"}
    assert found["programs"][str(program)]["dists"] == ["vllm-0.32.0.dist-info"]
    assert found["programs"]["no-such-program-here"] == {"kind": "missing"}
    assert os.path.isabs(found["programs"]["sh"]["path"])  # noqa: PTH117 - a text, not a path of ours
    assert found["disks"]["/nowhere/at/all"]["free_mib"] > 0


def test_a_program_s_help_with_its_end(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\n[ "$2" = slow ] && exec sleep 30\necho "options: $*"; echo oops >&2; exit 3\n')
    program.chmod(0o755)

    def ask(*words: str, within_s: float) -> dict[str, object]:
        found: dict[str, object] = look(LocalTransport(), {"help_of": [str(program), *words], "within_s": within_s}, python=sys.executable)[
            "help"
        ]
        return found

    assert ask("serve", "--help=all", within_s=20) == {"status": 3, "text": "options: serve --help=all\n", "error": "oops\n"}
    assert ask("serve", "slow", within_s=0.2) == {"why": "it did not answer within 0.2 s"}


def test_a_machine_without_that_python_is_an_error_with_its_words() -> None:
    with pytest.raises(HostError, match="command not found"):
        look(LocalTransport(), {}, python="no-such-python-here")
