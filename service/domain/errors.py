"""Everything expctl says no with. Each is a sentence with what, why and what to do.

ExpctlError
├── UsageError              the caller's input is wrong            exit 2   HTTP 422
│   ├── SpecError           the experiment file is wrong
│   └── TooLarge            the request is too large                      HTTP 413
├── NotSignedIn             no or a bad token                      exit 4   HTTP 401
├── Forbidden               the token lacks a scope, or the        exit 1   HTTP 403
│                           experiment is somebody else's
├── Throttled               too many requests in a short time      exit 1   HTTP 429
├── NotFound                no such experiment, host, baseline     exit 5   HTTP 404
├── Conflict                not allowed in this state              exit 6   HTTP 409
├── NotReady                no result to show yet                  exit 6   HTTP 409
├── Unavailable             the service or its database is away    exit 1   HTTP 503
└── ClaimLost               this worker no longer holds the host   (never shown to people)
"""

from __future__ import annotations

from typing import ClassVar


class ExpctlError(Exception):
    """Something could not be done. `what` happened, `why`, and what `todo`."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    slug: ClassVar[str] = "error"

    def __init__(self, what: str, why: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.todo = todo

    def lines(self) -> list[str]:
        """What, why and what to do, the empty ones left out."""
        return [part for part in (self.what, self.why, self.todo) if part]

    def __str__(self) -> str:
        return "; ".join(self.lines())


class UsageError(ExpctlError):
    """The caller's input is wrong."""

    exit_code = 2
    http_status = 422
    slug = "invalid-input"


class SpecError(UsageError):
    """The experiment file is wrong."""

    slug = "invalid-experiment"


class TooLarge(UsageError):
    """The request is larger than the service takes."""

    http_status = 413
    slug = "too-large"


class NotSignedIn(ExpctlError):
    """No token, or one that is not accepted."""

    exit_code = 4
    http_status = 401
    slug = "not-signed-in"


class Forbidden(ExpctlError):
    """Signed in, but this is not theirs to do."""

    http_status = 403
    slug = "forbidden"


class Throttled(ExpctlError):
    """Too many requests in a short time; the same is possible after `retry_after_s` seconds."""

    http_status = 429
    slug = "too-many-requests"
    retry_after_s: float = 1.0


class NotFound(ExpctlError):
    """There is no such thing."""

    exit_code = 5
    http_status = 404
    slug = "not-found"


class Conflict(ExpctlError):
    """It exists, but this is not allowed in its present state."""

    exit_code = 6
    http_status = 409
    slug = "conflict"


class NotReady(Conflict):
    """There is no result to show yet."""

    slug = "not-ready"


class Unavailable(ExpctlError):
    """The service, or what it stands on, does not answer."""

    exit_code = 1
    http_status = 503
    slug = "unavailable"


class ClaimLost(ExpctlError):
    """This worker no longer holds the host: stop before the next side effect."""

    slug = "claim-lost"
