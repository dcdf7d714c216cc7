"""Makes deliveries of events and of nights, each once: the mark moves in the transaction that writes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from service.domain.events import Event, EventType
from service.domain.messages import Message, MessageType, wanted
from service.store import notifiers, outbox
from service.store.database import Database
from service.store.tables import NotifierRow
from workers import announcer
from workers.announcer import INTERESTING, News, Outages

log = structlog.get_logger()

OUTAGES = frozenset({EventType.HOST_UNREACHABLE, EventType.HOST_RECOVERED})
"""Followed even while nobody listens: who comes in the middle of an outage is told what it hit."""
BATCH = 100
"""Events whose messages are made at once."""


@dataclass
class Mailroom:
    """Reads on where the mark is. Others may do the same at the same time: whoever moves the mark first has made the messages."""

    database: Database
    looked: int = 0
    """Up to here there is nothing more to tell; only in memory, so that events which nobody is told of cost no writing."""

    def sort(self) -> bool:
        """Make the deliveries of the next events; True where there may be more."""
        with self.database.read() as session:
            seen, state = outbox.mark(session)
            found, clear_to = outbox.interesting(session, INTERESTING, max(seen, self.looked), BATCH)
            if not found:
                self.looked = clear_to
                return False
            outages = Outages.load(state)
            listening = min((one.after_event for one in notifiers.every(session) if one.disabled_at is None), default=None)
            heard = [event for event in found if event.type in OUTAGES or (listening is not None and event.id > listening)]
            told = [(event, self._news(session, event, outages)) for event in heard]
        with self.database.write() as session:
            moved = outbox.move_mark(session, seen, found[-1].id, outages.kept())
            known = notifiers.every(session) if moved else []
            for event, news in told if moved else ():
                if news is not None:
                    _put(session, known, news, event.id)
        if moved:  # and committed: else these events are still to be told
            self.looked = clear_to
        return len(found) == BATCH or not moved

    def _news(self, session: Session, event: Event, outages: Outages) -> News | None:
        try:
            return announcer.news_of(session, event, outages)
        except SQLAlchemyError:
            raise
        except Exception:
            # One odd row must not keep every later message back, and what happened is told all the same.
            log.exception("a message could not be made", event_id=event.id, type=event.type)
            return announcer.in_short(event)

    def close_nights(self, now: datetime | None = None) -> None:
        """Make the digest of each notifier whose hosts are through with their night."""
        moment = now or datetime.now(UTC)
        with self.database.read() as session:
            told = [(one, self._digest(session, one, moment)) for one in notifiers.every(session) if _takes_digest(one)]
            due = [(notifier, *found) for notifier, found in told if found is not None]
        for notifier, news, last in due:
            with self.database.write() as session:
                row = notifiers.by_name(session, notifier.name)
                if row.digest_event == notifier.digest_event and row.disabled_at is None:
                    row.digest_event = last
                    session.add(row)
                    outbox.put(session, row, news.key, news.line, news.message)

    def _digest(self, session: Session, notifier: NotifierRow, now: datetime) -> tuple[News, int] | None:
        try:
            return announcer.digest_for(session, notifier, now)
        except SQLAlchemyError:
            raise
        except Exception:
            # As above; the next night's digest tells of this one too.
            log.exception("a digest could not be made", notifier=notifier.name)
            return None


def _takes_digest(notifier: NotifierRow) -> bool:
    return notifier.disabled_at is None and bool(notifier.default or notifier.hosts) and wanted(notifier.events, MessageType.NIGHT_DIGEST)


def _put(session: Session, known: list[NotifierRow], news: News, event_id: int) -> None:
    told, lost = notifiers.told(known, news.hosts, news.named)
    message = news.message
    if news.experiment_id is None and news.named:
        # What concerns a host is told to whoever cares for it, and to those that its experiments name besides.
        told = list({one.id: one for one in (*notifiers.told(known, news.hosts)[0], *told)}.values())
    if lost:
        message = _with_lost(message, lost)
    for notifier in told:
        if event_id > notifier.after_event and wanted(notifier.events, message.type):
            outbox.put(session, notifier, news.key, news.line, message, event_id=news.event_id, experiment_id=news.experiment_id)


def _with_lost(message: Message, lost: list[str]) -> Message:
    words = f"It names {', '.join(lost)} in its notify list, which is not there or is disabled."
    return message.model_copy(update={"lines": [*message.lines, words]})
