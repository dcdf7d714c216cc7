"""From the bytes of one response to a RequestResult."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from service.domain.request_speculation import of_answer
from workers.bench.answer import Answer
from workers.bench.content_coding import BadCoding, Unpacker
from workers.bench.failures import ServerError, error_body, error_from, error_in, readable, reason_in_stream, reason_of_status
from workers.bench.sse import Event, SseDecoder
from workers.bench.whole_text import whole

_DONE = "[DONE]"
_BODY_KEPT = 64 * 1024
_SHOWN = 200
"""Signs of a body that is no answer."""
_FEWER = 2
"""How many chunks a token may have been cut into before its count is doubted."""


class End(StrEnum):
    """How a response came to its end."""

    COMPLETE = "complete"
    """As HTTP wants it."""
    LOST = "lost"
    """The connection broke first."""
    TIMEOUT = "timeout"
    GARBLED = "garbled"
    """The bytes were no HTTP."""


@dataclass(frozen=True)
class Verdict:
    """Why a request does not count."""

    reason: Reason
    message: str
    code: int | None = None


@dataclass
class StreamReading:
    """Reads one response as it arrives; `result` judges it at its end."""

    status: int | None = None
    answer: Answer = field(default_factory=Answer)
    done: bool = False
    error: ServerError | None = None
    body: bytearray = field(default_factory=bytearray)
    """The first bytes, kept until an event is seen: a refusal and an answer that is no stream are read from them."""
    events: int = 0
    unreadable: int = 0
    joined: bool = False
    """Whether events came without the blank line between them."""
    late: bool = False
    """Whether a part of an answer came behind [DONE]; it does not count."""
    headers: Mapping[str, str] = field(default_factory=dict)
    unpacker: Unpacker | None = None
    broken: str | None = None
    """Why a compressed body could not be read."""
    taken: bool = False
    """Whether the status says that the request was taken."""
    decoder: SseDecoder = field(default_factory=SseDecoder)

    def begin(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """The response's head has arrived; names of headers are in lower case."""
        self.status = status
        self.taken = HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
        self.headers = headers or {}
        coding = self.headers.get("content-encoding", "").strip().lower()
        self.unpacker = Unpacker(coding) if coding not in {"", "identity"} else None

    def feed(self, data: bytes, at: float) -> bool:
        """A part of the body; whether the answer said that it is done."""
        if self.unpacker is not None:
            data = self._unpacked(self.unpacker, data)
        if not self.events and len(self.body) < _BODY_KEPT:
            self.body += data
        if self.taken:
            for event in self.decoder.feed(data, at):
                self._event(event, unfinished=False)
        return self.done

    def _unpacked(self, unpacker: Unpacker, data: bytes) -> bytes:
        try:
            return b"" if self.broken else unpacker.feed(data)
        except BadCoding as error:
            self.broken = str(error)
            return b""

    def _event(self, event: Event, *, unfinished: bool) -> None:
        self.events += 1
        text = event.data.strip()
        if text == _DONE:
            self.done = True
            return
        try:
            value = json.loads(text) if text else None
        except (ValueError, RecursionError):
            if "\n" in text:
                self._lines(event, unfinished=unfinished)
                return
            value = None
        if event.name == "error":
            self.error = self.error or error_from(event.data if value is None else value)
        elif isinstance(value, dict):
            self.error = self.error or error_in(value)
            self._chunk(value, event.at)
        elif value == _DONE:
            self.done = True
        elif text and not unfinished:
            self.unreadable += 1

    def _chunk(self, value: dict[str, Any], at: float) -> None:
        if not self.done:
            self.answer.take(value, at)
            return
        behind = Answer()
        behind.take(value, at)
        self.late = self.late or behind.estimated_tokens > 0
        if self.answer.usage is None:
            self.answer.beside(value)

    def _lines(self, event: Event, *, unfinished: bool) -> None:
        """An event that makes no sense as a whole: a server may have left out the blank lines between several."""
        self.joined = True
        for line in event.data.split("\n"):
            self._event(event._replace(data=line), unfinished=unfinished)

    def finish(self) -> None:
        """Read what stands behind the last blank line."""
        if not self.taken:
            return
        for event in self.decoder.close():
            self._event(event, unfinished=True)
        value = None if self.events else self._object()
        if value is not None:
            self.error = error_in(value)
            self.answer.take_untimed(value)

    def _object(self) -> dict[str, Any] | None:
        """The body, where it is one JSON object."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def result(self, prompt: str, repeat: int, started: float, end: End, why: str = "") -> RequestResult:
        """The finished request, judged."""
        verdict = self._verdict(end, why)
        answer = self.answer
        tokens = answer.completion_tokens
        span = (answer.last_at or 0.0) - (answer.first_at or 0.0)
        # One token has no pace, and neither has an answer that came in one piece, or several that usage counts together.
        paced = verdict is None and tokens is not None and tokens > 1 and span > 0 and not answer.several
        steps = tokens - 1 if paced and tokens is not None else None
        return RequestResult(
            prompt=prompt,
            repeat=repeat,
            ok=verdict is None,
            reason=verdict.reason if verdict else None,
            http_status=self.status,
            finish_reason=answer.finish_reason and whole(answer.finish_reason),
            ttft_s=_since(started, answer.first_at),
            ttfa_s=_since(started, answer.answer_at),
            tpot_s=span / steps if steps else None,
            e2e_s=_since(started, answer.last_at),
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            completion_tokens=tokens,
            reasoning_tokens=answer.reasoning_tokens,
            tokens_from="usage" if tokens is not None else None,
            estimated_tokens=answer.estimated_tokens if tokens is None and answer.estimated_tokens else None,
            tps=steps / span if steps else None,
            itl_ms=[] if answer.several else [gap * 1000 for gap in answer.gaps],
            text=whole("".join(answer.text)),
            reasoning_text=whole("".join(answer.reasoning)),
            speculation=of_answer(answer.said, tokens) if answer.said else None,
            tool_calls=answer.tools.finished(),
            prompt_token_ids=answer.prompt_ids,
            output_token_ids=answer.output_ids or None,
            error_code=verdict.code if verdict else None,
            error_message=whole(verdict.message) or None if verdict else None,
            warnings=self._warnings(end, tokens, span),
        )

    def _verdict(self, end: End, why: str) -> Verdict | None:
        """Why the request does not count; the most telling cause first."""
        # Behind [DONE] nothing is missing, however the connection ended.
        if end == End.TIMEOUT and not self.done:
            return Verdict(Reason.REQUEST_TIMEOUT, why)
        if end == End.GARBLED and not self.done:
            return Verdict(Reason.BENCH_ERROR, why)
        if self.status is not None and not self.taken:
            return self._refused(self.status)
        if self.error is not None:
            return Verdict(reason_in_stream(self.error), self.error.message, self.error.code)
        if self.answer.gave_up:
            return self._given_up()
        return self._cut(end, why) or self._without_stream() or self._without_output()

    def _refused(self, status: int) -> Verdict:
        error = error_body(bytes(self.body))
        place = self.headers.get("location")
        said = error.message or f"HTTP status {status}" + (f": it points to {place}, so give that as the base URL" if place else "")
        return Verdict(reason_of_status(status, error), said, error.code)

    def _given_up(self) -> Verdict:
        said = None if self.answer.last_words is None else error_from(self.answer.last_words)
        if said is None:
            return Verdict(Reason.ABORTED_BY_SERVER, f"the finish reason is {self.answer.finish_reason}")
        return Verdict(reason_in_stream(said), said.message, said.code)

    def _cut(self, end: End, why: str) -> Verdict | None:
        if end == End.LOST and not self.done:
            return Verdict(Reason.CONNECTION_LOST, why or "the connection broke before the response's end")
        return None

    def _without_stream(self) -> Verdict | None:
        """A body that is no stream of events: an answer in one piece, a page of HTML, bytes that nobody can read."""
        if self.broken:
            return Verdict(Reason.BENCH_ERROR, self.broken)
        if self.events:
            return None
        if self.answer.estimated_tokens:
            return Verdict(Reason.BENCH_ERROR, "the server did not stream its answer, so its tokens have no times")
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        text = self.body.decode("utf-8", "replace").strip()
        if not text or (kind in {"", "text/event-stream"} and text[:1] not in "{<"):
            return None
        return Verdict(Reason.BENCH_ERROR, f"the answer is no stream of events ({kind or 'of no kind'}): {readable(text)[:_SHOWN]}")

    def _without_output(self) -> Verdict | None:
        if not self.done and self.answer.finish_reason is None:
            return Verdict(Reason.TRUNCATED_STREAM, "the stream ended without [DONE] and without a finish reason")
        if not self.answer.estimated_tokens:
            return Verdict(Reason.EMPTY_OUTPUT, "the answer held no token")
        return None

    def _warnings(self, end: End, tokens: int | None, span: float) -> list[str]:
        if not self.taken:
            return []
        answer, output = self.answer, self.answer.estimated_tokens
        found = {
            "usage_missing": tokens is None,
            "usage_below_chunks": tokens is not None and tokens * _FEWER < output,
            "no_answer": bool(answer.reasoning) and answer.answer_at is None and answer.finish_reason is not None,
            "several_choices": answer.several,
            "finish_reason_missing": self.answer.finish_reason is None,
            "done_missing": not self.done,
            "closed_badly_after_done": end in {End.LOST, End.GARBLED} and self.done,
            "data_after_done": self.late,
            "events_not_separated": self.joined,
            "compressed": self.unpacker is not None,
            "unreadable_event": self.unreadable > 0,
            # Some servers leave out the ids of what their parsers swallow.
            "token_ids_incomplete": not answer.several and _other_count(answer.output_ids, tokens),
            "prompt_token_ids_incomplete": _other_count(self.answer.prompt_ids, self.answer.prompt_tokens),
            "came_in_one_piece": tokens is not None and tokens > 1 and output > 0 and span <= 0,
        }
        return [name for name, holds in found.items() if holds]


def _other_count(ids: list[int] | None, tokens: int | None) -> bool:
    return bool(ids) and tokens is not None and len(ids or ()) != tokens


def _since(started: float, at: float | None) -> float | None:
    return None if at is None else at - started
