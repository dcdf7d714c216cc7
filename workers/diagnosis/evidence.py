"""A paste's parts, each read by the reader of its kind."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import groupby

from workers.diagnosis.command_output import CommandSaid, read_command
from workers.diagnosis.gpu_evidence import GpuEvidence, failure_in
from workers.diagnosis.http_lines import Answers, Probe
from workers.diagnosis.journal import Journal
from workers.diagnosis.looks import Look, look_of, title_look, with_looks
from workers.diagnosis.paste import Part, Paste
from workers.diagnosis.remarks import Remarks
from workers.diagnosis.unit_show import UnitShown, is_status_line, properties_of, read_show, status_properties

MOST_UNIT_CHARS = 65_536
"""Of one unit file: a check of its words takes longer than its length."""
_GPU_TOOL = re.compile(r"\b(?:nvidia-smi|rocm-smi|amd-smi)\b")
_ENGINE = re.compile(
    r"(?:^|[/ ])(?:vllm(?: serve|\.entrypoints)|sglang\.launch_server|sglang serve|llama-server|llama_server|api_server\.py)\b"
)
"""A command that is an engine itself: both its streams are its log."""
_SHOWS_LOGS = re.compile(r"\bsystemctl\b.{0,60}?\bstatus\b|\b(?:docker|podman|kubectl|nerdctl)\b.{0,60}?\blogs?\b|\b(?:tail|less|zcat)\b")
_ASKS = (
    (re.compile(r"\bsystemctl\b.{0,60}?\bshow\b"), Look.SHOW),
    (re.compile(r"\bsystemctl\b.{0,60}?\bcat\b|\bcat\b.{0,200}\.(?:service|conf)\b"), Look.UNIT),
    (re.compile(r"\bjournalctl\b|\bdmesg\b"), Look.JOURNAL),
    (re.compile(r"\bcurl\b.{0,300}/metrics\b"), Look.SAMPLE),
    (re.compile(r"\bss -|\blsof\b|\bnetstat\b"), Look.PORT),
)
_CURL = re.compile(r"\bcurl\b.{0,300}?https?://[^/\s]{1,255}(?P<path>/\S{0,300})")
_CURL_POSTS = re.compile(r"\s(?:-d|--data\S{0,20}|--json|-X ?POST|--request POST)\b")
_CURL_STATUS = re.compile(r"curl: \(22\) The requested URL returned error: (\d{3})")
_CURL_REFUSED, _CURL_SILENT = 7, 28
_CURL_NO_ANSWER = frozenset({_CURL_REFUSED, _CURL_SILENT, 52, 56})
"""curl's own statuses: refused, timed out, an empty answer, a connection that broke."""
_PS = re.compile(r"\bps\b.{0,100}?-\w{0,8}o ?[\"']?(?P<fields>[\w=,%]{2,200})")
_JOURNAL_REMARK = re.compile(
    r"^(?:journal(?:ctl)?|dmesg|kernel(?: log)?|engine log)(?: [\w.@=-]{1,80}){0,6}: (?P<line>\S.*)$",
    re.IGNORECASE,
)
_PROC = re.compile(r"/proc/(?P<pid>\d{1,10})/cmdline")
_SOCKET = re.compile(r":(?P<port>\d{1,5})\s.{0,300}?pid=(?P<pid>\d{1,10})")
_CUT_UNIT = re.compile(r"^# (?P<path>/\S{1,400})$")


@dataclass
class Evidence:
    """What is known, by kind. `journal` is None where nothing of that kind was given; so with the others."""

    journal: Journal | None = None
    shown: UnitShown | None = None
    gpu: GpuEvidence = field(default_factory=GpuEvidence)
    pages: list[tuple[str, str]] = field(default_factory=list)
    """(title, text) of Prometheus pages."""
    unit_files: list[tuple[str, str]] = field(default_factory=list)
    """(path, text)."""
    commands: list[tuple[Part, CommandSaid]] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    remarks: Remarks = field(default_factory=Remarks)
    engine: str | None = None
    """The kind that the caller knows it to be."""

    def the_journal(self) -> Journal:
        """The journal, begun where there is none yet."""
        if self.journal is None:
            self.journal = Journal(self.engine)
        return self.journal


