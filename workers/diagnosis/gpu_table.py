"""The GPU tools' tables for people: memory and processes out of nvidia-smi's boxes, and out of rocm-smi's lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from workers.hosts.gpu_reading import GpuHolder, GpuMemory

_CARD = re.compile(r"^\|\s{1,6}(?P<index>\d{1,3})\s{1,6}(?P<name>\S[^|]{0,60}?)\s{2,40}(?:On|Off|N/A)?\s{0,6}\|")
_MEMORY = re.compile(r"(?P<used>\d{1,9})MiB / {1,8}(?P<total>\d{1,9})MiB")
_UNKNOWN = re.compile(r"(?:N/A|Not Supported|ERR!) ?/? {0,8}(?:N/A)?")
_PROCESS = re.compile(
    r"^\|\s{1,6}(?P<index>\d{1,3})\s{1,8}(?:\S{1,6}\s{1,6}\S{1,6}\s{1,12})?(?P<pid>\d{1,10})\s{1,6}(?:C\+G|M\+C|[CGM])\s{1,6}"
    r"(?P<name>\S[^|]{0,200}?)\s{1,60}(?:(?P<used>\d{1,9})MiB|N/A)\s{1,6}\|"
)
_DRIVER = re.compile(r"Driver Version: {0,4}(?P<version>[\d.]{3,20})")


class SmiTable:
    """The GPUs and processes of one table."""

    def __init__(self) -> None:
        self.gpus: list[GpuMemory] = []
        self.holders: list[GpuHolder] = []
        self.driver: str | None = None
        self.failed: str | None = None
        """A line that names a card's failure."""
        self.lists_processes = False
        self._card: tuple[int, str] | None = None

    def read(self, lines: Iterable[str]) -> SmiTable:
        """Take in the lines."""
        for line in lines:
            self._take(line.strip())
        return self

    def _take(self, line: str) -> None:
        if match := _DRIVER.search(line):
            self.driver = match["version"]
        if "Processes:" in line or "No running processes found" in line:
            self.lists_processes = True
        if "ERR!" in line:
            self.failed = line[:300]
        if self.lists_processes:
            self._process(line)
        elif match := _MEMORY.search(line):
            self._memory(int(match["used"]), int(match["total"]))
        elif match := _CARD.match(line):
            self._card = (int(match["index"]), match["name"])
        elif self._card is not None and line.startswith("|") and line.count("|") >= 3 and _UNKNOWN.search(line):  # noqa: PLR2004 - columns
            self._memory(None, None)

    def _memory(self, used: int | None, total: int | None) -> None:
        if self._card is not None:
            index, name = self._card
            self.gpus.append(GpuMemory(index, str(index), name, used, total))
            self._card = None

    def _process(self, line: str) -> None:
        match = _PROCESS.match(line)
        if match is not None:
            name = None if match["name"].startswith("[") else match["name"]
            used = int(match["used"]) if match["used"] else None
            self.holders.append(GpuHolder(int(match["pid"]), match["index"], used, name, None))


_ROCM_MEMORY = re.compile(r"^GPU\[(?P<index>\d{1,3})\]\s{0,8}: {1,4}VRAM Total (?P<used>Used )?Memory \(B\): (?P<bytes>\d{1,18})\s*$")
_ROCM_PROCESS = re.compile(
    r"^(?P<pid>\d{1,10})\s+(?P<name>\S.{0,200}?)\s+(?P<gpus>\d{1,4})\s+(?P<bytes>\d{1,18})\s+\d{1,18}\s+\S{1,20}\s*$"
)
_MIB = 2**20


class RocmTable:
    """The GPUs and processes that rocm-smi lists without `--json` or `--csv`."""

    def __init__(self) -> None:
        self.holders: list[GpuHolder] = []
        self.lists_processes = False
        self._used: dict[int, int] = {}
        self._total: dict[int, int] = {}

    @property
    def gpus(self) -> list[GpuMemory]:
        """Every card of which it says how much is used."""
        return [GpuMemory(index, f"card{index}", "", used, self._total.get(index)) for index, used in sorted(self._used.items())]

    def read(self, lines: Iterable[str]) -> RocmTable:
        """Take in the lines."""
        for line in lines:
            text = line.strip()
            if match := _ROCM_MEMORY.match(text):
                amounts = self._used if match["used"] else self._total
                amounts[int(match["index"])] = round(int(match["bytes"]) / _MIB)
            elif text.startswith("No KFD PIDs") or re.match(r"PID\s+PROCESS NAME\s", text):
                self.lists_processes = True
            elif self.lists_processes and (match := _ROCM_PROCESS.match(text)) and match["gpus"] != "0":
                name = None if match["name"] == "UNKNOWN" else match["name"]
                self.holders.append(GpuHolder(int(match["pid"]), "", round(int(match["bytes"]) / _MIB), name, None))
        return self
