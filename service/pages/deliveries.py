"""/deliveries: what became of each message, try by try, and sending one again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from service.api import deliveries as api
from service.api.auth import READ
from service.api.deps import ReadSession
from service.domain.access import Scope
from service.pages.doors import PageRoute, Viewer
from service.pages.rendering import page
from service.store import notifiers, outbox

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[READ])

SIZE = 50


@router.get("/deliveries")
def listing(
    request: Request,
    session: ReadSession,
    who: Viewer,
    status: Annotated[api.DeliveryStatus | None, Query()] = None,
    notifier: Annotated[str | None, Query(max_length=200)] = None,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> Response:
    """Messages, latest first."""
    found = api.listing(session, status, notifier or None, None, SIZE, before)
    context = {
        "title": "Deliveries",
        "items": found.items,
        "older": found.items[-1].id if found.next else None,
        "notifiers": notifiers.every(session),
        "counts": outbox.counts(session),
        "status": status,
        "notifier": notifier,
        "admin": who.may(Scope.ADMIN),
        "twin": "/v1/deliveries",
    }
    return page(request, "deliveries.html", context)


@router.get("/deliveries/{delivery_id}")
def one(request: Request, session: ReadSession, who: Viewer, delivery_id: Annotated[int, Path(ge=1, le=2**31 - 1)]) -> Response:
    """One message with every try."""
    found = api.one(session, delivery_id)
    context = {"title": f"Delivery {found.id}", "item": found, "admin": who.may(Scope.ADMIN), "twin": f"/v1/deliveries/{found.id}"}
    return page(request, "delivery.html", context)
