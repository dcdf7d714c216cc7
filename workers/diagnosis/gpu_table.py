"""nvidia-smi's table for people: memory and processes out of its boxes."""

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
