"""/v1/hosts/NAME/preflight: experiments that may never be queued, looked at on their host by its worker."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from service.api.auth import SUBMIT, Caller
from service.api.deps import WriteSession
from service.api.hostviews import HostRequestOut, request_out
from service.api.submission import SOURCE, check_depth
from service.domain.errors import Conflict, UsageError
from service.domain.host_requests import PreflightArgs, RequestKind
from service.domain.runcode import allow_code
from service.domain.spec import Spec
from service.domain.specfile import Document, validate
from service.store import hostrequests

router = APIRouter(prefix="/v1/hosts", tags=["hosts"])

ACCEPTED = 202
NEEDED = ("name", "host", "engine")
"""Of an experiment, so much is looked at; its prompts stay here."""

Name = Annotated[str, Path(max_length=200)]
RequestId = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.post("/{name}/preflight", status_code=ACCEPTED, dependencies=[SUBMIT])
def preflight(session: WriteSession, access: Caller, response: Response, name: Name, body: PreflightArgs) -> HostRequestOut:
    """Have the host's worker look at experiments, and queue none: arguments, paths, port, GPU memory, disk."""
    check_depth(body.experiments)
    specs = [_spec(name, one) for one in body.experiments]
    # The engine's program is asked for its arguments, so it is run.
    allow_code(access, *specs)
    args = {"experiments": [{key: one for key, one in spec.model_dump(mode="json").items() if key in NEEDED} for spec in specs]}
    row = hostrequests.ask(session, name, RequestKind.PREFLIGHT, args, access.name)
    response.headers["Location"] = f"/v1/hosts/{name}/requests/{row.id}"
    return request_out(name, row)


def _spec(host: str, given: dict[str, object]) -> Spec:
    if given.get("host", host) != host:
        raise UsageError(f"{given.get('name')} is for the host {given['host']}", f"it is {host} that is asked", "ask each host for its own")
    return validate(Document({**given, "host": host}), SOURCE)


@router.delete("/{name}/preflight/{request_id}", dependencies=[SUBMIT])
def withdraw_preflight(session: WriteSession, access: Caller, name: Name, request_id: RequestId) -> HostRequestOut:
    """Take back a look that no worker has taken up yet."""
    row = hostrequests.get(session, name, request_id)
    if row.kind != RequestKind.PREFLIGHT:
        raise Conflict(f"request {request_id} is no pre-flight", f"it is a {row.kind}", "only a pre-flight is withdrawn here")
    access.require_own(row.created_by, f"request {request_id}")
    return request_out(name, hostrequests.withdraw(session, name, request_id, access.name))
