"""What the host's admin has allowed: /etc/expctl-host.json."""

from __future__ import annotations

import json
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.hosts.helper.files import read_ours
from workers.hosts.helper.places import Caller
from workers.hosts.helper.refusals import HELPER_MISSING, PERMISSION_DENIED, Misuse, Refused
from workers.hosts.helper.request import LISTED_UNIT, OUR_UNIT, USER, Fields, parsed


@dataclass(frozen=True)
class Config:
    """The limits."""

    parked: tuple[str, ...]
    """Units that may be stopped while the dead-man is armed, and are started again."""
    fork: tuple[str, ...]
    """Further units whose definition may be copied, with another command line."""
    run_as: tuple[str, ...]
    """Users that experiments may run as; the first where a request names none."""
    allow_root: bool

    @property
    def listed(self) -> tuple[str, ...]:
        """Every unit that is not ours and that may be looked at."""
        return (*self.parked, *self.fork)

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        return {"parked": list(self.parked), "fork": list(self.fork), "run_as": list(self.run_as), "allow_root": self.allow_root}

    def our_unit(self, name: str) -> str:
        """The name of a unit of ours, or Refused."""
        if OUR_UNIT.fullmatch(name) is None:
            raise Refused(PERMISSION_DENIED, f"{name[:200]!r} is not the name of a unit of expctl")
        return name

    def listed_unit(self, name: str) -> str:
        """The name of a unit that the config lists, or Refused."""
        if name not in self.listed:
            raise Refused(PERMISSION_DENIED, f"{name[:200]!r} is neither under parked nor under fork in expctl-host.json")
        return name

    def parked_unit(self, name: str) -> str:
        """The name of a unit that may be parked, or Refused."""
        if name not in self.parked:
            raise Refused(PERMISSION_DENIED, f"{name[:200]!r} is not under parked in expctl-host.json")
        return name

    def known_unit(self, name: str) -> str:
        """The name of a unit of ours or of a listed one, or Refused."""
        return self.our_unit(name) if OUR_UNIT.fullmatch(name) else self.listed_unit(name)

    def check_user(self, user: str, caller: Caller) -> None:
        """Refuse a user that this caller may not run things as. The empty name and uid 0, by whatever name, are root."""
        if caller.root:
            return
        if is_root(user):
            if not self.allow_root:
                raise Refused(PERMISSION_DENIED, "running things as root is not allowed in expctl-host.json")
        elif user not in self.run_as:
            raise Refused(PERMISSION_DENIED, f"{user[:100]!r} is not under run_as in expctl-host.json")


NOTHING = Config((), (), (), allow_root=False)
"""Where there is no config to be trusted."""


def is_root(user: str) -> bool:
    """Whether a `User=` is root: none given, the number, the name, or another name of the same number."""
    if user.isdigit():
        return int(user) == 0
    return user in ("", "root") or uid_of(user) == 0


def uid_of(user: str) -> int | None:
    """A user's number, None where there is no such user."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def read_config(path: Path) -> Config:
    """The config. Refused where it is missing, wrong, or another than root could have written it."""
    raw = read_ours(path)
    if raw is None:
        raise Refused(HELPER_MISSING, f"{path} is missing: expctl-host is installed, and nobody has said yet what it may do")
    try:
        return checked_config(parsed(raw, str(path)))
    except Misuse as error:
        raise Refused(HELPER_MISSING, f"{path}: {error}") from error


def checked_config(value: Any) -> Config:
    """The config from its JSON. Misuse or Refused where it is wrong."""
    fields = Fields(value, "the config")
    parked, fork, run_as = fields.texts("parked"), fields.texts("fork"), fields.texts("run_as")
    allow_root = fields.flag("allow_root")
    fields.done()
    for unit in (*parked, *fork):
        # expctl-... is ours: a listed unit of that name would be two things at once.
        if LISTED_UNIT.fullmatch(unit) is None or unit.startswith("expctl-"):
            raise Misuse(f"{unit!r} cannot be listed: a full name such as vllm.service, without blanks and patterns, not expctl-...")
    for user in run_as:
        if USER.fullmatch(user) is None or is_root(user):
            raise Misuse(f"{user!r} cannot stand under run_as: the name of a user, not root (that is allow_root)")
    if len(set(parked)) != len(parked):
        raise Misuse("a unit stands twice under parked")
    return Config(tuple(parked), tuple(fork), tuple(run_as), allow_root)


def default_config(parked: Sequence[str] = (), fork: Sequence[str] = (), run_as: Sequence[str] = (), *, allow_root: bool = False) -> str:
    """The text of a config, for an admin to look at and install. Misuse where the helper would refuse it."""
    value = {"parked": list(parked), "fork": list(fork), "run_as": list(run_as), "allow_root": allow_root}
    checked_config(value)
    return json.dumps(value, indent=2) + "\n"
