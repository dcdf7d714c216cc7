"""Does the process run what was asked for? The unit file may say one thing and the process have another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.domain.reasons import Reason
from workers.expansion import SYSTEM_SPECIFIERS, Unresolved, expand
from workers.hosts.base import HostError, UnitDefinition

SHOWN = 200
"""Characters of a word that are shown."""


def expected_argvs(definition: UnitDefinition, variables: Mapping[str, str]) -> list[tuple[str, ...]]:
    """The command lines that /proc may show; of a fork also with the variables that the process really has."""
    known = [definition.argv] if definition.argv else []
    if definition.fork is None:
        return known
    try:
        return [*known, expand(definition.fork.words, SYSTEM_SPECIFIERS, variables)]
    except Unresolved:
        return known


def check_argv(unit: str, seen: Sequence[str], expected: Sequence[Sequence[str]], show: Mapping[str, str]) -> None:
    """HostError with the first difference, unless the process has exactly the arguments that are expected, one way or the other.

    The program itself may differ: a script is shown behind its interpreter, and then under the path that was asked for.
    """
    if not expected:
        raise HostError(Reason.UNIT_SYNTAX, f"{unit} runs what cannot be known beforehand: its command line depends on the moment")
    if any(_is(seen, wanted) for wanted in expected):
        return
    wanted = expected[-1]
    stale = show.get("NeedDaemonReload") == "yes" or bool(show.get("DropInPaths"))
    reason = Reason.STALE_UNIT_DEFINITION if stale else Reason.UNIT_SYNTAX
    raise HostError(reason, f"{unit} does not run what was asked for: {_difference(seen, wanted)}")


def _is(seen: Sequence[str], wanted: Sequence[str]) -> bool:
    tail = list(seen[-len(wanted) + 1 :]) if len(wanted) > 1 else []
    program = list(seen[: len(seen) - len(tail)])
    return tail == list(wanted[1:]) and bool(program) and (wanted[0] in program or _base(program[-1]) == _base(wanted[0]))


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _difference(seen: Sequence[str], wanted: Sequence[str]) -> str:
    if not seen:
        return "its command line could not be read"
    # From the end, since an interpreter may stand before the program.
    extra = max(0, len(seen) - len(wanted))
    for index, word in enumerate(wanted[1:], start=1):
        there = seen[index + extra] if index + extra < len(seen) else None
        if there != word:
            return f"argument {index} is {_shown(there)}, not {_shown(word)}"
    return f"it runs {_shown(' '.join(seen))}, not {_shown(' '.join(wanted))}"


def _shown(word: str | None) -> str:
    if word is None:
        return "missing"
    return repr(word if len(word) <= SHOWN else word[:SHOWN] + "...")
