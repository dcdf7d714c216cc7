"""What GPU tools printed, in whichever of their forms, as cards, processes and failures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.domain.reasons import Reason
from workers.diagnosis.gpu_table import RocmTable, SmiTable
from workers.diagnosis.looks import Look, look_of
from workers.hosts.gpu_reading import GpuHolder, GpuMemory
from workers.hosts.gpu_tool import KNOWN_FAILURES, NoDevices, ToolFailed
from workers.hosts.nvidia import ALIASES, parse_gpus, parse_holders, table
from workers.hosts.rocm import parse_amd, parse_rocm

_FIELDS = re.compile(r"--query-(?P<what>gpu|compute-apps)=(?P<fields>[\w.,]{1,2000})")
_ONE_CARD = re.compile(r"\s(?:-i|--id)[ =]")
_NVML = re.compile(r"NVML library version: {0,3}([\d.]{3,20})")
_NOT_A_FIELD = re.compile(r"is not a valid field to query", re.IGNORECASE)
_NO_ANSWER = "couldn't communicate with the NVIDIA driver|Failed to initialize NVML|Driver not initialized|Driver Not Loaded"
_OTHER_FAILURES = (
    (re.compile(_NO_ANSWER, re.IGNORECASE), Reason.GPU_STATE_UNKNOWN),
    (re.compile(r"No devices were found", re.IGNORECASE), Reason.GPU_STATE_UNKNOWN),
)


@dataclass
class GpuEvidence:
    """Cards and processes of the last reading; what failed."""

    gpus: list[GpuMemory] = field(default_factory=list)
    holders: list[GpuHolder] = field(default_factory=list)
    processes_asked: bool = False
    """Whether the tool was asked who holds memory; an empty answer then means nobody."""
    failed: bool = False
    reason: Reason | None = None
    evidence: str = ""
    seen: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def fail(self, reason: Reason | None, evidence: str) -> None:
        """The tool did not answer; the first known reason stays."""
        self.seen = self.failed = True
        if self.reason is None or (self.reason == Reason.GPU_STATE_UNKNOWN and reason is not None):
            self.reason, self.evidence = reason or Reason.GPU_STATE_UNKNOWN, evidence.strip()[:500]
        version = _NVML.search(evidence)
        if version:
            self.facts["nvml_version"] = version[1].rstrip(".")

    def take_csv(self, lines: Sequence[str], title: str = "") -> None:
        """Answers in csv. A header within the lines begins another answer; else `title` says what was asked."""
        match = _FIELDS.search(title)
        fields = match["fields"].split(",") if match else None
        if match and match["what"] == "compute-apps":
            self.processes_asked = True
            if not any(line.strip() for line in lines) and not _ONE_CARD.search(title):
                self.holders = []
        block: list[str] = []
        for line in lines:
            if not line.strip():
                continue
            if _is_header(line) and block:
                self._take_block(block, fields)
                block = []
            block.append(line)
        if block:
            self._take_block(block, fields)
        self.seen = True

    def _take_block(self, lines: list[str], fields: list[str] | None) -> None:
        text = "\n".join(lines)
        header = _columns(lines[0])
        named = [ALIASES.get(field, field) for field in fields or []] if header is None else header
        try:
            if "pid" in named or "process_name" in named:
                self.processes_asked = True
                self.holders = list(parse_holders(text, fields)) if len(lines) > (header is not None) else []
            elif named or fields is not None:
                found = parse_gpus(text, fields)
                # Asked again and again (`-l 5`), it lists a card again: the last answer counts.
                self.gpus = list({gpu.index: gpu for gpu in found.gpus}.values())
                self.warnings += found.warnings
                self._utilization(text, fields)
            else:
                self._guess(lines)
        except (ToolFailed, ValueError) as error:
            self._not_parsed(text, error)

    def _guess(self, lines: list[str]) -> None:
        """Rows without a header and without a query: by their shape."""
        for line in lines:
            cells = [cell.strip() for cell in line.split(",")]
            if cells[0].startswith(("GPU-", "MIG-")):
                self.processes_asked = True
                self.holders += parse_holders(line, ("gpu_uuid", "pid", "process_name", "used_gpu_memory"))
            elif cells[0].isdecimal() and 2 <= len(cells) <= 4:  # noqa: PLR2004 - index, used, total
                names = ("index", "memory.used", "memory.total")[: len(cells)]
                if len(cells) == 4:  # noqa: PLR2004 - with the uuid
                    names = ("index", "uuid", "memory.used", "memory.total")
                self.gpus += parse_gpus(line, names).gpus

    def _utilization(self, text: str, fields: list[str] | None) -> None:
        for row in table(text, fields).rows:
            for name, value in row.items():
                if name == "utilization.gpu":
                    digits = value.removesuffix(" %").strip()
                    self.facts["utilization"] = int(digits) if digits.isdecimal() and len(digits) < 5 else None  # noqa: PLR2004 - percent

    def _not_parsed(self, text: str, error: Exception) -> None:
        if isinstance(error, NoDevices):
            self.fail(Reason.GPU_STATE_UNKNOWN, str(error))
        else:
            self.fail(failure_in(text) or failure_in(str(error)), failure_line(text) or str(error))

    def take_table(self, lines: Iterable[str]) -> None:
        """nvidia-smi without a query."""
        self.seen = True
        found = SmiTable().read(lines)
        self.gpus, self.holders, self.processes_asked = found.gpus, found.holders, self.processes_asked or found.lists_processes
        if found.failed is not None:
            self.fail(Reason.GPU_STATE_UNKNOWN, found.failed)

    def take_rocm(self, text: str) -> None:
        """rocm-smi in csv, in JSON or for people; amd-smi in JSON."""
        self.seen = True
        self.facts["vendor"] = "amd"
        shown = RocmTable().read(text.splitlines())
        if shown.gpus or shown.lists_processes:
            self._take_reading(shown.gpus, shown.holders, asked=shown.lists_processes)
            return
        # It warns of a card that sleeps before it answers.
        begin = re.search(r"^[\[{]", text, re.MULTILINE)
        text = text[begin.start() :] if begin else text
        try:
            reading = parse_rocm(text)
        except (ToolFailed, ValueError) as error:
            try:
                reading = parse_amd(text, text if '"process_list"' in text else "[]")
            except (ToolFailed, ValueError, KeyError, TypeError, AttributeError):
                self.fail(failure_in(text), str(error))
                return
        self._take_reading(reading.gpus, reading.holders, asked='"process_list"' in text)

    def _take_reading(self, gpus: Sequence[GpuMemory], holders: Sequence[GpuHolder], *, asked: bool) -> None:
        """One of amd-smi's two answers is of memory, the other of processes."""
        if any(gpu.used_mib is not None for gpu in gpus) or not self.gpus:
            self.gpus = list(gpus)
        if holders or asked or not self.processes_asked:
            self.holders = list(holders)
        self.processes_asked = self.processes_asked or asked

    def take_failure(self, text: str, exit_status: int | None = None) -> bool:
        """A tool's complaint; False where the text is none."""
        reason = failure_in(text)
        if reason is None and exit_status in {None, 0, 14}:
            return False
        self.fail(reason, failure_line(text) or text.strip()[:300] or f"exit status {exit_status}")
        return True


def _is_header(line: str) -> bool:
    return look_of(line) is Look.CSV and line.strip()[:1].isalpha() and not line.startswith(("GPU-", "MIG-"))


def _columns(line: str) -> list[str] | None:
    if not _is_header(line):
        return None
    names = [cell.strip().partition(" [")[0] for cell in line.split(",")]
    return [ALIASES.get(name, name) for name in names]


def failure_in(text: str) -> Reason | None:
    """The reason in a tool's complaint, whichever stream it came on."""
    lower = text.lower()
    known = next((reason for words, reason in KNOWN_FAILURES.items() if words in lower), None)
    return known or next((reason for pattern, reason in _OTHER_FAILURES if pattern.search(text)), None)


def failure_line(text: str) -> str | None:
    """The line that complains, with what belongs to it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in lines if failure_in(line) is not None), None)
    version = next((line for line in lines if _NVML.search(line)), None)
    return f"{found}; {version}" if found and version and version != found else found
