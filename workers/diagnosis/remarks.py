"""Remarks and headers that hold evidence themselves: what the experiment wants, how it was before, who owns a port or a process."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from workers.diagnosis.gpu_verdict import ProcessNote
from workers.diagnosis.journal_lines import seconds_of
from workers.diagnosis.unit_show import inline_properties

_EXPECTED = re.compile(r"(?:experiment )?expects? (?:the )?(?:served )?model:? (\S{1,200})|expected (?:served )?model:? (\S{1,200})")
_NOW = re.compile(r"\bnow ?[=:] ?(?:\d{4}-\d\d-\d\d[ T])?(\d\d:\d\d:\d\d)")
_RESTARTS = re.compile(r"NRestarts (?P<when>before|after)[\w ]{0,30}: ?(?P<count>\d{1,9})")
_PIDS = re.compile(r"(?:MainPID|main pid) (?P<when>before|after)[\w ]{0,30}: ?(?P<pid>\d{1,10})", re.IGNORECASE)
_INVOCATIONS = re.compile(r"InvocationID (?P<when>before|after)[\w ]{0,30}: ?(?P<id>[0-9a-f-]{4,40})", re.IGNORECASE)
_STARTED_AT = re.compile(r"process_start_time_seconds (?P<when>before|after)[\w ]{0,30}: ?(?P<at>[\d.e+]{1,24})")
_BASELINE = re.compile(r"\bbaseline\b.{0,120}?(\d{1,9}) ?MiB", re.IGNORECASE)
_TOKENS = re.compile(r"num_speculative_tokens[\"']? ?[=:] ?(\d{1,4})")
_NO_SPECULATION = re.compile(
    r"no speculative_config|without specul|speculation off|no draft model|no speculation|speculative_config ?[=:] ?(?:none|null)",
    re.IGNORECASE,
)
_SPECULATES = re.compile(r"experiment.{0,80}(?:speculat|draft model|spec-type|ngram|eagle|mtp)|num_speculative_tokens", re.IGNORECASE)
_USER = re.compile(
    r"(?:unit|service|engine|experiment)s?'? (?:runs as|user:?|account:?) ?=? ?(\w[\w.-]{0,63})"
    r"|\bUser=(\w[\w.-]{0,63})|our (?:user|account):? (\w[\w.-]{0,63})",
    re.IGNORECASE,
)
_PORT_OWNER = re.compile(r":(?P<port>\d{1,5})\b.{0,200}?\b(?:owner )?pid[= ](?P<pid>\d{1,10})")
_PS = re.compile(r"\bps\b(?: -\w{1,4})?(?P<options>[^:]{0,200}?-o[^:]{0,200}?|[^:]{0,60}): {1,20}(?P<values>\S.{0,400})$")
_PS_FORMAT = re.compile(r"-o ?[\"']?(?P<fields>[\w=,%]{2,200})")
_PS_PID = re.compile(r"-p ?(?P<pid>\d{1,10})")
_KILL = re.compile(r"\bkill (?:-0|-s 0) (?P<pid>\d{1,10}): ?(?P<answer>.{0,200})$")
_KILLED = re.compile(r"kill -(?:9|KILL|SIGKILL) (?P<pid>\d{1,10})(?P<answer>.{0,200})$")
_STATE_OF = re.compile(r"/proc/(?P<pid>\d{1,10})/(?:status|stat|comm|cmdline)\S{0,20}: ?(?P<answer>.{0,300})$")
_CMDLINE = re.compile(r"/proc/(?P<pid>\d{1,10})/cmdline[^:]{0,80}: ?(?P<words>\S.{0,8000})$")
_RECORD = re.compile(r"\{.{0,4000}\}")
_PATIENCE = re.compile(r"(?:load\.?)?(?P<what>stall|timeout)[ =:]{1,3}(?P<amount>\d{1,6}) ?(?P<unit>s|m|min|h)\b")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}


@dataclass
class Remarks:
    """What they told."""

    expected_model: str | None = None
    now_s: float | None = None
    restarts: dict[str, int] = field(default_factory=dict)
    """By `before` and `after` the run; the same for the next two."""
    pids: dict[str, int] = field(default_factory=dict)
    identities: dict[str, set[str]] = field(default_factory=dict)
    baseline_mib: int | None = None
    tokens: int | None = None
    speculation_configured: bool | None = None
    unit_user: str | None = None
    port_owners: list[tuple[int, int]] = field(default_factory=list)
    """(port, pid)."""
    notes: dict[int, ProcessNote] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    """Of `systemctl show UNIT: A=b C=d`."""
    record: dict[str, Any] = field(default_factory=dict)
    """A per-request record, where one is quoted."""
    command_lines: dict[int, str] = field(default_factory=dict)
    """What /proc shows of a process, by its pid."""
    limits_s: dict[str, float] = field(default_factory=dict)

    def take(self, text: str) -> None:
        """Take in one remark or header."""
        self._experiment(text)
        self._identity(text)
        self._host(text)
        self._processes(text)
        if "systemctl" in text and "show" in text:
            self.properties.update(inline_properties(text))
        if now := _NOW.search(text):
            self.now_s = seconds_of(now[1])

    def _experiment(self, text: str) -> None:
        if match := _EXPECTED.search(text):
            self.expected_model = (match[1] or match[2]).rstrip(".,;")
        if match := _TOKENS.search(text):
            self.tokens = int(match[1])
        if _NO_SPECULATION.search(text):
            self.speculation_configured = False
        elif _SPECULATES.search(text):
            self.speculation_configured = True
        for match in _PATIENCE.finditer(text):
            self.limits_s[match["what"]] = int(match["amount"]) * _SECONDS[match["unit"]]
        if "record" in text and (match := _RECORD.search(text)):
            self.record = _json_object(match[0])

    def _identity(self, text: str) -> None:
        if match := _RESTARTS.search(text):
            self.restarts[match["when"]] = int(match["count"])
        if match := _PIDS.search(text):
            self.pids[match["when"]] = int(match["pid"])
        for pattern, name in ((_INVOCATIONS, "id"), (_STARTED_AT, "at")):
            if match := pattern.search(text):
                self.identities.setdefault(match["when"], set()).add(match[name])

    def _host(self, text: str) -> None:
        if match := _BASELINE.search(text):
            self.baseline_mib = int(match[1])
        if match := _USER.search(text):
            self.unit_user = next(filter(None, match.groups()))
        if "listen" in text.lower() or "ss -" in text or "lsof" in text or "owner pid" in text:
            self.port_owners += [(int(match["port"]), int(match["pid"])) for match in _PORT_OWNER.finditer(text)]

    def _processes(self, text: str) -> None:
        if match := _KILL.search(text):
            gone = "no such process" in match["answer"].lower()
            self.note(int(match["pid"])).exists = not gone
        if (match := _KILLED.search(text)) and re.search(r"still|alive|survive|no effect|remains", match["answer"]):
            self.note(int(match["pid"])).survived_kill = True
        if (match := _STATE_OF.search(text)) and (state := re.search(r"State:\s*([A-Z])", match["answer"])):
            self.note(int(match["pid"])).state = state[1]
        if match := _CMDLINE.search(text):
            self.command_lines[int(match["pid"])] = match["words"]
        if match := _PS.search(text):
            self._ps(text, match["values"])

    def _ps(self, text: str, values: str) -> None:
        pid, layout = _PS_PID.search(text), _PS_FORMAT.search(text)
        if layout is not None:
            self.ps_row([part.rstrip("=") for part in layout["fields"].split(",") if part], values, int(pid["pid"]) if pid else None)

    def ps_row(self, fields: list[str], values: str, pid: int | None) -> None:
        """One row of `ps -o`."""
        cells = dict(zip(fields, values.split(None, len(fields) - 1), strict=False))
        number = cells.get("pid", "")
        pid = int(number) if number.isdecimal() and len(number) < 11 else pid  # noqa: PLR2004 - no pid is longer
        if pid is None:
            return
        note = self.note(pid)
        parent = cells.get("ppid", "")
        note.parent = int(parent) if parent.isdecimal() and len(parent) < 11 else note.parent  # noqa: PLR2004 - as above
        note.state = cells.get("stat") or cells.get("state") or cells.get("s") or note.state
        note.owner = cells.get("user") or cells.get("euser") or cells.get("ruser") or note.owner
        note.exists = True

    def note(self, pid: int) -> ProcessNote:
        """What is known of a pid."""
        return self.notes.setdefault(pid, ProcessNote())


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
