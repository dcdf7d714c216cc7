"""Who looks at a page, and whether a form is one of ours; errors as pages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import parse_qsl

import structlog
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from service.api.auth import caller
from service.api.origin import same_site
from service.domain.access import Access
from service.domain.errors import ExpctlError, Forbidden, NotFound, NotSignedIn, Unavailable, UsageError
from service.domain.refusals import refusal
from service.pages.rendering import page
from service.settings import current_user

log = structlog.get_logger()

MOST_BYTES = 64 * 1024
HOME = "/"


class PageRoute(APIRoute):
    """A route whose errors are pages: what, why, what to do; and the sign-in form where a token is missing."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, with the errors that it may end in."""
        plain = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await plain(request)
            except ExpctlError as error:
                return _refused(request, error)
            except RequestValidationError as error:
                what = "; ".join(refusal(item) for item in error.errors())
                return _refused(request, UsageError("this address is not as it should be", what, "go back, and follow a link"))
            except (OperationalError, InternalError, InterfaceError, PoolTimeout) as error:
                log.warning("database unavailable", path=request.url.path, error=str(error))
                return _refused(request, Unavailable("the database does not answer", "", "try again in a moment"))

        return handle


def _refused(request: Request, error: ExpctlError) -> Response:
    if isinstance(error, NotSignedIn):
        return sign_in_page(request, error)
    if isinstance(error, Forbidden):
        log.warning("refused", status=error.http_status, why=error.what, method=request.method, path=request.url.path)
    return page(request, "problem.html", {"title": error.what, "error": error}, error.http_status)


def nowhere(app: FastAPI) -> None:
    """Let a browser that asks for what there is not get a page too, without a change for whoever asks the API."""
    plain = app.exception_handlers[HTTPException]

    async def handle(request: Request, error: Exception) -> Response:
        path = request.url.path
        if path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
            found = plain(request, error)
            return found if isinstance(found, Response) else await found
        return _refused(request, NotFound(f"there is nothing at {path[:80]}", "", "go back, or choose one of the pages above"))

    app.add_exception_handler(HTTPStatus.NOT_FOUND, handle)


def sign_in_page(request: Request, error: ExpctlError | None, status: int = 401) -> Response:
    """The form that takes a token, and why it is shown."""
    onward = inside(request.query_params.get("next")) if request.url.path == "/signin" else inside(str(request.url.path))
    tried = error is not None and bool(request.cookies)
    return page(request, "signin.html", {"title": "Sign in", "error": error if tried else None, "onward": onward}, status)


def viewer(request: Request) -> Access:
    """Who looks. On a service without tokens it is the person whose machine it is."""
    found = caller(request, current_user())
    request.state.viewer = found
    return found


Viewer = Annotated[Access, Depends(viewer)]


def our_own(request: Request) -> None:
    """Forbidden unless the request comes from a page of this very service: its form is ours."""
    if not same_site(request.scope, request.app.state.settings.base_url):
        raise Forbidden("this form does not come from this service's own pages", "another site may have sent it", "open the page anew")


OurOwn = Depends(our_own)


async def form(request: Request) -> dict[str, str]:
    """The fields of a form, each once."""
    body = await request.body()
    if len(body) > MOST_BYTES:
        raise UsageError("the form is too large")
    try:
        return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        raise UsageError("the form cannot be read", "it is not UTF-8, or has too many fields") from None


Form = Annotated[dict[str, str], Depends(form)]


def inside(path: str | None) -> str:
    """A path of this service to go to, never another site's."""
    return path if path and path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else HOME
