"""/v1/notifiers: places that messages go to. Secrets are shown once, where they are made."""

from __future__ import annotations

import socket
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session

from service.api.auth import ADMIN, READ
from service.api.deliveries import DeliveryOut, delivery_out
from service.api.deps import ReadSession, User, WriteSession
from service.domain import targets
from service.domain.errors import Conflict
from service.domain.messages import probe_message
from service.domain.targets import AllowList
from service.settings import Settings
from service.store import notifiers, outbox
from service.store.tables import NotifierRow, utc_now

router = APIRouter(prefix="/v1/notifiers", tags=["messages"])

Name = Annotated[str, Path(max_length=200)]
Words = list[Annotated[str, Field(max_length=100)]]
CREATED, ACCEPTED = 201, 202


class NotifierIn(BaseModel):
    """A place to add."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=200)]
    kind: Literal["slack", "webhook"]
    url: Annotated[str, Field(max_length=targets.LONGEST)]
    events: Words = Field(default_factory=list, max_length=50)
    """Kinds of messages; empty is what people usually want."""
    hosts: Words = Field(default_factory=list, max_length=500)
    """It is told of what happens there, unless an experiment names others."""
    default: bool = False
    """Told of what nobody else is named for."""


class Rotation(BaseModel):
    """What to do with the secrets."""

    model_config = ConfigDict(extra="forbid")

    finish: bool = False
    """Sign with the new secret alone."""


class NotifierOut(BaseModel):
    """A place that messages go to. `url` is as much of it as may be shown."""

    name: str
    kind: str
    url: str
    events: list[str]
    hosts: list[str]
    default: bool
    rotating: bool
    """It signs with the old and the new secret."""
    disabled_at: datetime | None
    disabled_because: str | None
    pending: int
    dead: int
    created_by: str
    created_at: datetime


class NotifierMade(NotifierOut):
    """The same with the signing secret, which is never shown again; null for Slack."""

    secret: str | None


def _shown(session: Session, row: NotifierRow, counts: dict[int, dict[str, int]] | None = None) -> NotifierOut:
    mine = (outbox.counts(session) if counts is None else counts).get(row.id or 0, {})
    same = {name: getattr(row, name) for name in NotifierOut.model_fields if hasattr(row, name)}
    return NotifierOut(
        **same
        | {
            "url": targets.shown(row.kind, row.url),
            "rotating": row.old_secret is not None,
            "pending": mine.get("pending", 0),
            "dead": mine.get("dead", 0),
        }
    )


def _made(session: Session, row: NotifierRow) -> NotifierMade:
    return NotifierMade(**_shown(session, row).model_dump(), secret=row.secret)


def check_target(kind: str, url: str, settings: Settings) -> None:
    """UsageError where messages may not go there. A name that is allowed and cannot be resolved now is checked when they are sent."""
    allow = AllowList.parse(settings.notify_allow)
    target = targets.parse_target(kind, url)
    try:
        found = [str(item[4][0]) for item in socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):  # a name that is too long for any name server is no OSError
        found = []
    if not (allow.usable(kind, target.host, found) if found else allow.names_host(kind, target.host)):
        raise targets.refusal(kind, target.host, list(dict.fromkeys(found)), allow)


@router.get("", dependencies=[READ])
def listing(session: ReadSession) -> list[NotifierOut]:
    """Every notifier."""
    counts = outbox.counts(session)
    return [_shown(session, row, counts) for row in notifiers.every(session)]


@router.post("", status_code=CREATED, dependencies=[ADMIN])
def add(request: Request, session: WriteSession, user: User, response: Response, body: NotifierIn) -> NotifierMade:
    """Add a notifier. The answer holds the signing secret of a webhook, this one time."""
    # Before the session's first statement: a slow name server must not keep every other writer waiting.
    check_target(body.kind, body.url, request.app.state.settings)
    row = notifiers.add(session, body.name, body.kind, body.url, user, chosen=body.events, hosts=body.hosts, default=body.default)
    response.headers["Location"] = f"/v1/notifiers/{row.name}"
    return _made(session, row)


@router.get("/{name}", dependencies=[READ])
def one(session: ReadSession, name: Name) -> NotifierOut:
    """One notifier."""
    return _shown(session, notifiers.by_name(session, name))


@router.delete("/{name}", dependencies=[ADMIN])
def remove(session: WriteSession, user: User, name: Name) -> NotifierOut:
    """Forget a notifier and its deliveries."""
    found = _shown(session, notifiers.by_name(session, name))
    notifiers.remove(session, name, user)
    return found


@router.post("/{name}/enable", dependencies=[ADMIN])
def enable(session: WriteSession, user: User, name: Name) -> NotifierOut:
    """Tell a disabled notifier of what happens from now on."""
    return _shown(session, notifiers.enable(session, name, user))


@router.post("/{name}/rotate", dependencies=[ADMIN])
def rotate(session: WriteSession, user: User, name: Name, body: Rotation | None = None) -> NotifierMade:
    """Make a new signing secret and sign with both; `finish`: with the new one alone. Then the answer holds no secret."""
    finish = body is not None and body.finish
    made = _made(session, notifiers.rotate(session, name, user, finish=finish))
    return made.model_copy(update={"secret": None}) if finish else made


@router.post("/{name}/test", status_code=ACCEPTED, dependencies=[ADMIN])
def send_test(session: WriteSession, user: User, response: Response, name: Name) -> DeliveryOut:
    """Send a marked test message now, once; the delivery says how it ended. The steward sends it."""
    row = notifiers.by_name(session, name)
    if row.disabled_at is not None:
        raise Conflict(f"notifier {row.name} is disabled", row.disabled_because or "", f"enable it first: expctl notify enable {row.name}")
    at = utc_now()
    key = f"test:{at.isoformat()}"
    made = outbox.put(session, row, key, key, probe_message(row.name, user, at))
    if made is None:
        raise Conflict("the same test was sent at the same moment", "", "send it again")
    response.headers["Location"] = f"/v1/deliveries/{made.id}"
    return delivery_out(made, row)
