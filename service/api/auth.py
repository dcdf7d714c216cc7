"""What routes ask of whoever calls them: `dependencies=[needs(Scope.ADMIN)]`, and whether an experiment is theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Request
from fastapi.routing import APIRoute
from sqlmodel import Session

from service.domain.access import LADDER, Access, Scope
from service.domain.errors import ExpctlError, NotSignedIn
from service.store import experiments

NAME = "who acts; believed only where the service listens on loopback and has no tokens, elsewhere it is the owner of the token"


def caller(request: Request, x_expctl_user: Annotated[str | None, Header(max_length=100, description=NAME)] = None) -> Access:
    """Who asks. Without tokens everybody who reaches the service is on its machine, so a name is as good as its word."""
    if request.app.state.loopback_only:
        return Access.local(x_expctl_user or "anonymous")
    found: Access | None = getattr(request.state, "access", None)
    if found is None:
        refusal: ExpctlError = getattr(request.state, "refusal", None) or NotSignedIn("not signed in")
        raise refusal
    return found


Caller = Annotated[Access, Depends(caller)]


@dataclass(frozen=True)
class Needs:
    """A dependency that lets pass whoever has a scope."""

    scope: Scope

    def __call__(self, access: Caller) -> None:
        """Forbidden, with the missing scope named, unless it is theirs."""
        access.require(self.scope)


def needs(scope: Scope | str) -> Any:
    """What a route writes into its `dependencies`. They are looked at before the route opens a session."""
    return Depends(Needs(Scope(scope)))


READ, SUBMIT, ADMIN = needs(Scope.READ), needs(Scope.SUBMIT), needs(Scope.ADMIN)


def scope_of(route: APIRoute) -> Scope | None:
    """The scope that a route needs; None where it is open to everybody."""
    found = [one.dependency.scope for one in route.dependencies if isinstance(one.dependency, Needs)]
    return max(found, key=LADDER.index, default=None)


def document(app: FastAPI, routers: Iterable[APIRouter], *, optional: bool) -> None:
    """Say in the OpenAPI document which scope each operation needs. `optional`: this service asks for no token."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    scopes = {(route.path, method.lower()): scope_of(route) for route in routes for method in route.methods or ()}
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        made = plain()
        bearer = {"type": "http", "scheme": "bearer", "description": "a token made by `expctl token create`"}
        made["components"]["securitySchemes"] = {"token": bearer}
        for path, operations in made["paths"].items():
            for method, operation in operations.items():
                scope = scopes.get((path, method))
                asked: list[dict[str, list[str]]] = [{"token": [scope]}] if scope else []
                operation["security"] = [{}, *asked] if optional and asked else asked
        return made

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to change the document


def own(session: Session, access: Access, experiment_id: int) -> None:
    """Forbidden unless the experiment is theirs or they are an admin; NotFound where there is none."""
    access.require_own(experiments.get(session, experiment_id).created_by, f"experiment {experiment_id}")
