"""What the pages' buttons do: the API's own routes, asked by forms that only our pages can send."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import RedirectResponse

from service.api import deliveries, experiments, hosts, steering
from service.api.auth import ADMIN, SUBMIT
from service.api.deps import WriteSession
from service.domain.errors import UsageError
from service.pages.doors import Form, OurOwn, PageRoute, Viewer, inside

SEE_OTHER = 303

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[OurOwn])

Id = Annotated[int, Path(ge=1, le=2**31 - 1)]
Name = Annotated[str, Path(max_length=200)]


def _back(fields: dict[str, str]) -> Response:
    return RedirectResponse(inside(fields.get("back")), SEE_OTHER)


@router.post("/e/{experiment_id}/cancel", dependencies=[SUBMIT])
def cancel(session: WriteSession, who: Viewer, experiment_id: Id, fields: Form) -> Response:
    """Ask for an end."""
    experiments.cancel(session, who, experiment_id)
    return _back(fields)


@router.post("/e/{experiment_id}/hold", dependencies=[SUBMIT])
def hold(session: WriteSession, who: Viewer, experiment_id: Id, fields: Form) -> Response:
    """Keep it from starting."""
    steering.hold(session, who, experiment_id, steering.Hold(because=fields.get("because", "")[:500]))
    return _back(fields)


@router.post("/e/{experiment_id}/release", dependencies=[SUBMIT])
def release(session: WriteSession, who: Viewer, experiment_id: Id, fields: Form) -> Response:
    """Let it start when it is due."""
    steering.release(session, who, experiment_id)
    return _back(fields)


@router.post("/e/{experiment_id}/move", dependencies=[SUBMIT])
def move(session: WriteSession, who: Viewer, experiment_id: Id, fields: Form) -> Response:
    """Give it another place: `to` is first, last, or the id of the one that it goes before."""
    to = fields.get("to", "")
    if to in {"first", "last"}:
        change = steering.Change(first=to == "first", last=to == "last")
    elif to.isdecimal() and 0 < int(to) < 2**31:
        change = steering.Change(before=int(to))
    else:
        raise UsageError("the form names no place", "", "go back, and choose one")
    steering.change(session, who, experiment_id, change)
    return _back(fields)


@router.post("/e/{experiment_id}/retry", dependencies=[SUBMIT])
def retry(session: WriteSession, who: Viewer, experiment_id: Id, fields: Form) -> Response:
    """Queue the same again, and show it."""
    del fields
    made = steering.retry(session, who, experiment_id, Response())
    return RedirectResponse(f"/e/{made.id}", SEE_OTHER)


@router.post("/e/{experiment_id}/baseline", dependencies=[SUBMIT])
def baseline(session: WriteSession, who: Viewer, experiment_id: Id, fields: Form) -> Response:
    """Make it the baseline of its model on its host, or no longer."""
    if fields.get("pin") == "no":
        steering.unpin(session, who, experiment_id)
    else:
        steering.pin(session, who, experiment_id)
    return _back(fields)


@router.post("/hosts/{name}/{verb}", dependencies=[ADMIN])
def host(session: WriteSession, who: Viewer, name: Name, verb: Name, fields: Form) -> Response:
    """Pause, resume, give back, allow one shift now, or have a host checked."""
    if verb == "pause":
        steering.pause(session, who.name, name)
    elif verb == "resume":
        steering.resume(session, who.name, name)
    elif verb == "give-back":
        hosts.give_back(session, who.name, name)
    elif verb == "open":
        hosts.allow_opening(session, who.name, name)
    elif verb == "check":
        hosts.check(session, who.name, Response(), name)
    else:
        raise UsageError(f"a host cannot be asked to {verb}", "", "go back, and choose a button")
    return _back(fields)


@router.post("/deliveries/{delivery_id}/replay", dependencies=[ADMIN])
def replay(session: WriteSession, who: Viewer, delivery_id: Id, fields: Form) -> Response:
    """Send a message again."""
    deliveries.replay(session, who.name, delivery_id)
    return _back(fields)
