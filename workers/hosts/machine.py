"""What kind of machine this is, for the record that stands beside every measurement."""

from __future__ import annotations

import re

from workers.hosts.gpus import GpuTools
from workers.hosts.transport import Transport

_KERNEL = ("hostname", "osrelease", "random/boot_id")
_PROCESSOR = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
_MEMORY = re.compile(r"^MemTotal:\s+(\d+) kB$", re.MULTILINE)


def machine_facts(transport: Transport, gpus: GpuTools) -> dict[str, object]:
    """Kernel, processor, memory, GPUs and their state; what cannot be read is None."""
    kernel = _printed(transport, "cat", *(f"/proc/sys/kernel/{name}" for name in _KERNEL)).split()
    hostname, release, boot_id = kernel if len(kernel) == len(_KERNEL) else (None, None, None)
    processor = _PROCESSOR.search(_printed(transport, "grep", "-m", "1", "^model name", "/proc/cpuinfo"))
    memory = _MEMORY.search(_printed(transport, "grep", "MemTotal", "/proc/meminfo"))
    cpus = _printed(transport, "nproc", "--all").strip()
    return {
        "hostname": hostname,
        "kernel": release,
        "boot_id": boot_id,
        "cpu_model": processor[1].strip() if processor else None,
        "cpus": int(cpus) if cpus.isdecimal() else None,
        "memory_mib": int(memory[1]) // 1024 if memory else None,
        **gpus.facts(),
    }


def _printed(transport: Transport, *argv: str) -> str:
    """Empty where the command failed: a fact that is missing is no reason to stop."""
    done = transport.run(argv)
    return done.stdout.decode("utf-8", "replace") if done.ok else ""
