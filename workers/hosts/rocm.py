"""AMD GPUs: rocm-smi in JSON and csv, and amd-smi, which is to replace it and says which process is on which card."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from workers.hosts.gpu_reading import GpuHolder, GpuMemory, GpuReading
from workers.hosts.gpu_tool import NoDevices, ToolFailed, ask
from workers.hosts.transport import Transport

MOST_DIGITS = 18
"""No amount of bytes is longer."""
SHOWN = 100
MIB = 2**20
PER_UNIT = {"B": 1 / MIB, "KB": 1 / 1024, "MB": 1.0, "GB": 1024.0}
"""Of amd-smi, which writes MB for 2^20 bytes."""
NOTHING_RUNS = "no running processes"
UNKNOWN_NAMES = frozenset({"", "n/a", "unknown"})

_CARD = re.compile(r"card(\d+)")
_PROCESS = re.compile(r"PID(\d+)")


def parse_rocm(text: str) -> GpuReading:
    """rocm-smi with --showmeminfo vram, and what else was asked of it. Columns go by name: their order has changed before."""
    cards = _from_json(text) if text.lstrip().startswith("{") else _from_csv(text)
    system = cards.pop("system", {})
    gpus = tuple(_card(name, {key.lower(): value for key, value in card.items()}) for name, card in cards.items())
    if not gpus:
        raise NoDevices("it lists no GPU")
    driver = next((value for key, value in system.items() if key.lower() == "driver version"), None)
    holders = tuple(holder for key, value in system.items() if (holder := _process(key, value)) is not None)
    return GpuReading(known=True, tool="rocm-smi", gpus=gpus, holders=holders, driver=driver)


def _from_json(text: str) -> dict[str, dict[str, str]]:
    found = _json(text)
    if not isinstance(found, dict) or not all(isinstance(part, dict) for part in found.values()):
        raise ToolFailed(f"it answered: {text[:300]!r}")
    return {str(name): {str(key): str(value) for key, value in part.items()} for name, part in found.items()}


def _from_csv(text: str) -> dict[str, dict[str, str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.upper().startswith("WARNING")]
    rows = list(csv.reader(lines))
    if not rows or rows[0][0] != "device":
        raise NoDevices("it said nothing") if not rows else ToolFailed(f"it answered: {lines[0][:300]}")
    header = rows[0]
    if any(len(row) != len(header) for row in rows):
        raise ToolFailed("a row of its answer has not as many columns as the header")
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows[1:]}


def _card(name: str, card: Mapping[str, str]) -> GpuMemory:
    match = _CARD.fullmatch(name)
    if match is None:
        raise ToolFailed(f"{name!r} is not a card")
    used, total = _mib(card.get("vram total used memory (b)")), _mib(card.get("vram total memory (b)"))
    unique = card.get("unique id", "")
    # An integrated GPU has no id of its own.
    uuid = name if unique.lower() in UNKNOWN_NAMES or set(unique) <= {"0", "x"} else unique
    return GpuMemory(int(match[1]), uuid, card.get("card series", ""), used, total)


def _mib(value: str | None) -> int | None:
    if value is None or value.strip().lower() in UNKNOWN_NAMES:
        return None
    if not value.strip().isdecimal() or len(value.strip()) > MOST_DIGITS:
        raise ToolFailed(f"{value[:SHOWN]!r} is not an amount of memory")
    return _rounded(int(value) / MIB)


def _rounded(mib: float) -> int:
    """A little is not nothing."""
    return max(round(mib), 1) if mib > 0 else 0


def _process(key: str, value: str) -> GpuHolder | None:
    """`"PID4711": "python3, 1, 24556904448, 0, 0"`: name, number of GPUs, bytes; not on which GPU."""
    match = _PROCESS.fullmatch(key)
    if match is None:
        return None
    fields = [field.strip() for field in value.rsplit(",", 4)]
    if len(fields) != 5:  # noqa: PLR2004 - as many as the docstring says
        raise ToolFailed(f"it answered {key}: {value[:300]!r}")
    name, gpus, used = fields[0], fields[1], fields[2]
    if gpus == "0" and used == "0":
        return None  # a monitor that only has the driver open
    return GpuHolder(pid=int(match[1]), gpu_uuid="", used_mib=_mib(used), name=_name(name), owner=None)


def _name(shown: str) -> str | None:
    return None if shown.lower() in UNKNOWN_NAMES else shown


def parse_amd(metric: str, processes: str, listed: str = "[]", static: str = "[]") -> GpuReading:
    """amd-smi's answers to `metric --mem-usage`, `process`, `list` and `static --asic --driver`, all in JSON."""
    about = {int(one["gpu"]): one for one in _parts(static)}
    uuids = {int(one["gpu"]): str(one.get("uuid", "")) for one in _parts(listed)}
    gpus = []
    for one in _parts(metric):
        index, memory = int(one["gpu"]), one.get("mem_usage")
        memory = memory if isinstance(memory, dict) else {}
        name = str(about.get(index, {}).get("asic", {}).get("market_name", ""))
        used, total = _quantity(memory.get("used_vram")), _quantity(memory.get("total_vram"))
        gpus.append(GpuMemory(index, uuids.get(index) or f"gpu{index}", name, used, total))
    if not gpus:
        raise NoDevices("it lists no GPU")
    if len(uuids) > len(gpus):
        raise ToolFailed(f"it lists {len(uuids)} GPUs and says of {len(gpus)} how much is used")
    by_index = {gpu.index: gpu.uuid for gpu in gpus}
    holders = tuple(
        _amd_holder(by_index.get(int(one["gpu"]), ""), entry) for one in _parts(processes) for entry in _entries(one.get("process_list"))
    )
    driver = next((str(one["driver"]["version"]) for one in about.values() if isinstance(one.get("driver"), dict)), None)
    return GpuReading(known=True, tool="amd-smi", gpus=tuple(gpus), holders=holders, driver=driver)


