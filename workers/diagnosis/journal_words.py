"""What a journal has told, as the answer's keys, figures and warnings."""

from __future__ import annotations

from typing import Any

from workers.diagnosis.journal import Attempt, Journal
from workers.engines.ngram_family import ngram_family
from workers.engines.warning_words import word_on


def journal_answer(journal: Journal, state: str | None) -> dict[str, Any]:
    """Engine, version, phase and position of the last start that said anything."""
    attempt = told(journal)
    progress = attempt.progress
    made: dict[str, Any] = {"engine": attempt.log.engine, "engine_version": progress.engine_version}
    if progress.phase is not None and state != "stopped":
        made |= {
            "phase": progress.phase,
            "stage": progress.stage,
            "done": progress.done,
            "total": progress.total,
            "percent": progress.percent,
        }
    if progress.component and progress.reason:
        made["component"] = progress.component
    if journal.spec_lines:
        made["speculation"] = list(journal.spec_lines)
    return {name: value for name, value in made.items() if value is not None}


def told(journal: Journal) -> Attempt:
    """The last start, or the one before where the last has said nothing yet."""
    return journal.attempt if journal.attempt.lines or journal.before is None else journal.before


def journal_facts(journal: Journal, state: str | None) -> dict[str, Any]:
    """Figures found on the way."""
    progress = told(journal).progress
    facts: dict[str, Any] = dict(progress.facts)
    counts = {
        "notices": journal.notices,
        "truncated_entries": journal.truncated,
        "log_gap": journal.gap,
        "non_message_lines": journal.notes,
    }
    facts |= {name: count for name, count in counts.items() if count}
    if not journal.recognised:
        return facts
    facts["messages"] = journal.engine_messages
    if journal.last_message:
        facts["message_text"] = journal.last_message
    if state == "failed" and progress.total:
        facts["progress_before"] = f"{progress.done}/{progress.total}"
    if journal.engine_messages:
        facts["all_levels_parsed"] = journal.all_levels_parsed
        facts["lines"] = [one.as_json() for one in journal.speakers]
    family = ngram_family(progress.engine_version, progress.facts, journal.method)
    if family:
        facts["ngram_family"] = family
    if journal.method:
        facts["speculative_method"] = journal.method
    if state == "ready":
        facts["ready_evidence"] = "log line"
    return facts


def journal_warnings(journal: Journal) -> list[str]:
    """Known warnings with a word on them, then those that nobody has a word on."""
    raw = told(journal).progress.warnings
    words = [word_on(message) or message for message in raw if "shared memory broadcast" not in message]
    if journal.gap:
        words.append(f"journal_rate_limit: journald dropped {journal.gap} lines for good; ready and error lines may be among them")
    return [*words, *journal.warnings, *journal.unit.warnings]
