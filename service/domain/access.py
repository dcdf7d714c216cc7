"""Who may do what: a ladder of scopes, and whose experiments one may touch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from service.domain.errors import Forbidden, UsageError

LONGEST_NAME = 100
RESERVED = ("worker:", "steward", "postman")
"""How the names begin that expctl itself writes into events; a person of such a name could not be told from it."""


class Scope(StrEnum):
    """What a token may do. Each includes the ones before it."""

    READ = "read"  # look at everything, follow streams, scrape the metrics
    SUBMIT = "submit"  # queue experiments, and steer one's own
    RUN_CODE = "run-code"  # queue what runs code of one's own choice on a host
    ADMIN = "admin"  # hosts, notifiers, tokens, pruning, and everybody's experiments


LADDER = tuple(Scope)


def covers(granted: Iterable[Scope], wanted: Scope) -> bool:
    """Whether scopes include the wanted one."""
    return any(LADDER.index(one) >= LADDER.index(wanted) for one in granted)


@dataclass(frozen=True)
class Access:
    """Somebody who asks, and what they may do."""

    name: str
    """The actor of the events that they cause."""
    scopes: frozenset[Scope]
    token_id: int | None = None
    """None: a service that needs no tokens."""
    token: str = ""
    """The token's name."""

    @classmethod
    def local(cls, name: str) -> Access:
        """Somebody on the machine of a service that listens to nobody else: the machine is theirs already."""
        return cls(name, frozenset({Scope.ADMIN}))

    def may(self, scope: Scope) -> bool:
        """Whether this scope is theirs."""
        return covers(self.scopes, scope)

    def require(self, scope: Scope, why: str = "") -> None:
        """Forbidden, with the missing scope named, unless it is theirs. `why`: what it is needed for."""
        if not self.may(scope):
            held = f"the token {self.token} has: {', '.join(one for one in LADDER if one in self.scopes) or 'none'}"
            todo = f"ask an admin for a token with it: expctl token create NAME --owner {self.name} --scope {scope}"
            raise Forbidden(f"this needs the scope {scope}", f"{why}; {held}" if why else held, todo)

    def require_own(self, owner: str, what: str) -> None:
        """Forbidden unless it is their own, or they are an admin."""
        if owner != self.name and not self.may(Scope.ADMIN):
            raise Forbidden(f"{what} belongs to {owner}", f"you are {self.name}, without the scope admin", f"ask {owner}, or an admin")


def check_owner(name: str) -> str:
    """The name of somebody whom a token speaks for; it stands in events, messages and tables."""
    plain = name.strip()
    if not plain or len(plain) > LONGEST_NAME or not plain.isprintable():
        raise UsageError(f"{name[:LONGEST_NAME]!r} is no name for an owner", "one line of up to 100 letters is possible", "such as ann")
    if plain.startswith(RESERVED):
        raise UsageError(f"{plain} is no name for an owner", "expctl writes such names into its own events", "such as ann")
    return plain
