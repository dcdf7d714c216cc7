"""The simulated GPUs: who holds how much of which, in one small file for each live engine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GPU_COUNT = 8
GPU_NAME = "NVIDIA RTX PRO 6000 Blackwell (simulated)"
TOTAL_MIB = 97887
IDLE_MIB = 4
CONTEXT_MIB = 618
LOADED_MIB = 90000
DRIVER = "580.95.05"


def gpu_uuid(index: int) -> str:
    """The same made-up UUID on every call."""
    return f"GPU-51b0{index:04d}-0000-4000-8000-{index:012d}"


@dataclass(frozen=True)
class Holding:
    """A live process and the GPUs that it holds memory on."""

    pid: int
    gpus: tuple[int, ...]
    used_mib: int
    name: str


def start_ticks(pid: int) -> int | None:
    """When the process started, in ticks since boot: tells it from a later one with the same pid. None where /proc is missing."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def is_alive(pid: int, started: int | None) -> bool:
    """Whether the process that wrote a file still lives."""
    if started is not None:
        return start_ticks(pid) == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def write_holding(folder: Path, pid: int, gpus: Sequence[int], used_mib: int, name: str) -> None:
    """Say that `pid` holds `used_mib` on each of `gpus`."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"pid": pid, "started": start_ticks(pid), "gpus": list(gpus), "used_mib": used_mib, "name": name}
    unfinished = folder / f".engine-{pid}.tmp"
    unfinished.write_text(json.dumps(content), encoding="utf-8")
    unfinished.replace(folder / f"engine-{pid}.json")


def drop_holding(folder: Path, pid: int) -> None:
    """The process lets go of its GPUs."""
    (folder / f"engine-{pid}.json").unlink(missing_ok=True)


def holdings(folder: Path) -> list[Holding]:
    """What live processes hold; files of dead ones do not count."""
    found: list[Holding] = []
    for path in sorted(folder.glob("engine-*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if is_alive(content["pid"], content["started"]):
            found.append(Holding(content["pid"], tuple(content["gpus"]), content["used_mib"], content["name"]))
    return found


def used_mib(held: Sequence[Holding], gpu: int) -> int:
    """Memory in use on one GPU."""
    return min(TOTAL_MIB, IDLE_MIB + sum(each.used_mib for each in held if gpu in each.gpus))


def visible_gpus(env: Mapping[str, str] = os.environ) -> list[int]:
    """GPUs by CUDA_VISIBLE_DEVICES, by index; all eight where it is not set."""
    given = env.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return list(range(GPU_COUNT))
    return [int(part) for part in given.split(",") if part.strip().isdigit() and int(part) < GPU_COUNT]
