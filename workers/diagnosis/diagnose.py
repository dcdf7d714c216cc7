"""What machines printed, and what it means: one answer for one text."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from service.domain.speculation import Speculation
from workers.diagnosis.evidence import Evidence, gather, take_lines
from workers.diagnosis.journal import Journal
from workers.diagnosis.looks import Look
from workers.diagnosis.metrics_page import read_pages
from workers.diagnosis.paste import Cutter, Paste, cut
from workers.diagnosis.weighing import answer_of, weigh

MOST_PASTE_BYTES = 4 * 2**20
"""Of a paste with several parts. What is longer is read as one journal, in bounded memory."""


class Kind(StrEnum):
    """What a text may be said to be."""

    JOURNAL = "journal"
    SYSTEMCTL_SHOW = "systemctl-show"
    GPU = "gpu"
    METRICS = "metrics"
    UNIT = "unit"
    COMMAND = "command"


_KEYS: dict[Kind, tuple[str, ...]] = {
    Kind.JOURNAL: (
        "state", "engine", "engine_version", "phase", "stage", "done", "total", "percent", "reason", "retriable", "evidence",
        "component", "remedy",
    ),
    Kind.SYSTEMCTL_SHOW: ("state", "reason", "unit_state", "restarts", "exit_status", "signal"),
    Kind.GPU: ("gpu_freed", "reason"),
    Kind.METRICS: ("parse_errors", "scrape", "engine", *Speculation.model_fields),
    Kind.UNIT: ("reason",),
    Kind.COMMAND: ("reason", "retriable", "command", "remote_exit_status"),
}  # fmt: skip
_LISTS: dict[Kind, tuple[str, ...]] = {
    Kind.JOURNAL: ("speculation",), Kind.GPU: ("gpus", "processes"), Kind.METRICS: ("warnings",), Kind.UNIT: ("argv",),
}  # fmt: skip
_MAPS: dict[Kind, tuple[str, ...]] = {Kind.METRICS: ("per_engine",)}


def diagnose_paste(text: str, engine: str | None = None, before: str | None = None) -> dict[str, Any]:
    """The answer for a paste of mixed evidence; keys without evidence are absent. `before`: an earlier Prometheus page.

    Where the paste holds several situations (`# start A`, `# start B`), there is one answer a letter.
    """
    paste = cut(text)
    situations = paste.situations()
    if situations:
        return {letter: _mixed(one, engine, before) for letter, one in situations.items()}
    return _mixed(paste, engine, before)


def _mixed(paste: Paste, engine: str | None, before: str | None) -> dict[str, Any]:
    found = gather(paste, engine)
    if before is not None:
        found.pages.insert(0, ("before the run", before))
    return _without_empty(answer_of(weigh(found)))


def _without_empty(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if value not in ([], {})}


def diagnose_as(kind: Kind, text: str, engine: str | None = None, before: str | None = None, status: int | None = None) -> dict[str, Any]:
    """The answer for a text of one kind; every key of that kind is there, null where the evidence does not say."""
    if kind is Kind.METRICS:
        return complete(kind, read_pages(before, text))
    found = Evidence(engine=engine)
    lines = text.split("\n")
    if kind is Kind.COMMAND:
        found = gather(Cutter().feed(lines), engine)
    elif kind is Kind.GPU:
        _as_gpu(found, text, status)
    else:
        look = {Kind.JOURNAL: Look.JOURNAL, Kind.SYSTEMCTL_SHOW: Look.SHOW, Kind.UNIT: Look.UNIT}[kind]
        take_lines(found, lines, "", look)
    return complete(kind, answer_of(weigh(found)))


def _as_gpu(found: Evidence, text: str, status: int | None) -> None:
    found.gpu.seen = True
    if status not in {None, 0, 14}:
        found.gpu.take_failure(text, status)
        return
    paste = cut(text)
    found.__dict__.update(gather(paste).__dict__)
    found.gpu.seen = True


def complete(kind: Kind, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with every key that its kind has."""
    empty: dict[str, Any] = {name: [] for name in _LISTS.get(kind, ())} | {name: {} for name in _MAPS.get(kind, ())}
    return {**dict.fromkeys(_KEYS[kind]), **empty, **answer}


def diagnose_journal(journal: Journal) -> dict[str, Any]:
    """The answer for a journal that was read by somebody else, such as from a stream."""
    return complete(Kind.JOURNAL, answer_of(weigh(Evidence(journal=journal))))


def diagnose_lines(lines: Iterable[str], engine: str | None = None) -> dict[str, Any]:
    """The answer for a journal of text lines."""
    journal = Journal(engine)
    for line in lines:
        journal.feed_text(line)
    return diagnose_journal(journal)
