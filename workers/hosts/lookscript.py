"""What is there on a machine: paths, models, programs, disks, and what a program says of its own arguments. Changes nothing.

Standard library only, and of the older kind: this text is sent to the host as it is and run by the Python that it has. One JSON
object on standard input, one on standard output.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from workers.hosts.becoming import become

MIB = 1048576
INDEX = "model.safetensors.index.json"
MOST_BYTES = 4194304
"""Of a config, an index, or a help text."""
SIMULATION = b"workers.sim"
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
CONFIG_KEYS = ("architectures", "dtype", "torch_dtype", "quantization_config")
SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<total>\d{5})\.safetensors")


def main() -> None:
    """Answer one question."""
    asked = json.load(sys.stdin)
    user = become(asked.get("user"))
    answer: dict[str, Any] = {"user": user, "home": os.environ.get("HOME")}
    if "help_of" in asked:
        answer["help"] = help_of(asked["help_of"], asked["within_s"])
    for name, look in (("paths", path), ("models", model), ("programs", program), ("disks", disk)):
        answer[name] = {one: look(one) for one in asked.get(name, ())}
    json.dump(answer, sys.stdout)


def path(name: str) -> dict[str, Any]:
    """What a path is: file, folder, other, missing, or hidden where this user may not even look."""
    try:
        mode = Path(name).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return {"kind": "missing"}
    except (OSError, ValueError) as error:
        return {"kind": "hidden", "why": getattr(error, "strerror", None) or str(error)}
    kind = "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
    return {"kind": kind, "readable": os.access(name, os.R_OK), "executable": os.access(name, os.X_OK)}


def model(name: str) -> dict[str, Any]:
    """A model's folder: its weight files, what its index misses, and the part of its config that sizes depend on."""
    found = path(name)
    if found["kind"] != "folder":
        return {**found, "bytes": Path(name).stat().st_size} if found["kind"] == "file" else found
    try:
        files = {one.name: one.stat().st_size for one in os.scandir(name) if one.is_file()}
    except OSError as error:
        return {"kind": "hidden", "why": error.strerror or str(error)}
    index = _json(Path(name, INDEX)) if INDEX in files else None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    listed = sorted({str(one) for one in weight_map.values()}) if isinstance(weight_map, dict) else []
    tensors = listed or _of_one_set([one for one in files if one.endswith(".safetensors")])
    config = _json(Path(name, "config.json")) if "config.json" in files else None
    return {
        **found,
        "bytes": sum(files.get(one, 0) for one in tensors),
        "weights": any(one.endswith(WEIGHTS) for one in files),
        "missing": [one for one in listed or _absent(files) if one not in files][:20],
        "empty": [one for one in tensors if files.get(one) == 0][:20],
        "configured": any(one in files for one in ("config.json", "params.json")) or any(one.endswith(".gguf") for one in files),
        "config": {key: config[key] for key in CONFIG_KEYS if key in config} if isinstance(config, dict) else None,
    }


def _of_one_set(names: list[str]) -> list[str]:
    """Some models come twice in one folder; an engine loads one of them."""
    whole = [one for one in names if not one.startswith("consolidated")]
    return whole or names


def _absent(files: dict[str, int]) -> list[str]:
    """Without an index, the names of the shards that there are tell how many there should be."""
    wanted = []
    for match in filter(None, (SHARD.match(one) for one in sorted(files))):
        total = int(match.group("total"))
        if total <= len(files) + 1000:
            wanted += [f"{match.group('stem')}-{number:05d}-of-{total:05d}.safetensors" for number in range(1, total + 1)]
            break
    return wanted


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.stat().st_size <= MOST_BYTES * 8 else None
    except (OSError, ValueError):
        return None


def program(word: str) -> dict[str, Any]:
    """Where a program is, and what tells this version of it from another."""
    where = word if "/" in word else shutil.which(word) or ""
    if not where:
        return {"kind": "missing"}
    found = path(where)
    if found["kind"] != "file":
        return found
    real = Path(where).resolve()
    status = real.stat()
    dists = _dists(Path(where).parent.parent) or _dists(real.parent.parent)
    mark = f"{real} {status.st_size} {status.st_mtime_ns} {dists}"
    return {**found, "path": where, "mark": mark, "dists": dists, "simulation": _is_simulation(real)}


def _is_simulation(file: Path) -> bool:
    """Whether it starts the simulated engine, which loads no model."""
    try:
        with file.open("rb") as source:
            return SIMULATION in source.read(4096)
    except OSError:
        return False


def _dists(prefix: Path) -> list[str]:
    """The engine's own packages beside a program of a virtual environment, such as vllm-0.32.0.dist-info."""
    try:
        return sorted({one.name for one in prefix.glob("lib/python*/site-packages/*.dist-info") if one.name.startswith(("vllm", "sglang"))})
    except OSError:
        return []


def disk(name: str) -> dict[str, Any]:
    """How much room is left where a path is, or will be."""
    there = Path(name)
    try:
        while not there.exists() and there.parent != there:
            there = there.parent
        found = os.statvfs(there)
    except OSError as error:
        return {"why": error.strerror or str(error)}
    return {"free_mib": found.f_bavail * found.f_frsize // MIB, "total_mib": found.f_blocks * found.f_frsize // MIB}


def help_of(argv: list[str], within_s: float) -> dict[str, Any]:
    """What a program prints of its arguments. It gets no terminal and no input, and is ended where it takes too long."""
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CONFIGURE_LOGGING": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - the engine's own program, which is about to be started anyway
            argv, stdin=subprocess.DEVNULL, capture_output=True, env=environment, cwd="/", timeout=within_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"why": f"it did not answer within {within_s:g} s"}
    except OSError as error:
        return {"why": error.strerror or str(error)}
    said = done.stdout[:MOST_BYTES].decode("utf-8", "replace")
    return {"status": done.returncode, "text": said, "error": done.stderr[-2000:].decode("utf-8", "replace")}


if __name__ == "__main__":
    main()
