"""What kind of machine this is, for the record that stands beside every measurement."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from workers.hosts.gpus import NvidiaSmi
from workers.hosts.supervise import boot_id


def machine_facts(gpus: NvidiaSmi) -> dict[str, object]:
    """Kernel, processor, memory, GPUs and their state; what cannot be read is None."""
    reading = gpus.read()
    return {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "boot_id": boot_id(),
        "cpu_model": _field(Path("/proc/cpuinfo"), "model name"),
        "cpus": os.cpu_count(),
        "memory_mib": _memory_mib(),
        "driver": reading.driver,
        "gpu_names": [gpu.name for gpu in reading.gpus],
        "gpu_uuids": [gpu.uuid for gpu in reading.gpus],
        "gpu_state": gpus.state() if reading.gpus else [],
        "gpus_known": reading.known,
    }


def _field(path: Path, key: str) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == key), None)


def _memory_mib() -> int | None:
    total = _field(Path("/proc/meminfo"), "MemTotal")
    return int(total.split()[0]) // 1024 if total else None
