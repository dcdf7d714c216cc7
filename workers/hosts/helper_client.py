"""Ask the host helper: one JSON object there, one back, and every way in which that can go wrong told apart."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from service.domain.reasons import Reason
from workers.hosts.base import HostBusy, HostError
from workers.hosts.remote_causes import classify
from workers.hosts.transport import Transport

PATH = "/usr/local/sbin/expctl-host"
PROTOCOL = 1
LIMIT_BYTES = 8 * 1024 * 1024
AS_ROOT = f'if [ "$(id -u)" = 0 ]; then exec {PATH} "$1"; else exec sudo -n {PATH} "$1"; fi'
"""A login as root needs no sudo, and often has none."""

NOT_FOUND = 127
NOT_EXECUTABLE = 126


@dataclass(frozen=True)
class Claim:
    """In whose name the host is changed: the helper refuses a second installation, and a worker with an old fence."""

    service: str
    owner: str
    fence: int

    def as_json(self) -> dict[str, Any]:
        """As the helper takes it."""
        return {"service": self.service, "owner": self.owner, "fence": self.fence}


class HelperRefused(HostError):
    """The helper said no. `answer` is all that it said."""

    def __init__(self, reason: str, evidence: str, answer: dict[str, Any]) -> None:
        super().__init__(reason, evidence)
        self.answer = answer


class Helper:
    """`expctl-host` on one host."""

    def __init__(self, transport: Transport, claim: Claim | None = None) -> None:
        self._transport, self._claim = transport, claim

    @property
    def transport(self) -> Transport:
        """The wire that it is asked over."""
        return self._transport

    def ask(self, verb: str, timeout_s: float = 30.0, **request: Any) -> dict[str, Any]:
        """Call a verb that changes nothing."""
        return self._call(verb, request, timeout_s)

    def act(self, verb: str, timeout_s: float = 60.0, **request: Any) -> dict[str, Any]:
        """Call a verb that changes something, in the name of the claim."""
        if self._claim is None:
            raise HostError(Reason.INTERNAL_ERROR, f"{verb} needs a claim on the host")
        return self._call(verb, {"claim": self._claim.as_json(), **request}, timeout_s)

    def _call(self, verb: str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        body = json.dumps(request).encode()
        done = self._transport.run(
            ["/bin/sh", "-c", AS_ROOT, "expctl-host", verb], stdin=body, deadline_s=timeout_s, limit_bytes=LIMIT_BYTES
        )
        answer = _parsed(done.stdout)
        if answer is None:
            raise _unanswered(verb, done.exit_status, done.signal, done.stdout, done.stderr)
        if answer.get("busy"):
            raise HostBusy(_reason(answer.get("reason")), str(answer.get("message")))
        if not answer.get("ok"):
            raise HelperRefused(_reason(answer.get("reason")), str(answer.get("message", "the helper refused")), answer)
        return answer


def _parsed(out: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(out)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and "ok" in answer else None


def _unanswered(verb: str, status: int | None, signal: str | None, out: bytes, err: bytes) -> HostError:
    said = (err or out).decode("utf-8", "replace").strip()[-500:]
    if status in {NOT_FOUND, NOT_EXECUTABLE} or b"expctl-host: command not found" in err:
        return HostError(Reason.HELPER_MISSING, said or f"{PATH} is not there")
    reason = classify(err, status)
    how = f"signal {signal}" if signal else f"status {status}"
    return HostError(reason or Reason.REMOTE_COMMAND_FAILED, said or f"expctl-host {verb} ended with {how} and said nothing")


def _reason(text: object) -> str:
    """The helper may be newer than this worker and know more reasons."""
    return str(text) if text in set(Reason) else Reason.REMOTE_COMMAND_FAILED
