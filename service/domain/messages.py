"""What people and programs are told: a message in words and figures, before any receiver's own form.

The store keeps it; `workers.notify` writes it for Slack or as a webhook. Nothing secret may enter it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from service.domain.records import Record


class MessageType(StrEnum):
    """Every kind of message. Webhooks carry it as `type`."""

    EXPERIMENT_STARTED = "experiment.started"
    EXPERIMENT_FINISHED = "experiment.finished"
    EXPERIMENT_FAILED = "experiment.failed"
    EXPERIMENT_STALLED = "experiment.stalled"
    HOST_UNREACHABLE = "host.unreachable"
    HOST_RECOVERED = "host.recovered"
    HOST_BLOCKED = "host.blocked"
    WORKER_SILENT = "worker.silent"
    WORKER_BACK = "worker.back"
    PRODUCTION_RESTORED = "production.restored"
    PRODUCTION_NOT_RESTORED = "production.not_restored"
    NIGHT_DIGEST = "night.digest"
    TEST = "test"


SELECTABLE = tuple(one for one in MessageType if one != MessageType.TEST)
"""What a notifier may be asked to tell."""

USUAL = frozenset(SELECTABLE) - {MessageType.EXPERIMENT_STARTED, MessageType.WORKER_BACK}
"""What is told unless somebody chooses: everything but what nobody has to act on."""

_INCLUDED = {MessageType.EXPERIMENT_FINISHED: {MessageType.EXPERIMENT_FAILED}}
"""An experiment that failed has finished, so whoever wants to hear of the one hears of the other."""

Tone = Literal["good", "bad", "warning", "plain"]


class Fact(Record):
    """A figure with its name."""

    name: str
    value: str


class Link(Record):
    """A page of the service; the beginning of its address is the installation's."""

    text: str
    path: str


class Message(Record):
    """One thing that happened, told."""

    type: MessageType
    at: datetime
    tone: Tone = "plain"
    icon: str = ""
    headline: str
    """One line that says it all; every receiver shows at least this."""
    facts: list[Fact] = Field(default_factory=list)
    lines: list[str] = Field(default_factory=list)
    """Sentences."""
    code: str = ""
    """A table, or the last lines of a log: shown as it is, and shortened first."""
    commands: list[str] = Field(default_factory=list)
    """What to type next."""
    links: list[Link] = Field(default_factory=list)
    data: dict[str, Any] = Field(default_factory=dict)
    """For programs: ids and headline numbers, with nulls for what is not known."""


def wanted(chosen: list[str], kind: MessageType) -> bool:
    """Whether a notifier with these choices is told of a kind; without any choice it is what people usually want."""
    if kind == MessageType.TEST:
        return True
    if not chosen:
        return kind in USUAL
    return any(kind == one or kind in _INCLUDED.get(MessageType(one), set()) for one in chosen)


def probe_message(notifier: str, by: str, at: datetime) -> Message:
    """What `expctl notify test` sends; it says so, and nobody can take it for news."""
    return Message(
        type=MessageType.TEST,
        at=at,
        icon="🔔",
        headline=f"Test message of expctl to {notifier}",
        lines=[f"Sent by {by} to see whether messages arrive. Nothing has happened."],
        data={"test": True, "notifier": notifier},
    )
