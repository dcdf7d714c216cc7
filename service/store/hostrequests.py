"""Requests to a host's worker: asked by anybody, taken and answered by whoever holds the host's lease."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import and_, or_, update
from sqlmodel import Session, col, select

from service.domain.errors import ClaimLost, Conflict, NotFound
from service.domain.events import EventType
from service.domain.host_requests import RequestKind, RequestStatus, patience
from service.store import events, hosts, shifts
from service.store.hosts import Lease
from service.store.tables import HostRequestRow, HostRow, utc_now


def ask(session: Session, host: str, kind: RequestKind, args: Mapping[str, Any], actor: str) -> HostRequestRow:
    """Write down what is wanted. The same thing wanted again before any worker took it up is one request."""
    row = hosts.by_name(session, host)
    _refuse_in_vain(session, row, kind, args)
    query = select(HostRequestRow).where(HostRequestRow.host_id == row.id, HostRequestRow.kind == kind)
    for waiting in session.exec(query.where(HostRequestRow.status == RequestStatus.QUEUED)):
        if waiting.args == dict(args) and utc_now() - waiting.created_at < patience(kind) / 2:
            return waiting
    made = HostRequestRow(host_id=row.id or 0, kind=kind, args=dict(args), created_by=actor)
    session.add(made)
    session.flush()
    events.emit(session, EventType.HOST_ASKED, actor, host=host, data={"request": made.id, "kind": kind})
    return made


def _refuse_in_vain(session: Session, row: HostRow, kind: RequestKind, args: Mapping[str, Any]) -> None:
    """Say at once what no worker could do."""
    name, config = row.name, row.config
    if kind == RequestKind.TRUST and not config.get("ssh"):
        raise Conflict(f"{name} has no key to trust", "it is not reached by ssh", f"`expctl host add {name} --ssh DEST` changes that")
    if kind == RequestKind.INSTALL and config.get("units") != "systemd":
        why = "its units are plain processes, which need no helper"
        raise Conflict(f"nothing has to be installed on {name}", why, f"`expctl host add {name} --units systemd` changes that")
    shift = shifts.current(session, row.id or 0)
    if kind == RequestKind.REHEARSE:
        if not config.get("park"):
            raise Conflict(f"there is nothing to rehearse on {name}", "it has no units to park", f"expctl host add {name} --park UNIT")
        if row.blocked:
            raise Conflict(
                f"production of {name} cannot be parked", f"the host is blocked: {row.blocked}", f"see `expctl host show {name}`"
            )
    if shift is not None and (kind == RequestKind.REHEARSE or args.get("apply")):
        raise Conflict(f"not while a shift is open on {name}", "it relies on how the host is just now", "ask again when it has closed")


def take(session: Session, lease: Lease) -> HostRequestRow | None:
    """The oldest request that waits, or that a former holder of the host began and never answered; stamped with the fence."""
    hosts.guard(session, lease)
    _give_up(session, lease)
    left = and_(col(HostRequestRow.status) == RequestStatus.RUNNING, col(HostRequestRow.fence) != lease.fence)
    query = select(HostRequestRow).where(HostRequestRow.host_id == lease.host_id)
    query = query.where(or_(col(HostRequestRow.status) == RequestStatus.QUEUED, left)).order_by(col(HostRequestRow.id)).limit(1)
    row = session.exec(query.with_for_update(skip_locked=True)).one_or_none()
    if row is not None:
        row.status, row.fence, row.started_at = RequestStatus.RUNNING, lease.fence, utc_now()
        session.add(row)
        session.flush()
    return row


def _give_up(session: Session, lease: Lease) -> None:
    """End what waited too long: whoever asked has gone, and does not expect it any more."""
    query = select(HostRequestRow).where(HostRequestRow.host_id == lease.host_id, HostRequestRow.status == RequestStatus.QUEUED)
    for row in [row for row in session.exec(query).all() if row.created_at < utc_now() - patience(row.kind)]:
        within = "two minutes" if row.kind == RequestKind.PREFLIGHT else "an hour"
        late = {"error": f"no worker took it up within {within}", "remedy": "ask again"}
        _end(session, row, lease.host, f"worker:{lease.owner}", ok=False, answer=late)


def answer(session: Session, lease: Lease, request_id: int, *, ok: bool, answer: Mapping[str, Any]) -> None:
    """Write down what came of a request this lease works on. A check is also what is known of the host from now on."""
    hosts.guard(session, lease)
    row = session.get(HostRequestRow, request_id)
    mine = row is not None and (row.host_id, row.status, row.fence) == (lease.host_id, RequestStatus.RUNNING, lease.fence)
    if row is None or not mine:
        raise ClaimLost(f"request {request_id} is no longer ours")
    _end(session, row, lease.host, f"worker:{lease.owner}", ok=ok, answer=answer)
    if row.kind == RequestKind.CHECK:
        report = {**answer, "ok": ok, "at": utc_now().isoformat()}
        session.execute(update(HostRow).where(col(HostRow.id) == lease.host_id).values(report=report))


def _end(session: Session, row: HostRequestRow, host: str, actor: str, *, ok: bool, answer: Mapping[str, Any]) -> None:
    row.status, row.ok, row.answer, row.finished_at = RequestStatus.FINISHED, ok, dict(answer), utc_now()
    if row.kind == RequestKind.PREFLIGHT:
        # Their environments may hold secrets, and nobody needs them any more.
        row.args = {"experiments": [one.get("name") for one in row.args["experiments"]]}
    session.add(row)
    session.flush()
    events.emit(session, EventType.HOST_ANSWERED, actor, host=host, data={"request": row.id, "kind": row.kind, "ok": ok})


def withdraw(session: Session, host: str, request_id: int, actor: str) -> HostRequestRow:
    """Take back a request that no worker has taken up. Conflict where one has."""
    row = get(session, host, request_id)
    if row.status != RequestStatus.QUEUED:
        raise Conflict(f"request {request_id} cannot be withdrawn", f"it is {row.status}", "only one that waits can be")
    _end(session, row, host, actor, ok=False, answer={"error": f"withdrawn by {actor}"})
    return row


def get(session: Session, host: str, request_id: int) -> HostRequestRow:
    """One request to a host, or NotFound."""
    row = session.get(HostRequestRow, request_id)
    if row is None or row.host_id != hosts.by_name(session, host).id:
        raise NotFound(
            f"request {request_id} does not exist", f"nothing of that number was asked of {host}", f"see `expctl host show {host}`"
        )
    return row


def listing(session: Session, host: str, limit: int = 20) -> list[HostRequestRow]:
    """The latest requests to a host, newest first."""
    query = select(HostRequestRow).where(HostRequestRow.host_id == hosts.by_name(session, host).id)
    return list(session.exec(query.order_by(col(HostRequestRow.id).desc()).limit(limit)))
