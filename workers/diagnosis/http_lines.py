"""What a server answered: probes of its health, its list of models, and requests of a run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from service.domain.reasons import Reason
from workers.bench.failures import ServerError, error_body, error_in, reason_in_stream, reason_of_status

_PROBE = re.compile(r"(?P<method>GET|POST|HEAD) (?P<path>/\S{0,400}?)(?: \S.{0,400}?)? -> (?P<answer>.*)$")
_STATUS = re.compile(r"^(?:HTTP/\d(?:\.\d)? )?(?P<status>\d{3})\b[ ,:]*(?P<body>.*)$", re.DOTALL)
_REQUEST = re.compile(r"^(?P<name>(?:req|request) #?\d{1,6}) ?(?:->|:) ?(?P<answer>.*)$")
_HEAD = re.compile(r"^(?:< )?HTTP/\d(?:\.\d)? (?P<status>\d{3})\b(?P<phrase>.{0,100})")
_IDS = re.compile(r"\b(?:id|models?)[ :=]+(?P<id>[\w./:@-]{1,200})")
_NO_ANSWER = re.compile(r"timed? ?out|timeout|no (?:answer|response|reply)|hang|nothing", re.IGNORECASE)
_REFUSED = re.compile(r"refused|ECONNREFUSED|nobody listens|not listening", re.IGNORECASE)
_CUT = re.compile(r"cut|incomplete|reset|peer closed|closed|broken", re.IGNORECASE)
_ENDS: tuple[tuple[re.Pattern[str], Reason], ...] = (
    (re.compile(r"finish_reason[\"']?[ :=]{1,3}[\"']?(?:abort|error|cancel)|abort", re.IGNORECASE), Reason.ABORTED_BY_SERVER),
    (_CUT, Reason.CONNECTION_LOST),
    (re.compile(r"truncated|(?:no|without) \[?DONE|(?:no|without) finish", re.IGNORECASE), Reason.TRUNCATED_STREAM),
    (re.compile(r"\b(?:0|no) (?:output |completion )?tokens?\b|\bempty\b|without a token", re.IGNORECASE), Reason.EMPTY_OUTPUT),
)
"""How an answer that began with 200 may have ended."""
_LOADING = re.compile(r"loading model|model is (?:still )?loading|\"status\": ?\"loading|starting", re.IGNORECASE)
_PID = re.compile(r"\bowner pid[ =:]?(\d{1,10})")
OK, FIRST_ERROR, SERVER_ERROR, UNAVAILABLE = 200, 400, 500, 503


@dataclass(frozen=True)
class Probe:
    """One question and its answer. `status` is None where none came."""

    path: str
    method: str
    status: int | None
    body: str
    refused: bool = False
    silent: bool = False

    @property
    def json(self) -> Any:
        """The body; None where it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def models(self) -> tuple[str, ...]:
        """Ids in a list of models."""
        found = self.json
        data = found.get("data") if isinstance(found, dict) else None
        if isinstance(data, list):
            return tuple(str(one["id"]) for one in data if isinstance(one, dict) and "id" in one)
        match = _IDS.search(self.body)
        return (match["id"].rstrip(",;"),) if match and self.status == OK else ()

    @property
    def error(self) -> ServerError | None:
        """The error that its body tells of, whatever the status says."""
        return error_in(self.json)

    @property
    def loading(self) -> bool:
        """Whether it says that the model is still being loaded."""
        return self.status == UNAVAILABLE and bool(_LOADING.search(self.body))


@dataclass(frozen=True)
class RequestLine:
    """One request of a run."""

    name: str
    status: int | None
    ok: bool
    reason: Reason | None
    text: str
    code: int | None = None
    """The number in the error that the answer holds."""