def gather(paste: Paste, engine: str | None = None) -> Evidence:
    """Read every part and every remark."""
    found = Evidence(engine=engine)
    for remark in paste.remarks:
        _take_title(found, remark)
    for part in paste.parts:
        _take_title(found, part.title)
        if part.is_command or part.ended:
            _take_command(found, part)
        elif proc := _PROC.search(part.title):
            shown = " ".join(part.lines).strip()
            if shown:
                found.remarks.command_lines[int(proc["pid"])] = shown
        else:
            take_lines(found, part.lines, part.title, title_look(part.title))
    if found.remarks.properties:
        _take_show(found, found.remarks.properties)
    return found


def _take_title(found: Evidence, title: str) -> None:
    if not title:
        return
    match = _JOURNAL_REMARK.match(title)
    if match:
        found.the_journal().feed_text(f"kernel: {match['line']}" if title.lower().startswith(("dmesg", "kernel")) else match["line"])
        return
    found.answers.take(title)
    found.remarks.take(title)


def _take_show(found: Evidence, properties: dict[str, str]) -> None:
    before = dict(found.shown.properties) if found.shown else {}
    found.shown = read_show({**before, **properties})
    if properties.get("User"):
        found.remarks.unit_user = properties["User"]


def _take_command(found: Evidence, part: Part) -> None:
    if _GPU_TOOL.search(part.command) or (not part.command and found.gpu.take_failure("\n".join([*part.lines, *part.stderr]))):
        _take_gpu_tool(found, part)
        return
    said = read_command(part)
    found.commands.append((part, said))
    proc = _PROC.search(part.command) or _PROC.search(part.title)
    if proc and said.stdout:
        found.remarks.command_lines[int(proc["pid"])] = " ".join(said.stdout).strip()
        return
    curl, ps = _CURL.search(part.command), _PS.search(part.command)
    look = next((look for pattern, look in _ASKS if pattern.search(part.command)), None)
    if curl and look is not Look.SAMPLE:
        _take_curl(found, curl["path"].rstrip("'\""), said, part.command)
    elif ps:
        _take_ps(found, ps["fields"], said.stdout)
    elif _ENGINE.search(part.command) or _SHOWS_LOGS.search(part.command):
        take_lines(found, [*said.stdout, *part.stderr], "", None)
    elif look is not None or said.status == 0:
        take_lines(found, said.stdout, part.title, look)


def _take_gpu_tool(found: Evidence, part: Part) -> None:
    text = "\n".join([*part.lines, *part.stderr])
    found.gpu.seen = True
    said = read_command(part)
    if said.facts.get("ssh") == "failed" and failure_in(text) is None:
        found.commands.append((part, said))
        found.gpu.fail(said.reason, said.evidence)
        return
    if part.timed_out or part.exit_status in {124, 137}:
        found.gpu.fail(None, "the GPU tool gave no answer within its time limit")
    elif part.exit_status in {None, 0, 14}:
        take_lines(found, part.lines, part.title, title_look(part.title))
        if not part.lines and any(line.strip() for line in part.stderr):
            found.gpu.take_failure("\n".join(part.stderr), 1)
        if not part.lines and "compute-apps" in part.title:
            found.gpu.take_csv([], part.title)
    else:
        found.gpu.take_failure(text, part.exit_status)


def _take_curl(found: Evidence, path: str, said: CommandSaid, command: str) -> None:
    body = "\n".join(said.stdout).strip()
    told = _CURL_STATUS.search(said.evidence)
    if told:
        status: int | None = int(told[1])
    elif said.status in _CURL_NO_ANSWER:
        status = None
    else:
        status = int(body) if body.isdecimal() and len(body) == 3 else 200  # noqa: PLR2004 - a status printed alone
    method = "POST" if _CURL_POSTS.search(command) else "GET"
    refused, silent = said.status == _CURL_REFUSED, said.status == _CURL_SILENT
    found.answers.probes.append(
        Probe(path, method, status or None, said.evidence if status is None else body, refused=refused, silent=silent)
    )
    if said.status in _CURL_NO_ANSWER or told:
        # That nobody answered is what the command was to find out.
        said.reason, said.evidence = None, ""


