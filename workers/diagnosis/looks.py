"""What a line is by its looks, where no header says so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum

from workers.hosts.gpu_tool import KNOWN_FAILURES


class Look(StrEnum):
    """Kinds of lines."""

    JOURNAL = "journal"
    ENTRY = "entry"  # of journalctl -o json
    SHOW = "show"  # of systemctl show
    HTTP = "http"
    REQUEST = "request"
    SAMPLE = "sample"  # of a Prometheus page
    UNIT = "unit"
    CSV = "csv"  # of nvidia-smi
    TABLE = "table"  # of nvidia-smi for people
    ROCM = "rocm"
    JSON = "json"
    GPU_FAILURE = "gpu_failure"
    PORT = "port"


_PROPERTY = re.compile(r"^[A-Z][a-z]+[A-Za-z0-9]{0,60}=|^(?:CPU|IO|OOM|UID|GID|UMask|NRestarts|NFileDescriptorStore)\w{0,40}=")
_HTTP = re.compile(r"^(?:GET|POST|HEAD|PUT) \S{1,400}(?: \S.{0,400})? -> ")
_ANSWER = re.compile(r"^(?:< )?HTTP/\d(?:\.\d)? \d{3}\b|^\{\"(?:error|object|message)\":")
_REQUEST = re.compile(r"^(?:req|request) #?\d{1,6} ?(?:->|:) ")
_SAMPLE = re.compile(
    r"^(?:[a-zA-Z_]\w{0,100}:[\w:]{1,200}|(?:process|python|http|llm|up|go|scrape)_\w{1,100})(?:\{.{0,4000}\})?\s+\S{1,40}(?:\s+-?\d{1,20})?\s*(?:#.*)?$"
)
_PROMETHEUS_COMMENT = re.compile(r"^# (?:HELP|TYPE|UNIT) |^# EOF")
_SECTION = re.compile(r"^\[(?:Unit|Service|Install|Socket|Timer)\]\s*$")
_UNIT_OF_A_COLUMN = r"(?: \[[^\]]{1,10}\])?"
_COLUMN = r"(?:index|uuid|name|pid|memory\.\w+|count|timestamp|process_name|utilization\.\w+)"
_CSV_HEADER = re.compile(
    rf"^(?=[a-z][\w.]{{1,60}}(?: \[|,|\s*$))(?=(?:.{{0,2000}}, ?)?(?:gpu_)?{_COLUMN}(?: \[|,|\s*$))"
    rf"[a-z][\w.]{{1,60}}{_UNIT_OF_A_COLUMN}(?:, ?[a-z][\w.]{{1,60}}{_UNIT_OF_A_COLUMN}){{0,40}}\s*$"
)
_LONE_CELL = re.compile(r"^(?:\d{1,12}(?: MiB)?|\[[\w ]{1,40}\]|N/A|(?:GPU|MIG)-\S{1,80})$")
_CSV_ROW = re.compile(r"^(?:\d{1,3}|GPU-[\w-]{1,40}|MIG-[\w/-]{1,60}|\[N/A\]|\d{1,10} MiB), ")
_TABLE = re.compile(r"^[|+][ =|+A-Z-]|^\| NVIDIA-SMI")
_ROCM = re.compile(
    r"^device,|^card\d{1,3},|^=+ ?ROCm|^={8,}[ \w()]{0,60}={8,}$|^GPU\[\d{1,3}\]\s"
    r"|^PID\s+PROCESS NAME\s|^No KFD PIDs|^KFD process information"
)
_ROW_OF_NUMBERS = re.compile(r"^\d{1,10}\s+\S.{0,200}\s\d{1,18}\s+\S{1,20}\s*$")
_GPU_JSON = re.compile(r"^\{\"(?:card\d{1,3}|system|gpu_data)\"|^\[\{\"gpu\": ?\d|^\[?\{.{0,400}\"(?:VRAM Total|mem_usage|process_list)")
"""Of rocm-smi and amd-smi. Others print JSON too: an engine's counters, a server's version."""
_FAILURE = re.compile(
    r"NVIDIA-SMI has failed|Failed to initialize NVML|NVML library version|No devices were found|[Uu]nable to determine the device handle"
    r"|ERROR: GPU\[|rsmi_init\(\)|Driver not initialized|Unknown Error$"
)
_PORT = re.compile(r"^(?:tcp6? +)?(?:\d+ +\d+ +)?LISTEN\b|^(?:tcp6?|LISTEN|State ).{0,200}:\d{1,5}\b")


def look_of(line: str) -> Look:
    """The kind of a line; JOURNAL where it is none of the others."""
    text = line.strip("\r\n ")
    for pattern, look in _LOOKS:
        if pattern.match(text):
            return look
    lower = text.lower()
    if _FAILURE.search(text) or (len(text) < 400 and not lower.startswith(("(", "[")) and _bare_failure(lower)):  # noqa: PLR2004
        return Look.GPU_FAILURE
    if text.startswith(('{"', '[{"')):
        if any(word in text for word in ('"MESSAGE"', '"__REALTIME_TIMESTAMP"', '"__CURSOR"')) or ('"log"' in text and '"stream"' in text):
            return Look.ENTRY
        return Look.JSON if _GPU_JSON.match(text) else Look.JOURNAL
    return Look.JOURNAL


def with_looks(lines: Iterable[str]) -> Iterator[tuple[Look, str]]:
    """Each line with its look. What stands under the header of a table with as many cells is a row of it, whatever it looks like."""
    cells = 0
    look = Look.JOURNAL
    for line in lines:
        before, look = look, look_of(line)
        if before is Look.ROCM and _ROW_OF_NUMBERS.match(line):
            look = Look.ROCM
        elif look is Look.CSV:
            cells = line.count(",") + 1
        elif (cells > 1 and look is Look.JOURNAL and line.count(",") + 1 == cells) or (cells == 1 and _LONE_CELL.match(line.strip())):
            look = Look.CSV
        else:
            cells = 0
        yield look, line


_LOOKS: tuple[tuple[re.Pattern[str], Look], ...] = (
    (_HTTP, Look.HTTP),
    (_ANSWER, Look.HTTP),
    (_REQUEST, Look.REQUEST),
    (_SECTION, Look.UNIT),
    (_PROPERTY, Look.SHOW),
    (_SAMPLE, Look.SAMPLE),
    (_PROMETHEUS_COMMENT, Look.SAMPLE),
    (_CSV_HEADER, Look.CSV),
    (_CSV_ROW, Look.CSV),
    (_TABLE, Look.TABLE),
    (_ROCM, Look.ROCM),
    (_PORT, Look.PORT),
)


def _bare_failure(lower: str) -> bool:
    """A GPU tool's own complaint, and not an engine's line that quotes one."""
    return lower.startswith(("gpu ", "failed", "unable", "no devices", "error", "warning: gpu")) and any(
        words in lower for words in KNOWN_FAILURES
    )


def title_look(title: str) -> Look | None:
    """What a header says that its part holds; None where that has to be seen."""
    lower = title.lower()
    return next((look for words, look in _TITLES if any(word in lower for word in words)), None)


_TITLES: tuple[tuple[tuple[str, ...], Look], ...] = (
    (("query-gpu", "query-compute-apps", "compute-apps"), Look.CSV),
    (("systemctl show", "systemctl --user show"), Look.SHOW),
    (("rocm-smi",), Look.ROCM),
    (("amd-smi",), Look.JSON),
    (("journal", "dmesg", "kernel log", "engine log"), Look.JOURNAL),
    (("metrics", "before the run", "after the run", "prometheus"), Look.SAMPLE),
    (("unit file", "drop-in", "systemctl cat", ".service.d/"), Look.UNIT),
    (("ss -", "lsof", "netstat", "fuser"), Look.PORT),
)
