"""The GPUs of a host by whichever tool lists them, with the processes that hold their memory. Unknown is never free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Protocol

from workers.hosts.base import ProcessInfo
from workers.hosts.gpu_reading import GpuHolder, GpuReading
from workers.hosts.gpu_tool import NoDevices, ToolFailed, ToolMissing
from workers.hosts.nvidia import NvidiaSmi
from workers.hosts.rocm import AmdSmi, RocmSmi
from workers.hosts.transport import Transport

NVIDIA_NODES = ("nvidia[0-9]*",)
AMD_NODES = ("kfd", "dxg")
DEVICE_NODES = (*NVIDIA_NODES, "nvidiactl", *AMD_NODES)
"""Device files that a GPU of NVIDIA, AMD, or one seen through WSL has."""
ROCM_FOLDER = "/opt/rocm/bin"
"""Where AMD's tools are, often without being on the PATH of a command that comes over ssh."""

Describe = Callable[[Sequence[int]], Mapping[int, ProcessInfo]]


class GpuTool(Protocol):
    """One vendor's tool on one host."""

    program: str
    shows_titles: bool

    def read(self) -> GpuReading:
        """Memory and holders. Raises ToolFailed."""

    def state(self) -> list[dict[str, str]]:
        """Clocks, power, temperatures. Raises ToolFailed."""


class GpuTools:
    """The tools of one host. Which one lists the GPUs is found out once."""

    def __init__(self, transport: Transport, nvidia_smi: str = "nvidia-smi", *, timeout_s: float = 20.0, devices: str = "/dev") -> None:
        self._transport, self._timeout_s, self._devices = transport, timeout_s, devices
        self._nvidia = NvidiaSmi(transport, nvidia_smi, timeout_s)
        self._found: GpuTool | None = None

    def read(self, describe: Describe | None = None) -> GpuReading:
        """Memory and holders of every GPU; not known where any part of the answer is missing. `describe` says who they are.

        TransportError where the wire is to blame, and not the tool.
        """
        try:
            tool, reading = self._read()
        except _Unanswered as failed:
            return GpuReading(known=False, tool=failed.program, why=str(failed))
        if not reading.holders or describe is None:
            return reading
        known = describe(sorted({holder.pid for holder in reading.holders}))
        titled = tool is not None and tool.shows_titles
        return replace(reading, holders=tuple(_described(holder, known.get(holder.pid), titled=titled) for holder in reading.holders))

    def state(self) -> list[dict[str, str]]:
        """Clocks, power, temperatures and throttling a GPU, as the tool words them; empty where it does not say."""
        try:
            tool = self._found or self._read()[0]
            return [] if tool is None else tool.state()
        except (_Unanswered, ToolFailed):
            return []

    def facts(self) -> dict[str, object]:
        """Provenance: driver, names and state."""
        reading = self.read()
        return {
            "driver": reading.driver,
            "gpu_tool": reading.tool,
            "gpu_names": [gpu.name for gpu in reading.gpus],
            "gpu_uuids": [gpu.uuid for gpu in reading.gpus],
            "gpu_state": self.state() if reading.gpus else [],
            "gpu_warnings": list(reading.warnings),
            "gpus_known": reading.known,
        }

    def _read(self) -> tuple[GpuTool | None, GpuReading]:
        if self._found is None:
            return self._look_for_one()
        try:
            return self._found, self._found.read()
        except ToolFailed as error:
            raise _Unanswered(self._found.program, str(error)) from error

    def _look_for_one(self) -> tuple[GpuTool | None, GpuReading]:
        empty: _Unanswered | None = None
        try:
            reading = self._nvidia.read()
        except ToolMissing:
            pass
        except NoDevices as error:
            empty = _Unanswered(self._nvidia.program, str(error))
        except ToolFailed as error:
            raise _Unanswered(self._nvidia.program, str(error)) from error
        else:
            self._found = self._nvidia
            return self._nvidia, reading
        return self._without_nvidia(empty)

    def _without_nvidia(self, empty: _Unanswered | None) -> tuple[GpuTool | None, GpuReading]:
        nodes = self._nodes()
        if _matching(nodes, NVIDIA_NODES):
            # Whatever another vendor's tool lists, a card of NVIDIA's is there that nobody can see into.
            raise empty or _Unanswered("none", f"{self._nvidia.program} is not installed, but {', '.join(nodes)} exists")
        for tool in self._amd_tools() if _matching(nodes, AMD_NODES) else ():
            try:
                reading = tool.read()
            except ToolMissing:
                continue
            except ToolFailed as error:
                empty = _Unanswered(tool.program, str(error))
            else:
                self._found = tool
                return tool, reading
        if empty is not None:
            raise empty
        if nodes:
            raise _Unanswered("none", f"no GPU tool is installed, but {', '.join(nodes)} exists")
        return None, GpuReading(known=True, tool="none", no_gpus=True)

    def _amd_tools(self) -> list[GpuTool]:
        """The newer one first: it says on which card a process is."""
        tools: list[GpuTool] = []
        for folder in ("", f"{ROCM_FOLDER}/"):
            tools += [
                AmdSmi(self._transport, f"{folder}amd-smi", self._timeout_s),
                RocmSmi(self._transport, f"{folder}rocm-smi", self._timeout_s),
            ]
        return tools

    def _nodes(self) -> list[str]:
        """Device files of GPUs. Where /dev cannot be read, nothing is certain."""
        done = self._transport.run(["ls", "-1", self._devices])
        if not done.ok or done.truncated:
            said = done.stderr.decode("utf-8", "replace").strip()[-300:]
            raise _Unanswered("none", f"{self._devices} could not be listed: {said}")
        names = sorted(done.stdout.decode("utf-8", "replace").split())
        return [str(PurePath(self._devices) / name) for name in names if any(fnmatchcase(name, pattern) for pattern in DEVICE_NODES)]


class _Unanswered(Exception):
    """No tool answered properly."""

    def __init__(self, program: str, why: str) -> None:
        super().__init__(why)
        self.program = program


def _matching(nodes: list[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(PurePath(node).name, pattern) for node in nodes for pattern in patterns)


def _described(holder: GpuHolder, info: ProcessInfo | None, *, titled: bool) -> GpuHolder:
    if info is None:
        return holder
    placed = replace(holder, start_ticks=info.start_ticks, state=info.state)
    if holder.name is None:
        # Where the tool cannot name it, the process with this pid here may be quite another one.
        return placed
    name = holder.name if titled else info.name or holder.name
    return replace(placed, name=name, owner=info.owner, unit=info.unit, unit_lives=info.unit_lives)
