"""nvidia-smi: what it prints, with or without header and units, and what that means. An answer in part is no answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from workers.hosts.gpu_reading import GpuHolder, GpuMemory, GpuReading
from workers.hosts.gpu_tool import KNOWN_FAILURES, NoDevices, ToolFailed, ask, named
from workers.hosts.transport import Transport

_MEMORY = ("count", "index", "uuid", "name", "memory.used", "memory.total", "temperature.gpu")
GPU_FIELDS = ((*_MEMORY, "memory.reserved", "driver_version"), (*_MEMORY, "driver_version"))
"""The query for memory, and the one for drivers that do not know all of it.

`count` stands in every row, so that an answer with rows missing is noticed. The temperature is where a card that has failed
says so: its memory then reads 0. The version comes last, where a cut does no harm."""

HOLDER_FIELDS = ("gpu_uuid", "pid", "process_name", "used_gpu_memory")

_STATE = ("uuid", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "power.limit", "temperature.gpu", "pstate", "persistence_mode")
_SLOWED = ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_LOST_TIME = tuple(f"clocks_event_reasons_counters.{cause}" for cause in _SLOWED)
STATE_FIELDS = (
    (*_STATE, "ecc.mode.current", "ecc.errors.uncorrected.volatile.total", "clocks_event_reasons.active", *_LOST_TIME),
    (*_STATE, "ecc.mode.current", "ecc.errors.uncorrected.volatile.total", "clocks_throttle_reasons.active"),
    _STATE,
)
"""From the newest drivers, which also count the microseconds that throttling took, to the oldest."""

ALIASES = {"gpu_uuid": "uuid", "gpu_name": "name", "used_memory": "used_gpu_memory"}
FAILED_VALUES = ("err!", "[unknown error]", "[gpu is lost]", "[gpu requires reset]")
NOTHING_RUNS = "no running processes found"
INFOROM_CORRUPTED = 14
"""The status of an answer that is whole, with a warning about a card's own memory of its settings."""

