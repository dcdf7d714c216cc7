"""Who is told of what happened as soon as it is committed, and never of what was not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session, UOWTransaction

from service.store.database import Database
from service.store.tables import EventRow

KEY = "hosts with news"


def on_commit(database: Database, tell: Callable[[str], None]) -> None:
    """Call `tell` with the name of each host that an event was written of, right after its commit; it must not raise or wait.

    Whatever makes work due writes an event, so that no route can forget to say so.
    """

    def note(session: Session, context: UOWTransaction) -> None:
        del context
        found = {row.host for row in session.new if isinstance(row, EventRow) and row.host}
        session.info[KEY] = session.info.get(KEY, frozenset()) | found

    def committed(session: Session) -> None:
        for host in sorted(session.info.pop(KEY, ())):
            tell(host)

    def rolled_back(session: Session, *more: Any) -> None:
        del more
        session.info.pop(KEY, None)

    event.listen(database.writers, "after_flush", note)
    event.listen(database.writers, "after_commit", committed)
    event.listen(database.writers, "after_soft_rollback", rolled_back)
