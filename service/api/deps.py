"""What the routes take: a session to read, one to write, and who asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request
from sqlmodel import Session

from service.api.auth import Caller
from service.store.database import Database


def database(request: Request) -> Database:
    """The app's database."""
    found: Database = request.app.state.database
    return found


def _read(request: Request) -> Iterator[Session]:
    with database(request).read() as session:
        yield session


def _write(request: Request) -> Iterator[Session]:
    with database(request).write() as session:
        yield session


def _user(access: Caller) -> str:
    return access.name


ReadSession = Annotated[Session, Depends(_read)]
# Committed when the route has returned and before the answer is sent: a 201 is never a promise that may still break.
WriteSession = Annotated[Session, Depends(_write, scope="function")]
User = Annotated[str, Depends(_user)]
