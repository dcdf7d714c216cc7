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
    r"context[ _](?:length|size|window)|maximum (?:model|allowed|input|prompt)(?: token)? (?:length|size)|max_(?:model|seq)_len"
    r"|(?:prompt|input|request)\b.{0,60}(?:too long|too large for|longer than)|exceed_context"
    r"|inputs\b.{0,40}(?:must have less than \d+ tokens|max_new_tokens\b.{0,4} must be <=)",
    re.IGNORECASE | re.DOTALL,
)
_GPU_MEMORY = re.compile(r"(?:cuda|hip|gpu)\b.{0,20}out of memory|OutOfMemoryError", re.IGNORECASE)
_LOADING = re.compile(r"loading model|model is (?:still )?loading", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"model_not_found|invalid model name|\bmodel\b.{0,120}(?:not found|(?:does )?not exist|not (?:been )?loaded)", re.IGNORECASE
)
_REFUSING = re.compile(
    r"invalid_?request|bad_?request|rate_?limit|overloaded|validation|unprocessable|not_?found|authentication", re.IGNORECASE
)
"""Kinds of errors, where they come without a number, that are the request's fault or say: not now."""
_GENERATION_FAILED = 424
"""What text-generation-inference answers where it failed itself."""
_TOO_LATE = frozenset({408, 504, 524})
_NOBODY_BEHIND = frozenset({502, 503, 521, 522, 523})
"""A proxy that finds no engine behind it, and an engine that is not there yet."""
_MARKUP = re.compile(r"<(script|style|title)\b[^>]{0,200}>(.{0,2000}?)</\1>|<[^<>]{0,2000}>", re.IGNORECASE | re.DOTALL)
_ENOUGH_TEXT = 2000
_LONGEST_CODE = 10


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
    if value.get("error"):
        return error_from(value)
    return None if "choices" in value or not _is_error(value) else error_from(value)


def _is_error(value: dict[str, Any]) -> bool:
    """Whether an object that holds no part of an answer is an error all by itself."""
    if "error" in (value.get("object"), value.get("type")) or value.get("detail"):
        return True
    code = _code(value)
    return bool(value.get("error_code")) or (code is not None and code >= HTTPStatus.BAD_REQUEST and _message(value) is not None)


def error_from(value: Any) -> ServerError:
    """An error from what is known to be one: an object, the object around it, a text, or anything else."""
    if not isinstance(value, dict):
        return ServerError(str(value)[:_ENOUGH_TEXT])
    inner = value.get("error")
    parts = inner if isinstance(inner, dict) else value
    message = _message(parts)
    # What stands around an error may name its number and kind, too.
    number = next((code for code in (_code(parts), _code(value)) if code is not None), None)
    kinds = (parts.get(name) for name in ("type", "error_type", "err_type", "code"))
    words = [kind for kind in kinds if isinstance(kind, str) and not kind.isdecimal()]
    text = message if isinstance(message, str) else json.dumps(parts if message is None else message, ensure_ascii=False)
    return ServerError(text[:_ENOUGH_TEXT], number, " ".join(words))


def _message(parts: dict[str, Any]) -> Any:
    return next((parts[name] for name in ("message", "error", "detail", "msg", "text") if parts.get(name)), None)


def _code(parts: dict[str, Any]) -> int | None:
    """The first number that is given as one."""
    return next((code for name in ("code", "status_code", "status", "error_code") if (code := _number(parts.get(name))) is not None), None)


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isdecimal() and len(value) < _LONGEST_CODE:
        return int(value)
    return int(value) if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) else None


def error_body(body: bytes) -> ServerError:
    """The error in the body of a refused request: JSON, also as the data of an event; of a page of HTML its words, of others the text."""
    text = body.decode("utf-8", "replace").strip()
    data = text.partition("data:")[2].partition("\n")[0] if text.startswith(("data:", "event:")) else text
    try:
        return error_from(json.loads(data))
    except (ValueError, RecursionError):
        return ServerError(readable(text))


def readable(text: str) -> str:
    """The words of a page of HTML; any other text as it is."""
    if text[:1] == "<":
        shown = _MARKUP.sub(lambda tag: f" {tag[2]} " if (tag[1] or "").lower() == "title" else " ", text)
        words = dict.fromkeys(line.strip() for line in shown.splitlines() if line.strip())
        text = " ".join(" ".join(words).split()) or text
    return text[:_ENOUGH_TEXT]


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
    if status in _TOO_LATE:
        return Reason.REQUEST_TIMEOUT
    if status < HTTPStatus.INTERNAL_SERVER_ERROR and status != _GENERATION_FAILED:
        return _reason_of_refusal(status, error)
    if found := _by_words(error.text):
        return found
    return Reason.ENGINE_UNRESPONSIVE if status in _NOBODY_BEHIND else Reason.ABORTED_BY_SERVER


def _reason_of_refusal(status: int, error: ServerError) -> Reason:
    # A missing route answers 404 too; only one that speaks of a model means the model.
    if _NO_MODEL.search(error.text) or (status == HTTPStatus.NOT_FOUND and re.search(r"model", error.text, re.IGNORECASE)):
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
    code = error.code
    if code is None and (_REFUSING.search(error.kind) or _NO_MODEL.search(error.text)):
        code = int(HTTPStatus.BAD_REQUEST)
    if code is not None and (HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR or code in _TOO_LATE):
        return reason_of_status(code, error)
    return Reason.ABORTED_BY_SERVER
