"""All evidence together: one state, one cause, and the figures that go with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from service.domain.masking import LogMask, masked_words
from service.domain.reasons import RULES, Reason
from workers.diagnosis.cause import Cause, Weight, likeliest
from workers.diagnosis.evidence import Evidence
from workers.diagnosis.gpu_verdict import GpuVerdict, Surroundings, judge_gpus
from workers.diagnosis.journal import Journal
from workers.diagnosis.journal_causes import causes_of_journal
from workers.diagnosis.journal_words import journal_answer, journal_facts, journal_warnings
from workers.diagnosis.metrics_page import frozen, read_pages
from workers.diagnosis.serving import Serving, judge_serving
from workers.diagnosis.stale import stale_definition
from workers.diagnosis.standstill import standstill
from workers.engines.remedies import oom_hint, remedy
from workers.hosts.unitcheck import UnitReport, examine

GPU_WEIGHT = Weight.ROOT + 2


@dataclass
class Weighed:
    """The conclusions, before they are put in words."""

    evidence: Evidence
    causes: list[Cause] = field(default_factory=list)
    unit: UnitReport | None = None
    gpu: GpuVerdict | None = None
    serving: Serving = field(default_factory=Serving)
    pages: dict[str, Any] = field(default_factory=dict)
    state: str | None = None
    cause: Cause | None = None


def weigh(found: Evidence) -> Weighed:
    """Collect every cause, choose the likeliest, and say in which state that leaves the engine."""
    weighed = Weighed(found)
    _weigh_unit(weighed)
    _weigh_gpu(weighed)
    _weigh_pages(weighed)
    weighed.serving = judge_serving(found)
    weighed.causes += weighed.serving.causes
    weighed.causes += _of_commands(found)
    weighed.causes += _of_shown(found)
    weighed.causes += causes_of_journal(found)
    weighed.cause = likeliest(weighed.causes)
    weighed.state = _state(weighed)
    if weighed.state in {"ready", "stopped", "loading"}:
        of_a_request = weighed.cause is not None and weighed.cause.reason == Reason.CONTEXT_OVERFLOW
        weighed.cause = weighed.cause if of_a_request or (weighed.gpu is not None and weighed.gpu.reason is not None) else None
    if weighed.state == "loading" and weighed.cause is None:
        # What a command printed before the wire broke shows an engine that loads, but not that the command got to its end.
        weighed.cause = next(_of_the_wire(found), None)
    return weighed


def _weigh_unit(weighed: Weighed) -> None:
    files = weighed.evidence.unit_files
    if not files:
        return
    weighed.unit = examine(files)
    for finding in weighed.unit.findings:
        if finding.reason is not None:
            facts = {"argument": finding.argument} if finding.argument else {}
            weighed.causes.append(Cause(finding.reason, Weight.DEFINITION, finding.text, facts=facts))
    stale = stale_definition(weighed.unit.argv, weighed.evidence.remarks.command_lines)
    weighed.causes += [stale] if stale else []


def _weigh_gpu(weighed: Weighed) -> None:
    found = weighed.evidence
    if not found.gpu.seen:
        return
    around = Surroundings(
        baseline_mib=found.remarks.baseline_mib,
        unit_state=found.shown.active if found.shown else None,
        unit_pid=found.shown.main_pid if found.shown else None,
        unit_user=found.remarks.unit_user,
        notes=found.remarks.notes,
    )
    weighed.gpu = judge_gpus(found.gpu, around)
    if weighed.gpu.reason is not None:
        weighed.causes.append(Cause(weighed.gpu.reason, GPU_WEIGHT, weighed.gpu.evidence, facts=weighed.gpu.facts))  # type: ignore[arg-type]


def _weigh_pages(weighed: Weighed) -> None:
    pages, remarks = weighed.evidence.pages, weighed.evidence.remarks
    if not pages:
        return
    before = next((text for title, text in pages if "before" in title.lower()), None)
    after = pages[-1][1]
    if before is None and len(pages) > 1:
        before = pages[0][1]
    before = None if before is after else before
    weighed.pages = read_pages(before, after, tokens=remarks.tokens, configured=remarks.speculation_configured)
    cause = frozen(before, after)
    weighed.causes += [cause] if cause else []


def _of_commands(found: Evidence) -> Iterator[Cause]:
    for _, said in found.commands:
        if said.reason is not None:
            yield Cause(said.reason, Weight.CONSEQUENCE, said.evidence)


def _of_the_wire(found: Evidence) -> Iterator[Cause]:
    for _, said in found.commands:
        if said.reason is not None and said.facts.get("ssh") == "failed":
            yield Cause(said.reason, Weight.CONSEQUENCE, said.evidence)


def _of_shown(found: Evidence) -> Iterator[Cause]:
    """What systemctl shows; that a stop took too long has the same result as that a start did, and only the journal tells which."""
    for cause in found.shown.causes if found.shown else ():
        stop_timed_out = found.journal is not None and found.journal.unit.facts.get("stop_timed_out")
        if not (stop_timed_out and cause.reason == Reason.SYSTEMD_START_TIMEOUT):
            yield cause


def _state(weighed: Weighed) -> str | None:
    found, cause, serving = weighed.evidence, weighed.cause, weighed.serving
    if serving.state == "not_ready":
        return "not_ready"
    if _stopped_as_asked(weighed):
        return "stopped"
    if serving.state == "ready" and (cause is None or cause.weight >= Weight.ENDING or weighed.gpu is not None):
        return "ready"
    if cause is not None and _is_of_the_engine(weighed, cause):
        return "failed"
    if serving.state is not None:
        return serving.state
    return _by_journal(weighed, found.journal)


def _stopped_as_asked(weighed: Weighed) -> bool:
    journal = weighed.evidence.journal
    return journal is not None and journal.stop_requested and (weighed.cause is None or weighed.cause.weight >= Weight.ENDING)


def _is_of_the_engine(weighed: Weighed, cause: Cause) -> bool:
    """Whether a cause ends an engine; one of a command, a GPU or a unit file that nobody has started says nothing of it."""
    found = weighed.evidence
    if weighed.gpu is not None and cause.reason == weighed.gpu.reason and cause.weight == GPU_WEIGHT:
        return False
    if any(said.reason == cause.reason and said.evidence == cause.evidence for _, said in found.commands):
        return False
    if cause.reason == Reason.ENGINE_UNRESPONSIVE and found.pages and found.journal is None:
        return False
    if cause.reason in {Reason.STALE_UNIT_DEFINITION, Reason.CONTEXT_OVERFLOW}:  # a file's fault, and a request's
        return False
    if cause.weight == Weight.DEFINITION:
        return found.journal is not None or found.shown is not None
    return found.journal is not None or found.shown is not None or bool(weighed.serving.causes)


def _by_journal(weighed: Weighed, journal: Journal | None) -> str | None:
    shown = weighed.evidence.shown
    if journal is not None and journal.recognised and journal.attempt.lines and (shown is None or shown.state in {None, "loading"}):
        if journal.attempt.progress.started_serving:
            return _serving_state(weighed, journal)
        still = standstill(journal, weighed.evidence.remarks)
        if still is not None:
            weighed.cause = still
            return "stalled"
        return "loading"
    if shown is not None and shown.state == "stopped" and journal is not None and journal.attempt.lines and not journal.stop_requested:
        weighed.cause = Cause(Reason.ENGINE_DEAD, Weight.ENDING, journal.last_message)
        return "failed"
    if weighed.pages and any(cause.reason == Reason.ENGINE_UNRESPONSIVE for cause in weighed.causes):
        return "not_ready"
    return shown.state if shown else None


def _serving_state(weighed: Weighed, journal: Journal) -> str:
    still = standstill(journal, weighed.evidence.remarks)
    if still is None:
        return "ready"
    weighed.cause = still
    return "not_ready"


def answer_of(weighed: Weighed) -> dict[str, Any]:
    """Everything in one object; what the evidence does not support is left out."""
    found, cause = weighed.evidence, weighed.cause
    facts: dict[str, Any] = {}
    answer: dict[str, Any] = {}
    if weighed.state is not None:
        answer["state"] = weighed.state
    if found.journal is not None:
        answer |= journal_answer(found.journal, weighed.state)
        facts |= journal_facts(found.journal, weighed.state)
    answer |= _unit_answer(weighed, facts)
    facts |= weighed.serving.facts
    if weighed.serving.engine:
        answer["engine"] = weighed.serving.engine
        answer |= weighed.serving.position
    answer |= _gpu_answer(weighed, facts)
    answer |= weighed.pages
    answer |= _command_answer(weighed, facts)
    answer |= _reason_answer(weighed, cause, facts, answer.get("engine"))
    warnings = list(dict.fromkeys(_warnings(weighed)))
    masked: dict[str, Any] = LogMask(())({**answer, "facts": facts, "warnings": warnings})
    return masked


def _reason_answer(weighed: Weighed, cause: Cause | None, facts: dict[str, Any], engine: str | None) -> dict[str, Any]:
    if cause is None:
        return {"reason": None} if weighed.state is not None or weighed.evidence.commands or weighed.unit else {}
    facts |= cause.facts
    if cause.reason == Reason.CUDA_OUT_OF_MEMORY and (hint := oom_hint(facts)):
        facts["hint"] = hint
    rule = RULES[cause.reason]
    made: dict[str, Any] = {
        "reason": cause.reason,
        "retriable": rule.retry.times > 0,
        "evidence": cause.evidence,
        "remedy": remedy(cause.reason, facts, engine),
        "reason_text": rule.sentence,
    }
    return {**made, "component": cause.component} if cause.component else made


def _unit_answer(weighed: Weighed, facts: dict[str, Any]) -> dict[str, Any]:
    found = weighed.evidence
    made: dict[str, Any] = {}
    journal = found.journal
    if journal is not None:
        life = journal.unit
        facts |= life.facts
        made = {"exit_status": life.exit_status, "signal": life.signal, "restarts": life.restarts, "result": life.result}
        if weighed.state in {"loading", "ready"} and not life.ended:
            # Those are of a start before this one.
            made = {"restarts": life.restarts}
        if weighed.state == "stopped":
            facts |= {"requested": journal.stop_requested, "errors_during_shutdown": journal.errors_at_the_end}
        if weighed.state == "failed" and found.shown is not None:
            facts["stop_requested_by_product"] = journal.stop_requested
    if found.shown is not None:
        shown = dict(found.shown.facts)
        made |= {name: shown.pop(name, made.get(name)) for name in ("unit_state", "restarts", "exit_status", "signal")}
        facts |= shown
    if weighed.unit is not None:
        made["argv"] = masked_words(weighed.unit.argv)
        facts["restart_policy_effective"] = weighed.unit.restart
        facts["found_before_start"] = weighed.unit.reason is not None
    return {name: value for name, value in made.items() if value is not None}


def _gpu_answer(weighed: Weighed, facts: dict[str, Any]) -> dict[str, Any]:
    if weighed.gpu is None:
        return {}
    found, verdict = weighed.evidence.gpu, weighed.gpu
    facts |= verdict.facts
    gpus = [
        {
            "index": gpu.index,
            "used_mib": gpu.used_mib,
            "total_mib": gpu.total_mib,
            "reserved_mib": gpu.reserved_mib,
            "uuid": gpu.uuid,
            "name": gpu.name,
        }
        for gpu in found.gpus
    ]
    notes = weighed.evidence.remarks.notes
    processes = [
        {
            "pid": one.pid,
            "used_mib": one.used_mib,
            "name": one.name,
            "owner": notes[one.pid].owner if one.pid in notes else one.owner,
            "gpu": one.gpu_uuid,
        }
        for one in found.holders
    ]
    return {"gpu_freed": verdict.freed, "gpus": gpus, "processes": processes}


def _command_answer(weighed: Weighed, facts: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for part, said in weighed.evidence.commands:
        made |= {"command": said.command, "remote_exit_status": said.facts.get("remote_exit_status")}
        facts |= {name: value for name, value in said.facts.items() if name not in {"remote_exit_status", "unit_state"}}
        if "unit_state" in said.facts:
            made["unit_state"] = said.facts["unit_state"]
        if said.hint:
            facts["hint"] = said.hint
        if part.is_command:
            facts["command_line"] = part.command[:500]
    return made


def _warnings(weighed: Weighed) -> Iterator[str]:
    found = weighed.evidence
    if found.journal is not None:
        yield from journal_warnings(found.journal)
    if found.shown is not None:
        yield from found.shown.warnings
    if weighed.unit is not None:
        yield from (f"{finding.code}: {finding.text}" for finding in weighed.unit.findings if finding.reason is None)
    if weighed.gpu is not None:
        yield from weighed.gpu.warnings
    yield from weighed.pages.get("warnings", [])
    yield from weighed.serving.warnings
    for _, said in found.commands:
        yield from said.warnings
