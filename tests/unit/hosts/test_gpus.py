"""Which tool is asked on a host, over whatever wire, and what is made of its answers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from service.domain.reasons import Reason
from workers.hosts.base import ProcessInfo
from workers.hosts.gpu_reading import GpuReading
from workers.hosts.gpus import GpuTools
from workers.hosts.local import LocalHost
from workers.hosts.local_transport import LocalTransport
from workers.hosts.machine import machine_facts
from workers.hosts.transport import CommandResult, TransportError

TWO = (
    "2, 0, GPU-aa, NVIDIA RTX PRO 6000, 1234, 97887, 31, 609, 580.95\n"
    "2, 1, GPU-bb, NVIDIA RTX PRO 6000, [N/A], 97887, 31, 609, 580.95\n"
)  # fmt: skip
NARROW = "2, 0, GPU-aa, X, 5, 97887, 31, 450.1\n2, 1, GPU-bb, X, 6, 97887, 31, 450.1\n"
NOT_VALID = CommandResult(2, None, b'Field "memory.reserved" is not a valid field to query.\n\n', b"")
MISSING = CommandResult(127, None, b"", b"command not found\n")


def said(text: str, status: int = 0) -> CommandResult:
    return CommandResult(status, None, text.encode(), b"")


@dataclass
class Script:
    """A wire whose far end is a table: the first entry whose words all stand in the command answers."""

    answers: list[tuple[str, CommandResult | Exception]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", deadline_s: float = 30.0, limit_bytes: int = 0) -> CommandResult:  # noqa: ARG002 - the seam's signature
        command = " ".join(argv)
        self.asked.append(command)
        for words, answer in self.answers:
            if all(word in command for word in words.split()):
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return MISSING

    def close(self) -> None:
        pass


def nvidia(gpus: CommandResult | str = TWO, holders: str = "") -> list[tuple[str, CommandResult | Exception]]:
    return [("--query-compute-apps", said(holders)), ("--query-gpu", said(gpus) if isinstance(gpus, str) else gpus)]


def dev(*names: str) -> tuple[str, CommandResult]:
    return ("ls /dev", said("".join(f"{name}\n" for name in ("null", *names))))


def read(*answers: tuple[str, CommandResult | Exception]) -> GpuReading:
    return GpuTools(Script(list(answers))).read()


def test_memory_and_holders() -> None:
    script = Script(nvidia(holders="GPU-aa, 7, VLLM::EngineCore, 1200\nGPU-bb, 8, [Not Found], [N/A]\nGPU-bb, 9, python, 3\n"))
    asked: list[Sequence[int]] = []

    def describe(pids: Sequence[int]) -> Mapping[int, ProcessInfo]:
        asked.append(pids)
        return {pid: ProcessInfo(pid, f"title {pid}", "vllm", f"unit-{pid}", "D", pid * 10) for pid in (7, 8)}

    reading = GpuTools(script).read(describe)
    assert (reading.known, reading.no_gpus, reading.driver, reading.tool) == (True, False, "580.95", "nvidia-smi")
    assert [(gpu.index, gpu.used_mib, gpu.total_mib, gpu.reserved_mib) for gpu in reading.gpus] == [
        (0, 1234, 97887, 609),
        (1, None, 97887, 609),
    ]
    assert asked == [[7, 8, 9]]
    ours, nameless, gone = reading.holders
    assert (ours.name, ours.owner, ours.unit, ours.state, ours.start_ticks) == ("VLLM::EngineCore", "vllm", "unit-7", "D", 70)
    # Its number may be another process's here.
    assert (nameless.name, nameless.owner, nameless.unit, nameless.state, nameless.start_ticks) == (None, None, None, "D", 80)
    assert (gone.name, gone.owner, gone.start_ticks) == ("python", None, None)


def test_the_host_itself_ends_a_tool_that_hangs() -> None:
    script = Script(nvidia())
    GpuTools(script, "/opt/smi", timeout_s=7.5).read()
    assert all(command.startswith("timeout -k 2 7.5 /opt/smi --query-") for command in script.asked)


@pytest.mark.parametrize(
    "ending", [CommandResult(124, None, b"", b""), CommandResult(137, None, b"", b""), CommandResult(None, "KILL", b"", b"")]
)
def test_a_tool_that_hangs(ending: CommandResult) -> None:
    reading = read(*nvidia(ending))
    assert not reading.known
    assert reading.why == "nvidia-smi did not answer within 20 s"


def test_a_tool_that_not_even_the_host_can_end() -> None:
    error = TransportError(Reason.REMOTE_COMMAND_FAILED, "nvidia-smi did not end within 32 s", "unknown")
    reading = read(("--query-gpu", error))
    assert not reading.known
    assert "did not end within" in reading.why


@pytest.mark.parametrize("reason", [Reason.CONNECTION_LOST, Reason.HOST_UNREACHABLE, Reason.AUTH_FAILED])
def test_a_wire_that_breaks_is_no_answer_of_the_tool(reason: Reason) -> None:
    with pytest.raises(TransportError):
        read(("--query-gpu", TransportError(reason, "x", "unknown")))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            said("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n", 18),
            "driver_library_mismatch: ",
        ),
        (said("Unable to determine the device handle for GPU0000:41:00.0: Unknown Error\n", 255), "gpu_lost: "),
        (CommandResult(15, None, b"", b"GPU is lost\n"), "gpu_lost: "),
        (said("No devices were found\n", 6), "nvidia-smi ended with status 6: No devices were found"),
        (said("No devices were found\n"), "it answered: No devices"),
        (said("", 9), "nvidia-smi ended with status 9: it said nothing"),
        (CommandResult(None, "SEGV", b"", b""), "nvidia-smi ended with signal SEGV"),
        (said(""), "it lists no GPU"),
        (said(TWO.splitlines()[0] + "\n"), "it counts 2 GPUs"),
        (CommandResult(0, None, TWO.encode(), b"", truncated=True), "answer is not whole"),
        (said(TWO.replace("2, 1,", "2, 3,")), "gpu_lost: GPU is lost: nvidia-smi does not list GPU 1"),
    ],
)
def test_not_known(answer: CommandResult, why: str) -> None:
    reading = read(*nvidia(answer), dev("nvidia0"))
    assert not reading.known
    assert not reading.no_gpus
    assert reading.why.startswith(why) or (not why.endswith(": ") and why in reading.why)


def test_holders_that_cannot_be_read() -> None:
    assert not read(*nvidia(holders="garbage\n")).known
    assert not read(("--query-compute-apps", said("", 255)), *nvidia()[1:]).known


def test_a_damaged_inforom_is_a_warning() -> None:
    reading = read(*nvidia(said(TWO + "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n", 14)))
    assert reading.known
    assert len(reading.warnings) == 1


def test_a_driver_that_does_not_know_every_field() -> None:
    reading = read(("--query-gpu memory.reserved", NOT_VALID), *nvidia(NARROW))
    assert [(gpu.used_mib, gpu.reserved_mib) for gpu in reading.gpus] == [(5, None), (6, None)]
    assert reading.driver == "450.1"


def test_no_tool_and_no_device() -> None:
    script = Script([dev()])
    reading = GpuTools(script).read()
    assert (reading.known, reading.no_gpus, reading.gpus) == (True, True, ())
    assert len(script.asked) == 2, "AMD's tools are looked for only where there is something of AMD's"


@pytest.mark.parametrize("node", ["nvidia0", "nvidia13", "nvidiactl", "kfd", "dxg"])
def test_no_tool_but_a_device(node: str) -> None:
    reading = read(dev(node))
    assert (reading.known, reading.no_gpus) == (False, False)
    assert f"/dev/{node}" in reading.why


@pytest.mark.parametrize(
    "answer", [CommandResult(1, None, b"", b"ls: Permission denied\n"), CommandResult(0, None, b"null\n", b"", truncated=True)]
)
def test_devices_that_cannot_be_listed_are_not_none(answer: CommandResult) -> None:
    reading = read(("ls /dev", answer))
    assert (reading.known, reading.no_gpus) == (False, False)


CARD = {"VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "24856756224", "Unique ID": "0x1"}
ROCM = said(
    "WARNING: AMD GPU device(s) is/are in a low-power state\n"
    + json.dumps({"card0": CARD, "system": {"PID7": "python3, 1, 99999999, 0, 0"}})
)
METRIC = said(json.dumps([{"gpu": 0, "mem_usage": {"used_vram": {"value": 12, "unit": "MB"}}}]))
AMD: list[tuple[str, CommandResult | Exception]] = [
    ("amd-smi metric --mem-usage", METRIC),
    ("amd-smi process", said("[]")),
    ("amd-smi list", said('[{"gpu": 0, "uuid": "uu"}]')),
    ("amd-smi static", said("[]")),
]


def test_rocm_smi_where_it_is_all_there_is() -> None:
    script = Script([dev("kfd"), ("/opt/rocm/bin/rocm-smi --showmeminfo vram --showpids --json", ROCM)])
    tools = GpuTools(script)
    reading = tools.read(lambda pids: {pid: ProcessInfo(pid, "VLLM::EngineCore", "vllm") for pid in pids})
    assert [gpu.used_mib for gpu in reading.gpus] == [23705]
    assert reading.holders[0].name == "VLLM::EngineCore", "the tool shows the program, /proc the title"
    asked = len(script.asked)
    assert tools.read().known
    assert len(script.asked) == asked + 1, "found once, asked at once from then on"


def test_amd_smi_comes_first() -> None:
    assert [gpu.uuid for gpu in read(dev("kfd"), *AMD, ("rocm-smi", ROCM)).gpus] == ["uu"]


def test_rocm_smi_where_amd_smi_fails() -> None:
    assert [gpu.uuid for gpu in read(dev("kfd"), ("amd-smi", said("no permission", 1)), ("rocm-smi", ROCM)).gpus] == ["0x1"]


def test_amd_tools_that_all_fail() -> None:
    reading = read(dev("kfd"), ("rocm-smi", said("ERROR: Driver not initialized (amdgpu not found in modules)\n")))
    assert not reading.known
    assert "Driver not initialized" in reading.why


def test_both_vendors_tools() -> None:
    """The one that lists GPUs; but what another vendor's tool lists says nothing of a card of NVIDIA's that fails."""
    none = said("No devices were found\n", 6)
    mismatch = said("Failed to initialize NVML: Driver/library version mismatch\n", 18)
    assert read(*nvidia(), dev("nvidia0", "kfd"), *AMD).tool == "nvidia-smi"
    assert read(*nvidia(none), dev("nvidiactl", "kfd"), *AMD).tool == "amd-smi"
    assert not read(*nvidia(none), dev("nvidia0", "kfd"), *AMD).known
    assert not read(*nvidia(mismatch), dev("kfd"), *AMD).known
    assert not read(dev("nvidia0", "kfd"), *AMD).known
    assert not read(*nvidia(none), dev()).known


STATE = "GPU-aa, 2400, 1200, 3090, 80.1, 600.00, 41, P0, Enabled"


def test_state_by_what_the_driver_knows() -> None:
    newest = GpuTools(
        Script([("--query-gpu clocks_event_reasons_counters", said(f"{STATE}, Enabled, 0, 0x0, 7, 8, 9, [N/A]\n")), *nvidia()])
    )
    (state,) = newest.state()
    assert (state["clocks.sm"], state["power.limit"], state["temperature.gpu"]) == ("2400", "600.00", "41")
    assert state["clocks_event_reasons_counters.sw_thermal_slowdown"] == "8"
    assert "clocks_event_reasons_counters.hw_power_brake_slowdown" not in state, "what is not said is left out"
    older = GpuTools(Script([("clocks_event", NOT_VALID), ("clocks_throttle", said(f"{STATE}, Enabled, 0, 0x4\n")), *nvidia()]))
    assert older.state()[0]["clocks_throttle_reasons.active"] == "0x4"
    oldest = GpuTools(Script([("clocks_event", NOT_VALID), ("clocks_throttle", NOT_VALID), ("pstate", said(f"{STATE}\n")), *nvidia()]))
    assert oldest.state()[0]["persistence_mode"] == "Enabled"


def test_state_is_best_effort() -> None:
    assert GpuTools(Script([("pstate", said("", 1)), *nvidia()])).state() == []
    assert GpuTools(Script([dev()])).state() == []
    assert GpuTools(Script([dev("nvidia0")])).state() == []


def test_state_of_amd() -> None:
    cards = said(
        json.dumps({"card0": {"Temperature (Sensor edge) (C)": "41.0", "Max Graphics Package Power (W)": "N/A"}, "system": {"x": "y"}})
    )
    by_rocm = GpuTools(Script([dev("kfd"), ("rocm-smi --showclocks", cards), ("rocm-smi", ROCM)]))
    assert by_rocm.state() == [{"uuid": "card0", "Temperature (Sensor edge) (C)": "41.0"}]
    metric = said(json.dumps({"gpu_data": [{"gpu": 0, "clock": {"gfx_0": {"clk": {"value": 131, "unit": "MHz"}, "locked": "N/A"}}}]}))
    by_amd = GpuTools(Script([dev("kfd"), ("amd-smi metric --clock", metric), *AMD]))
    assert by_amd.state() == [{"gpu": "0", "clock.gfx_0.clk": "131 MHz"}]


def test_facts() -> None:
    facts = GpuTools(Script([("pstate", said(f"{STATE}\n" * 2)), *nvidia()])).facts()
    assert (facts["driver"], facts["gpu_uuids"], facts["gpus_known"]) == ("580.95", ["GPU-aa", "GPU-bb"], True)
    assert GpuTools(Script([dev()])).facts()["gpu_names"] == []


def test_facts_of_the_machine_over_the_wire() -> None:
    script = Script(
        [
            dev(),
            ("cat /proc/sys/kernel/random/boot_id", said("far\n6.1.0\nb00t\n")),
            ("grep /proc/cpuinfo", said("model name\t: EPYC 9\n")),
            ("grep /proc/meminfo", said("MemTotal:       2097152 kB\n")),
            ("nproc --all", said("256\n")),
        ]
    )
    facts = machine_facts(script, GpuTools(script))
    names = ("hostname", "kernel", "boot_id", "cpu_model", "cpus", "memory_mib")
    assert [facts[name] for name in names] == ["far", "6.1.0", "b00t", "EPYC 9", 256, 2048]
    bare = Script([dev(), ("cat", said("half\n", 1))])
    assert [machine_facts(bare, GpuTools(bare))[name] for name in names] == [None] * 6


@pytest.fixture
def local(tmp_path: Path) -> Callable[..., LocalHost]:
    """This machine, with a script in place of the tool."""

    def make(holders: str = "", extra: str = "", timeout_s: float = 10.0) -> LocalHost:
        path = tmp_path / "nvidia-smi"
        (tmp_path / "gpus").write_text(TWO)
        (tmp_path / "holders").write_text(holders)
        path.write_text(f'#!/bin/sh\n{extra}\ncase "$1" in *compute-apps*) cat {tmp_path}/holders;; *) cat {tmp_path}/gpus;; esac\n')
        path.chmod(0o755)
        return LocalHost("here", tmp_path, str(path), gpu_timeout_s=timeout_s, devices=tmp_path)

    return make


def test_on_this_machine(local: Callable[..., LocalHost]) -> None:
    host = local(f"GPU-aa, {os.getpid()}, /opt/vllm/bin/python, 1200\nGPU-bb, 999999999, [Not Found], [N/A]\n")
    ours, gone = host.gpus().holders
    assert (ours.owner, ours.unit, ours.state) == (host.run_as, None, "R")
    assert (gone.owner, gone.state) == (None, None)


def test_a_tool_that_hangs_on_this_machine(local: Callable[..., LocalHost]) -> None:
    assert local(extra="exec sleep 60", timeout_s=0.2).gpus().why.endswith("did not answer within 0.2 s")


@pytest.mark.parametrize(("node", "no_gpus"), [(None, True), ("nvidia0", False), ("nvidia", True)])
def test_no_tool_on_this_machine(tmp_path: Path, node: str | None, *, no_gpus: bool) -> None:
    if node:
        (tmp_path / node).touch()
    assert GpuTools(LocalTransport(), "no-such-tool", devices=str(tmp_path)).read().no_gpus is no_gpus
