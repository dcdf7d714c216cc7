"""What a journal names as the cause: the start that counts, and the words that say most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from service.domain.reasons import Reason
from workers.diagnosis.cause import Cause, Weight
from workers.diagnosis.evidence import Evidence
from workers.diagnosis.journal import Attempt, Journal
from workers.diagnosis.systemd_words import MANY_RESTARTS


def causes_of_journal(found: Evidence) -> Iterator[Cause]:
    """What the kernel, the engine and systemd say in it."""
    journal = found.journal
    if journal is None:
        return
    yield from journal.kernel
    attempt = _failed_attempt(journal, found)
    cause = attempt.cause() if attempt else None
    if attempt and attempt.progress.reason is None and found.shown is not None and found.shown.active == "active":
        # It lives, so that an exception that was printed last was not its end.
        cause = None
    if cause is not None:
        yield cause
    if not _ended_as_asked(journal, cause):
        yield from (_with_last_words(one, attempt) for one in journal.unit_causes)
    if journal.rebooted and not journal.attempt.progress.started_serving:
        yield Cause(Reason.HOST_REBOOTED, Weight.SERVICE_MANAGER, "-- Reboot --")


def _with_last_words(cause: Cause, attempt: Attempt | None) -> Cause:
    """The exception that a program ended with says more than its exit status does."""
    last = attempt.log.log.exception if attempt else None
    if last is None or cause.reason != Reason.ENGINE_DEAD or cause.weight != Weight.ENDING:
        return cause
    return replace(cause, evidence=last[0][:500], component=last[1])


def _ended_as_asked(journal: Journal, cause: Cause | None) -> bool:
    """A stop that was asked for may end by a signal or with a status."""
    return journal.stop_requested and cause is None and all(one.weight >= Weight.ENDING for one in journal.unit_causes)


def _failed_attempt(journal: Journal, found: Evidence) -> Attempt | None:
    """The start whose failure counts: the last one, or the one before where it fails again and again."""
    counts = (journal.unit.restarts, found.shown.facts.get("restarts") if found.shown else None)
    restarts = max((count for count in counts if count is not None), default=0)
    last = journal.attempt
    silent_or_one_of_many = not last.lines or restarts >= MANY_RESTARTS
    if last.progress.reason is None and not last.progress.started_serving and journal.before and silent_or_one_of_many:
        return journal.before
    return last