@dataclass
class Answers:
    """Everything that was asked of a server."""

    probes: list[Probe] = field(default_factory=list)
    requests: list[RequestLine] = field(default_factory=list)
    owner_pid: int | None = None
    belongs: bool | None = None
    """Whether the evidence says that the listening process is the unit's."""
    _answering: int | None = None
    """The status of an answer whose body comes in a later line."""

    def take(self, text: str) -> bool:
        """Take in a line, which may hold several answers between semicolons; False where it holds none."""
        request = _REQUEST.match(text.strip())
        if request:
            self.requests.append(_request(request["name"], request["answer"]))
            return True
        if head := _HEAD.match(text):
            self._answering = int(head["status"])
            if self._answering >= FIRST_ERROR:
                # A body may follow, and says more.
                self.requests.append(_request("request", f"{self._answering}{head['phrase']}"))
            return True
        if self._answering is not None and text.startswith("{"):
            if self._answering >= FIRST_ERROR:
                self.requests.pop()
            self.requests.append(_request("request", f"{self._answering} {text}"))
            self._answering = None
            return True
        pieces = [piece for piece in re.split(r" ; (?=GET |POST |HEAD )", text.strip()) if "->" in piece]
        found = False
        for piece in pieces:
            match = _PROBE.search(piece)
            if match:
                found = True
                self._probe(match)
        return found

    def _probe(self, match: re.Match[str]) -> None:
        answer = match["answer"]
        owner = _PID.search(answer)
        if owner:
            self.owner_pid = int(owner[1])
            if "belongs to the unit" in answer:
                self.belongs = True
        status = _STATUS.match(answer)
        if status:
            self.probes.append(Probe(match["path"], match["method"], int(status["status"]), status["body"].strip()))
        elif match["path"].startswith("/v1/models") and _IDS.search(answer):
            self.probes.append(Probe(match["path"], match["method"], OK, answer))
        else:
            self.probes.append(
                Probe(match["path"], match["method"], None, answer, bool(_REFUSED.search(answer)), bool(_NO_ANSWER.search(answer)))
            )

    def last(self, *paths: str) -> Probe | None:
        """The last answer of any of these paths."""
        return next((probe for probe in reversed(self.probes) if probe.path.partition("?")[0] in paths), None)

    @property
    def generated(self) -> bool | None:
        """Whether a token was made; None where nobody asked for one."""
        asked = [
            probe
            for probe in self.probes
            if (probe.method == "POST" and "completions" in probe.path) or probe.path in {"/generate", "/health_generate"}
        ]
        return None if not asked else asked[-1].status == OK and asked[-1].error is None

    @property
    def models(self) -> tuple[str, ...] | None:
        """Who answers, by its own list; None where nobody asked."""
        probe = self.last("/v1/models", "/models")
        return None if probe is None or probe.status != OK else probe.models


def _request(name: str, answer: str) -> RequestLine:
    status = _STATUS.match(answer)
    number = int(status["status"]) if status else None
    body = status["body"] if status else answer
    if _REFUSED.search(answer):
        return RequestLine(name, number, ok=False, reason=Reason.CONNECTION_REFUSED, text=answer)
    if _NO_ANSWER.search(answer):
        return RequestLine(name, number, ok=False, reason=Reason.REQUEST_TIMEOUT, text=answer)
    error = _error_within(body)
    code = error.code if error else None
    if number == OK or number is None:
        reason = reason_in_stream(error) if error else next((reason for words, reason in _ENDS if words.search(body)), None)
        if number is None:
            reason = reason or Reason.ABORTED_BY_SERVER
        return RequestLine(name, number, ok=reason is None, reason=reason, text=answer, code=code)
    # A run's own requests are judged by the same words.
    return RequestLine(name, number, ok=False, reason=reason_of_status(number, error or error_body(body.encode())), text=answer, code=code)


def _error_within(body: str) -> ServerError | None:
    """The error object that stands in an answer, whatever words are around it."""
    start = body.find("{")
    if start < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(body, start)
    except (ValueError, RecursionError):
        return None
    return error_in(value)