_IN_A_HEADER = frozenset({"index", "uuid", "name", "pid", "process_name", "memory.used", "memory.total", "memory.free"})
"""A header has one of these; a lone word that the tool says instead of an answer has not."""
_HEADER_CELL = re.compile(r"([a-z][a-zA-Z0-9_.]*)(?: \[[^\]]+\])?")
MOST_DIGITS = 18
"""No amount and no index is longer; a text with more is no number that could be reckoned with."""
_UNIT = re.compile(r" MiB$")
_WARNING = re.compile(r"warning:", re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """Rows by field, and the lines that were none."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gpus:
    """What an answer says of the GPUs."""

    gpus: tuple[GpuMemory, ...]
    driver: str | None = None
    warnings: tuple[str, ...] = ()


def table(text: str, fields: Sequence[str] | None = None) -> Table:
    """A csv answer. Its own header, where it has one, says what the columns are; else `fields`. ToolFailed for anything else."""
    columns = None if fields is None else [ALIASES.get(field, field) for field in fields]
    rows: list[dict[str, str]] = []
    warnings: list[str] = []
    for number, line in enumerate(line.strip() for line in text.splitlines() if line.strip()):
        cells = [cell.strip() for cell in line.split(",")]
        if _WARNING.match(line):
            warnings.append(line)
        elif number == 0 and (header := _header(cells)) is not None:
            columns = header
        elif line.lower() != NOTHING_RUNS:
            rows.append(_row(line, cells, columns))
    return Table(tuple(columns or ()), tuple(rows), tuple(warnings))


def _header(cells: list[str]) -> list[str] | None:
    names = [ALIASES.get(match[1], match[1]) for cell in cells if (match := _HEADER_CELL.fullmatch(cell)) is not None]
    return names if len(names) == len(cells) and not set(names).isdisjoint(_IN_A_HEADER) else None


def _row(line: str, cells: list[str], columns: list[str] | None) -> dict[str, str]:
    if columns is None:
        raise _no_answer(line)
    surplus = len(cells) - len(columns)
    if surplus > 0 and "process_name" in columns:
        # A program's name is the only thing here that may hold a comma, and it is not quoted.
        at = columns.index("process_name")
        cells = [*cells[:at], ", ".join(cells[at : at + surplus + 1]), *cells[at + surplus + 1 :]]
    if len(cells) != len(columns):
        raise _no_answer(line)
    return dict(zip(columns, cells, strict=True))


def _no_answer(line: str) -> ToolFailed:
    text = f"it answered: {line[:300]}"
    return NoDevices(text) if "no devices were found" in line.lower() else ToolFailed(named(text))


def parse_gpus(text: str, fields: Sequence[str] | None = None) -> Gpus:
    """The answer to a query of GPUs. What it was not asked for is None, or counted from 0 in the case of the index."""
    for line in text.splitlines():
        if any(words in line.lower() for words in KNOWN_FAILURES):
            raise ToolFailed(named(f"it says: {line.strip()[:300]}"))
    found = table(text, fields)
    if not found.rows:
        raise NoDevices("it lists no GPU")
    for row in found.rows:
        failed = next((f"{field} {value}" for field, value in row.items() if value.lower() in FAILED_VALUES), None)
        if failed is not None:
            raise ToolFailed(named(f"GPU {row.get('index', '?')} reports {failed}"))
    count = found.rows[0].get("count", "")
    if count.isdecimal() and int(count) != len(found.rows):
        raise ToolFailed(f"it counts {count} GPUs and lists {len(found.rows)}")
    gpus = tuple(_gpu(row, number) for number, row in enumerate(found.rows))
    return Gpus(gpus, found.rows[0].get("driver_version"), found.warnings)


def _gpu(row: dict[str, str], number: int) -> GpuMemory:
    index = row.get("index", str(number))
    if not index.isdecimal() or len(index) > MOST_DIGITS:
        raise ToolFailed(named(f"{index!r} is not the index of a GPU"))
    used, total, reserved = (_mib(row.get(f"memory.{what}")) for what in ("used", "total", "reserved"))
    return GpuMemory(int(index), row.get("uuid", ""), row.get("name", ""), used, total, reserved)


def _mib(value: str | None) -> int | None:
    """None for [N/A] and its like."""
    bare = _UNIT.sub("", value or "[N/A]")
    if bare.isdecimal() and len(bare) <= MOST_DIGITS:
        return int(bare)
    if bare.startswith("[") or bare == "N/A":
        return None
    raise ToolFailed(f"{bare[:100]!r} is not an amount of memory")


def parse_holders(text: str, fields: Sequence[str] | None = None) -> tuple[GpuHolder, ...]:
    """The answer to a query of compute processes. An empty answer says that there are none."""
    found = table(text, fields)
    if found.columns and "pid" not in found.columns:
        raise ToolFailed(f"it answered {', '.join(found.columns)}, and not which processes there are")
    return tuple(_holder(row) for row in found.rows)


def _holder(row: dict[str, str]) -> GpuHolder:
    uuid, pid, name = row.get("uuid", ""), row.get("pid", ""), row.get("process_name", "")
    if not pid.isdecimal():
        raise ToolFailed(f"a process holds GPU {uuid or '?'}, but its pid is {pid!r}")
    # "[Not Found]": it has ended while its memory is still being given back, or it lives in another pid namespace.
    shown = None if name.startswith("[") or name in {"", "-", "N/A"} else name
    return GpuHolder(pid=int(pid), gpu_uuid=uuid, used_mib=_mib(row.get("used_gpu_memory")), name=shown, owner=None)


class NvidiaSmi:
    """The tool on one host. It hangs when a card has fallen off the bus, so it is never waited for longer than `timeout_s`."""

    shows_titles = True
    """It names a process by its title, and not by its program."""

    def __init__(self, transport: Transport, program: str = "nvidia-smi", timeout_s: float = 20.0) -> None:
        self.transport, self.program, self.timeout_s = transport, program, timeout_s

    def read(self) -> GpuReading:
        """Memory and holders of every GPU. ToolFailed where any part of the answer is missing."""
        text, fields = self._newest("gpu", GPU_FIELDS)
        found = parse_gpus(text, fields)
        missing = set(range(len(found.gpus))) - {gpu.index for gpu in found.gpus}
        if missing:
            raise ToolFailed(named(f"GPU is lost: {self.program} does not list GPU {', '.join(map(str, sorted(missing)))}"))
        holders = parse_holders(self._query("compute-apps", HOLDER_FIELDS), HOLDER_FIELDS)
        return GpuReading(known=True, tool=self.program, gpus=found.gpus, holders=holders, driver=found.driver, warnings=found.warnings)

    def state(self) -> list[dict[str, str]]:
        """Clocks, power, temperature and throttle reasons a GPU, as the tool words them. ToolFailed where it does not say."""
        text, fields = self._newest("gpu", STATE_FIELDS)
        rows = table(text, fields).rows
        return [{field: value for field, value in row.items() if not value.startswith("[")} for row in rows]

    def _newest(self, what: str, queries: Sequence[Sequence[str]]) -> tuple[str, Sequence[str]]:
        """The answer to the first of these queries whose fields the driver knows."""
        for fields in queries[:-1]:
            try:
                return self._query(what, fields), fields
            except ToolFailed as error:
                if "is not a valid field" not in str(error):
                    raise
        return self._query(what, queries[-1]), queries[-1]

    def _query(self, what: str, fields: Sequence[str]) -> str:
        arguments = [f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
        return ask(self.transport, self.program, arguments, self.timeout_s, frozenset({0, INFOROM_CORRUPTED}))