def _take_ps(found: Evidence, layout: str, lines: list[str]) -> None:
    fields = [name.rstrip("=") for name in layout.split(",") if name]
    for line in lines:
        found.remarks.ps_row(fields, line.strip(), None)


def take_lines(found: Evidence, lines: list[str], title: str, look: Look | None) -> None:
    """Read lines of a known kind, or each by its looks."""
    if look is not None:
        _take(found, look, lines, title)
        return
    start = next((index for index, line in enumerate(lines) if look_of(line) is Look.UNIT), None)
    if start is not None:
        _take(found, Look.UNIT, lines[start:], title)
        lines = lines[:start]
    filled = [line for line in lines if line.strip()]
    if any(is_status_line(line) for line in filled):
        _take_show(found, status_properties(filled))
        filled = [line for line in filled if not is_status_line(line)]
    if sum(look_of(line) is Look.SAMPLE for line in filled) * 2 > len(filled):
        # What is no sample in the midst of samples is a broken line of the page.
        page = [line for line in filled if look_of(line) in {Look.SAMPLE, Look.JOURNAL}]
        _take(found, Look.SAMPLE, page, title)
        filled = [line for line in filled if line not in set(page)]
    filled = _without_gpu_json(found, filled)
    for kind, run in groupby(with_looks(filled), key=lambda one: one[0]):
        _take(found, kind, [line for _, line in run], title)


def _without_gpu_json(found: Evidence, lines: list[str]) -> list[str]:
    """Take in an answer of a GPU tool that was printed over many lines; what is left."""
    begin = next((index for index, line in enumerate(lines) if line.strip() in {"{", "["}), None)
    end = next((index for index, line in reversed(list(enumerate(lines))) if line.strip() in {"}", "]"}), None)
    if begin is None or end is None or end <= begin:
        return lines
    try:
        text = json.dumps(json.loads("\n".join(lines[begin : end + 1])))
    except (ValueError, RecursionError):
        return lines
    if look_of(text) is not Look.JSON:
        return lines
    found.gpu.take_rocm(text)
    return [*lines[:begin], *lines[end + 1 :]]


def _take(found: Evidence, look: Look, lines: list[str], title: str) -> None:
    match look:
        case Look.JOURNAL | Look.ENTRY:
            for line in lines:
                _take_entry(found, line)
        case Look.SHOW:
            _take_show(found, properties_of(lines))
        case Look.HTTP | Look.REQUEST:
            for line in lines:
                found.answers.take(line)
        case Look.SAMPLE:
            found.pages.append((title, "\n".join(lines)))
        case Look.UNIT:
            found.unit_files += split_units(lines, title)
        case Look.PORT:
            for line in lines:
                found.remarks.port_owners += [(int(match["port"]), int(match["pid"])) for match in _SOCKET.finditer(line)]
        case _:
            _take_gpu(found, look, lines, title)


def _take_entry(found: Evidence, line: str) -> None:
    journal = found.the_journal()
    if line.startswith("{") and look_of(line) is Look.ENTRY:
        journal.feed_json(line)
    else:
        journal.feed_text(line)


def _take_gpu(found: Evidence, look: Look, lines: list[str], title: str) -> None:
    text = "\n".join(lines)
    found.gpu.seen = True
    if look is Look.CSV:
        # A tool may print its complaint where the rows would be.
        if not found.gpu.take_failure(text):
            found.gpu.take_csv(lines, title)
    elif look is Look.TABLE:
        found.gpu.take_table(lines)
    elif look in {Look.ROCM, Look.JSON}:
        found.gpu.take_rocm(text)
    else:
        found.gpu.take_failure(text, 1)


def split_units(lines: list[str], title: str) -> list[tuple[str, str]]:
    """(path, text) of each file: `systemctl cat` writes each one's path above it."""
    files: list[tuple[str, list[str]]] = [(title or "unit", [])]
    for line in lines:
        match = _CUT_UNIT.match(line)
        if match:
            files.append((match["path"], []))
        else:
            files[-1][1].append(line)
    return [(path, ("\n".join(text) + "\n")[:MOST_UNIT_CHARS]) for path, text in files if any(line.strip() for line in text)]
