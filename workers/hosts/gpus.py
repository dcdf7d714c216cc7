"""NVIDIA GPUs by nvidia-smi: memory, who holds it, and what is wrong where the tool does not answer properly."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

from workers.hosts.base import GpuHolder, GpuMemory, GpuReading
from workers.hosts.process import owner

GPU_FIELDS = "index,uuid,name,memory.used,memory.total,driver_version"
HOLDER_FIELDS = "gpu_uuid,pid,process_name,used_gpu_memory"
STATE_FIELDS = "uuid,clocks.sm,clocks.mem,power.limit,power.draw,temperature.gpu,clocks_throttle_reasons.active"

DEVICE_NODES = ("nvidia[0-9]*", "nvidiactl", "kfd", "dxg")
"""Device files that a GPU of NVIDIA, AMD, or one seen through WSL has."""

_KNOWN_FAILURES = {
    "driver/library version mismatch": "driver_library_mismatch",
    "gpu is lost": "gpu_lost",
    "gpu requires reset": "gpu_hardware_error",
    "unable to determine the device handle": "gpu_lost",
}
_FAILED_VALUES = ("err!", "[unknown error]", "[gpu is lost]", "[gpu requires reset]")


class ToolFailed(Exception):
    """nvidia-smi did not answer properly; the text says how."""


class NvidiaSmi:
    """The tool at one path, never waited for longer than `timeout_s`: it hangs when a card has fallen off the bus."""

    def __init__(self, program: str = "nvidia-smi", timeout_s: float = 20.0, devices: Path = Path("/dev")) -> None:
        self.program = program
        self.timeout_s = timeout_s
        self.devices = devices

    def read(self) -> GpuReading:
        """Memory and holders of every GPU; `known` is false where any part of the answer is missing."""
        try:
            rows = self._query("gpu", GPU_FIELDS)
            gpus = tuple(_gpu(row) for row in rows)
            holders = tuple(_holder(row) for row in self._query("compute-apps", HOLDER_FIELDS))
        except FileNotFoundError:
            return self._without_tool()
        except (ToolFailed, OSError) as error:
            return GpuReading(known=False, tool=self.program, why=str(error))
        if not gpus:
            return GpuReading(known=False, tool=self.program, why=f"{self.program} lists no GPU")
        return GpuReading(known=True, tool=self.program, gpus=gpus, holders=holders, driver=rows[0][5])

    def state(self) -> list[dict[str, str]]:
        """Clocks, power, temperature and throttle reasons a GPU, as the tool words them; empty where it does not say."""
        try:
            rows = self._query("gpu", STATE_FIELDS)
        except (ToolFailed, OSError):
            return []
        return [dict(zip(STATE_FIELDS.split(","), row, strict=True)) for row in rows]

    def _without_tool(self) -> GpuReading:
        nodes = sorted(str(path) for pattern in DEVICE_NODES for path in self.devices.glob(pattern))
        if nodes:
            return GpuReading(known=False, tool="none", why=f"{self.program} is not installed, but {', '.join(nodes)} exists")
        return GpuReading(known=True, tool="none", no_gpus=True)

    def _query(self, what: str, fields: str) -> list[list[str]]:
        command = [self.program, f"--query-{what}={fields}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(  # noqa: S603 - the program is the host's own setting
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=self.timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ToolFailed(f"{self.program} did not answer within {self.timeout_s:.0f} s") from error
        out = done.stdout.decode("utf-8", "replace")
        if done.returncode != 0:
            raise ToolFailed(_named(f"{self.program} ended with status {done.returncode}: {_first_line(out, done.stderr)}"))
        rows = [row for row in csv.reader(out.splitlines(), skipinitialspace=True) if row]
        width = fields.count(",") + 1
        for row in rows:
            if len(row) != width:
                raise ToolFailed(_named(f"{self.program} answered: {', '.join(row)}"))
        return [[value.strip() for value in row] for row in rows]


def _first_line(out: str, err: bytes) -> str:
    lines = (out + "\n" + err.decode("utf-8", "replace")).splitlines()
    return next((line.strip() for line in lines if line.strip()), "it said nothing")


def _named(text: str) -> str:
    """The text, after the name of the reason where one is recognised."""
    lower = text.lower()
    return next((f"{reason}: {text}" for words, reason in _KNOWN_FAILURES.items() if words in lower), text)


def _mib(value: str) -> int | None:
    """None for [N/A] and its like; ToolFailed where the card could not be asked."""
    if value.isdecimal():
        return int(value)
    if value.lower() in _FAILED_VALUES:
        raise ToolFailed(_named(f"a GPU reports {value}"))
    if value.startswith("["):
        return None
    raise ToolFailed(f"{value!r} is not an amount of memory")


def _gpu(row: list[str]) -> GpuMemory:
    index, uuid, name, used, total, _ = row
    if not index.isdecimal():
        raise ToolFailed(_named(f"{index!r} is not the index of a GPU"))
    return GpuMemory(index=int(index), uuid=uuid, name=name, used_mib=_mib(used), total_mib=_mib(total))


def _holder(row: list[str]) -> GpuHolder:
    uuid, pid, name, used = row
    if not pid.isdecimal():
        raise ToolFailed(f"a process holds GPU {uuid}, but its pid is {pid!r}")
    # "[Not Found]" is a process that has ended while its memory is still being given back.
    shown = None if name.startswith("[") else name
    return GpuHolder(pid=int(pid), gpu_uuid=uuid, used_mib=_mib(used), name=shown, owner=owner(int(pid)))