def _parts(text: str) -> list[dict[str, Any]]:
    """One part a GPU: a bare list, or under `gpu_data`, by the tool's version."""
    found = _json(text)
    parts = found.get("gpu_data") if isinstance(found, dict) else found
    if not isinstance(parts, list) or not all(isinstance(part, dict) and str(part.get("gpu", "")).isdecimal() for part in parts):
        raise ToolFailed(f"it answered: {text[:300]!r}")
    return parts


def _entries(processes: object) -> Iterator[dict[str, Any]]:
    if isinstance(processes, str) and processes.lower().startswith(NOTHING_RUNS):
        return
    if not isinstance(processes, list):
        raise ToolFailed(f"its list of processes is {processes!r}")
    for entry in processes:
        info = entry.get("process_info") if isinstance(entry, dict) else None
        if isinstance(info, str) and info.lower().startswith(NOTHING_RUNS):
            continue
        if not isinstance(info, dict) or not str(info.get("pid", "")).isdecimal():
            raise ToolFailed(f"one of its processes is {info!r}")
        yield info


def _amd_holder(uuid: str, info: Mapping[str, Any]) -> GpuHolder:
    memory = info.get("memory_usage")
    used = _quantity(memory.get("vram_mem") if isinstance(memory, dict) else info.get("mem_usage", info.get("mem")))
    return GpuHolder(pid=int(info["pid"]), gpu_uuid=uuid, used_mib=used, name=_name(str(info.get("name", ""))), owner=None)


def _quantity(found: object) -> int | None:
    """`{"value": 512, "unit": "MB"}`; None for "N/A"."""
    if not isinstance(found, dict) or not isinstance(found.get("value"), int | float):
        return None
    per_unit = PER_UNIT.get(str(found.get("unit", "B")).upper())
    return None if per_unit is None else _rounded(found["value"] * per_unit)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ToolFailed(f"its answer is not whole: {text[-200:]!r}" if text.strip() else "it said nothing") from error


def _flat(part: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """`clock.gfx_0.clk` -> `131 MHz`."""
    for key, value in part.items():
        if isinstance(value, dict) and set(value) != {"value", "unit"}:
            yield from _flat(value, f"{before}{key}.")
        else:
            shown = f"{value['value']} {value['unit']}" if isinstance(value, dict) else str(value)
            if shown.lower() not in UNKNOWN_NAMES:
                yield before + key, shown


class RocmSmi:
    """rocm-smi on one host."""

    shows_titles = False

    def __init__(self, transport: Transport, program: str = "rocm-smi", timeout_s: float = 20.0) -> None:
        self.transport, self.program, self.timeout_s = transport, program, timeout_s

    def read(self) -> GpuReading:
        """Memory of every GPU, and which processes hold some. In one call: alone, `--showpids` prints nothing where nobody does."""
        return parse_rocm(self._ask("--showmeminfo", "vram", "--showproductname", "--showuniqueid", "--showdriverversion", "--showpids"))

    def state(self) -> list[dict[str, str]]:
        """Clocks, power, power cap and temperatures a GPU, as the tool words them. ToolFailed where it does not say."""
        cards = _from_json(self._ask("--showclocks", "--showpower", "--showmaxpower", "--showtemp"))
        return [{"uuid": name, **dict(_flat(card))} for name, card in cards.items() if _CARD.fullmatch(name)]

    def _ask(self, *arguments: str) -> str:
        said = ask(self.transport, self.program, [*arguments, "--json"], self.timeout_s)
        # It warns on stdout of a card that sleeps, before the answer.
        return said[said.find("{") :] if "{" in said else said


class AmdSmi:
    """amd-smi on one host."""

    shows_titles = False

    def __init__(self, transport: Transport, program: str = "amd-smi", timeout_s: float = 20.0) -> None:
        self.transport, self.program, self.timeout_s = transport, program, timeout_s

    def read(self) -> GpuReading:
        """Memory of every GPU, and which process holds how much on which."""
        questions = (["metric", "--mem-usage"], ["process"], ["list"], ["static", "--asic", "--driver"])
        return parse_amd(*(self._ask(question) for question in questions))

    def state(self) -> list[dict[str, str]]:
        """Clocks, power and temperatures a GPU, as the tool words them. ToolFailed where it does not say."""
        return [dict(_flat(part)) for part in _parts(self._ask(["metric", "--clock", "--power", "--temperature"]))]

    def _ask(self, question: list[str]) -> str:
        return ask(self.transport, self.program, [*question, "--json"], self.timeout_s)
