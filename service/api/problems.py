"""Every error as application/problem+json (RFC 9457), with the reason and what to do."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from service.domain.errors import ExpctlError, Forbidden, NotSignedIn, Throttled, Unavailable
from service.domain.refusals import refusal

log = structlog.get_logger()


def problem(status: int, slug: str, title: str, detail: str = "", **more: Any) -> JSONResponse:
    """One problem document."""
    body = {"type": f"/problems/{slug}", "title": title, "status": status, "detail": detail, "reason": slug, **more}
    return JSONResponse(jsonable_encoder(body), status_code=status, media_type="application/problem+json")


class Problem(BaseModel):
    """What an error looks like: RFC 9457, with a reason for programs and what to do for people."""

    type: str
    title: str
    status: int
    detail: str
    reason: str
    todo: str | None = None


def document(app: FastAPI) -> None:
    """Say in the OpenAPI document that every error is a problem; FastAPI would name its own shape instead."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        made = plain()
        made["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for operations in made["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = {"description": "A problem, with its reason and what to do", "content": content}
        return made

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to change the document


def install(app: FastAPI) -> None:
    """Render every error of the app this way."""
    document(app)
    app.add_exception_handler(ExpctlError, _ours)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    for lost in (OperationalError, InternalError, InterfaceError, PoolTimeout):
        app.add_exception_handler(lost, _database)
    app.add_exception_handler(Exception, _unexpected)


def refusal_of(error: ExpctlError) -> JSONResponse:
    """An error of ours as a problem, with the headers that belong to it."""
    answer = problem(error.http_status, error.slug, error.what, error.why, todo=error.todo)
    if isinstance(error, NotSignedIn):
        answer.headers["www-authenticate"] = "Bearer"
    elif isinstance(error, Throttled):
        answer.headers["retry-after"] = str(math.ceil(error.retry_after_s))
    return answer


def _ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ExpctlError)  # noqa: S101 - narrows what Starlette types loosely
    if isinstance(error, Forbidden):
        access = getattr(request.state, "access", None)
        who = {"user": access.name, "token": access.token} if access is not None else {}
        log.warning("refused", status=error.http_status, why=error.what, method=request.method, path=request.url.path, **who)
    return refusal_of(error)


def _validation(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
    errors = [{"where": ".".join(str(part) for part in item["loc"]), "what": refusal(item)} for item in error.errors()]
    detail = "; ".join(f"{item['where']}: {item['what']}" for item in errors)
    return problem(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-input", "the request is not as documented", detail, errors=errors, todo="see /docs"
    )


def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    if error.status_code == HTTPStatus.BAD_REQUEST:
        # The framework says so of a body that is JSON by its looks and still cannot be read.
        detail = "it is not UTF-8, or a number in it has thousands of digits"
        return problem(
            HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-input", "the request's body cannot be read", detail, todo="send JSON in UTF-8"
        )
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem(error.status_code, "not-found", f"there is nothing at {request.url.path}", "", todo="see /docs for what there is")
    answer = problem(error.status_code, "http-error", str(error.detail))
    answer.headers.update(error.headers or {})  # such as Allow with 405
    return answer


def _database(request: Request, error: Exception) -> JSONResponse:
    log.error("database unavailable", path=request.url.path, error=str(error))
    return problem(Unavailable.http_status, Unavailable.slug, "the database does not answer", "", todo="try again; see /readyz")


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("unexpected error", path=request.url.path, exc_info=error)
    answer = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", "expctl itself failed", "", todo="see the API's log")
    # It is sent from outside of everything that was added to the app.
    answer.headers.update(request.app.state.headers)
    return answer
