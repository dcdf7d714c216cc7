"""/v1/hosts: settings, shift and window, and what is asked of a host's worker."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response
from sqlmodel import Session

from service.api.auth import ADMIN, READ
from service.api.deps import ReadSession, User, WriteSession
from service.api.hostviews import HostDetail, HostRequestOut, host_detail, request_out
from service.api.schemas import HostOut, host_out
from service.domain.errors import UsageError
from service.domain.host_change import check_name
from service.domain.host_requests import InstallArgs, RequestKind, TrustArgs
from service.store import hostrequests, hosts, hostsettings, openings

router = APIRouter(prefix="/v1/hosts", tags=["hosts"], dependencies=[READ])

Name = Annotated[str, Path(max_length=200)]
RequestId = Annotated[int, Path(ge=1, le=2**31 - 1)]
Settings = Annotated[
    dict[str, Any],
    Body(
        description="`name`, and the settings to change: those left out stay as they are, null is back to the default",
        examples=[{"name": "llm-two", "ssh": "admin@llm-two", "units": "systemd", "park": ["vllm-kimi.service"], "window": "20:00-08:00"}],
    ),
]

CREATED, OK = 201, 200
ACCEPTED = 202


@router.get("")
def all_hosts(session: ReadSession) -> list[HostOut]:
    """Every host."""
    return [host_out(session, row) for row in hosts.every(session)]


@router.post(
    "", status_code=CREATED, dependencies=[ADMIN], responses={OK: {"description": "The host was known; its settings are those given now."}}
)
def save(session: WriteSession, user: User, response: Response, body: Settings) -> HostDetail:
    """Add a host, or change its settings. What a shift has in hand cannot change while it is open."""
    if "name" not in body:
        raise UsageError("the name of the host is missing", "", "give it as name")
    name = check_name(body["name"])
    row, new = hostsettings.save(session, name, {key: value for key, value in body.items() if key != "name"}, user)
    response.status_code = CREATED if new else OK
    response.headers["Location"] = f"/v1/hosts/{name}"
    return host_detail(session, row)


@router.get("/{name}")
def one_host(session: ReadSession, name: Name) -> HostDetail:
    """One host with its shift, its window and what its latest check found."""
    return host_detail(session, hosts.by_name(session, name))


@router.post("/{name}/check", status_code=ACCEPTED, dependencies=[ADMIN])
def check(session: WriteSession, user: User, response: Response, name: Name) -> HostRequestOut:
    """Have the host's worker look whether all that expctl needs is there."""
    return _ask(session, response, name, RequestKind.CHECK, {}, user)


@router.post("/{name}/trust", status_code=ACCEPTED, dependencies=[ADMIN])
def trust(session: WriteSession, user: User, response: Response, name: Name, body: TrustArgs | None = None) -> HostRequestOut:
    """Have the worker fetch the host's keys, or pin those with the given fingerprints."""
    return _ask(session, response, name, RequestKind.TRUST, (body or TrustArgs()).model_dump(), user)


@router.post("/{name}/install", status_code=ACCEPTED, dependencies=[ADMIN])
def install(session: WriteSession, user: User, response: Response, name: Name, body: InstallArgs | None = None) -> HostRequestOut:
    """Have the worker say how the helper gets onto the host, or put it there."""
    return _ask(session, response, name, RequestKind.INSTALL, (body or InstallArgs()).model_dump(), user)


@router.post("/{name}/rehearse", status_code=ACCEPTED, dependencies=[ADMIN])
def rehearse(session: WriteSession, user: User, response: Response, name: Name) -> HostRequestOut:
    """Have the worker park production, bring it back and measure both. Production does not serve meanwhile."""
    return _ask(session, response, name, RequestKind.REHEARSE, {}, user)


def _ask(session: Session, response: Response, name: str, kind: RequestKind, args: dict[str, Any], user: str) -> HostRequestOut:
    row = hostrequests.ask(session, name, kind, args, user)
    response.headers["Location"] = f"/v1/hosts/{name}/requests/{row.id}"
    return request_out(name, row)


@router.get("/{name}/requests")
def requests(session: ReadSession, name: Name, limit: Annotated[int, Query(ge=1, le=200)] = 20) -> list[HostRequestOut]:
    """What was asked of a host's worker, newest first."""
    return [request_out(name, row) for row in hostrequests.listing(session, name, limit)]


@router.get("/{name}/requests/{request_id}")
def request(session: ReadSession, name: Name, request_id: RequestId) -> HostRequestOut:
    """One request, with the answer once it is there."""
    return request_out(name, hostrequests.get(session, name, request_id))


@router.delete("/{name}/requests/{request_id}", dependencies=[ADMIN])
def withdraw(session: WriteSession, user: User, name: Name, request_id: RequestId) -> HostRequestOut:
    """Take back a request that no worker has taken up yet."""
    return request_out(name, hostrequests.withdraw(session, name, request_id, user))


@router.post("/{name}/give-back", status_code=ACCEPTED, dependencies=[ADMIN])
def give_back(session: WriteSession, user: User, name: Name) -> HostDetail:
    """Have production brought back at once: what runs is stopped and queued again."""
    return host_detail(session, openings.ask_give_back(session, name, user))


@router.post("/{name}/open", dependencies=[ADMIN])
def allow_opening(session: WriteSession, user: User, name: Name) -> HostDetail:
    """Allow one shift outside the window."""
    return host_detail(session, openings.allow_opening(session, name, user))


@router.delete("/{name}/open", dependencies=[ADMIN])
def withdraw_opening(session: WriteSession, user: User, name: Name) -> HostDetail:
    """Take back that a shift may open outside the window. One that is open goes on."""
    return host_detail(session, openings.withdraw_opening(session, name, user))
