"""What a server's refusal or error says, as a reason."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from service.domain.reasons import Reason

_ENGINE_DEAD = re.compile(
    r"engine[ _]?core|engine[ _]?dead|engine[ _]?(?:process|loop)\b|engine (?:is|has) (?:dead|died|stopped)"
    r"|background loop|scheduler.{0,20}died",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context[ _](?:length|size|window)|maximum (?:model|allowed|input|prompt)(?: token)? length|max_model_len"
    r"|(?:prompt|input|request)\b.{0,60}(?:too long|too large for|longer than)|exceed_context",
    re.IGNORECASE | re.DOTALL,
)
_GPU_MEMORY = re.compile(r"(?:cuda|hip|gpu)\b.{0,20}out of memory|OutOfMemoryError", re.IGNORECASE)
_LOADING = re.compile(r"loading model|model is (?:still )?loading", re.IGNORECASE)
_ENOUGH_TEXT = 2000


@dataclass(frozen=True)
class ServerError:
    """An error as the server put it."""

    message: str
    code: int | None = None
    kind: str = ""

    @property
    def text(self) -> str:
        """All the words of it."""
        return f"{self.kind} {self.message}".strip()


def error_in(value: Any) -> ServerError | None:
    """The error in a JSON object of a stream or a body, in any of the shapes that servers give it."""
    if not isinstance(value, dict):
        return None
    inner = value.get("error")
    if inner:
        return error_from(inner)
    if value.get("object") == "error" or value.get("type") == "error":
        return error_from(value)
    return None


def error_from(value: Any) -> ServerError:
    """An error from what is known to be one: an object, a text, or anything else."""
    if not isinstance(value, dict):
        return ServerError(str(value)[:_ENOUGH_TEXT])
    inner = value.get("error")
    if isinstance(inner, dict):
        value = inner
    message = value.get("message") or inner or value.get("detail") or value.get("msg") or json.dumps(value, ensure_ascii=False)
    code = value.get("code", value.get("status_code"))
    number = int(code) if isinstance(code, int | float) or (isinstance(code, str) and code.isdecimal()) else None
    words = [str(part) for part in (value.get("type"), None if number is not None else code) if part]
    text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    return ServerError(text[:_ENOUGH_TEXT], number, " ".join(words))


def error_body(body: bytes) -> ServerError:
    """The error in the body of a refused request; a page of HTML gives its text as it is."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return error_from(json.loads(text))
    except ValueError:
        return ServerError(text[:_ENOUGH_TEXT])


def _by_words(text: str) -> Reason | None:
    if _GPU_MEMORY.search(text):
        return Reason.CUDA_OUT_OF_MEMORY
    if _ENGINE_DEAD.search(text):
        return Reason.ENGINE_DEAD
    if _CONTEXT.search(text):
        return Reason.CONTEXT_OVERFLOW
    return None


def reason_of_status(status: int, error: ServerError) -> Reason:
    """Why a request was answered with this status."""
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED):
        return Reason.AUTH_FAILED
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return _reason_of_refusal(status, error)
    if status == HTTPStatus.GATEWAY_TIMEOUT:
        return Reason.REQUEST_TIMEOUT
    if found := _by_words(error.text):
        return found
    return Reason.ENGINE_UNRESPONSIVE if status == HTTPStatus.SERVICE_UNAVAILABLE else Reason.ABORTED_BY_SERVER


def _reason_of_refusal(status: int, error: ServerError) -> Reason:
    # A missing route answers 404 too; only one that speaks of a model means the model.
    if status == HTTPStatus.NOT_FOUND and re.search(r"model", error.text, re.IGNORECASE):
        return Reason.MODEL_NOT_FOUND
    if _CONTEXT.search(error.text):
        return Reason.CONTEXT_OVERFLOW
    return Reason.REQUEST_REFUSED


def reason_in_stream(error: ServerError) -> Reason:
    """Why a stream that had begun with 200 ended in an error object."""
    if found := _by_words(error.text):
        return found
    if _LOADING.search(error.text):
        return Reason.ENGINE_UNRESPONSIVE
    refused = error.code is not None and HTTPStatus.BAD_REQUEST <= error.code < HTTPStatus.INTERNAL_SERVER_ERROR
    if refused and error.code is not None:
        return reason_of_status(error.code, error)
    return Reason.ABORTED_BY_SERVER
