"""Would a unit, started again, be what it is now? Its files may have been edited and reloaded, and the unit never restarted.

Two witnesses are asked. The process: its command line and variables beside what the files say now; a program behind a shell, under a
title of its own, or that changes what it was given, cannot be compared. The clock: which files were touched after it had started;
a file that was only written anew was touched, too. Each of them alone may be wrong of a sound unit, and both together are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from workers.execline import BadLine
from workers.expansion import SYSTEM_SPECIFIERS, Unresolved, expand
from workers.hosts.base import HostError, UnitSource
from workers.hosts.commandof import command_of, is_command_line, unset_variables

BEFORE_PROGRAM = 4
"""So many words an interpreter and its options may put before a script."""
SHOWN = 3


@dataclass(frozen=True)
class Drift:
    """That a unit may come back as something else. `proven`: it would."""

    text: str
    proven: bool


def drift_of(source: UnitSource) -> Drift | None:
    """What speaks for it; None where nothing does, or where it does not run."""
    if not source.changed:
        return None
    when = f"{', '.join(source.changed[:SHOWN])} changed after it was started"
    differences = _differences(source)
    if not differences:
        return Drift(f"{when}: it may come back as something else than what serves now", proven=False)
    return Drift(f"{when}, and it does not run what is written there now: {differences}", proven=True)


def _differences(source: UnitSource) -> str:
    """Between the process and the files, in words and without values, which may be secrets; empty where none can be proven."""
    if source.written_variables is None or not source.live_argv:
        return ""
    try:
        base = command_of(source)
        # What the files do not set comes from elsewhere, and is taken to be what it is.
        wanted = expand(base.words[base.lead :], SYSTEM_SPECIFIERS, {**source.variables, **source.written_variables})
        # What a wrapper sets by itself is no business of the files.
        own = {word.partition("=")[0] for word in base.words[: base.lead]} | unset_variables(source)
    except (HostError, BadLine, Unresolved):
        return ""
    if not is_command_line(source.live_argv):
        # A title may have been written over some of the variables, too: those that can still be read are true.
        return _variables(source, own | (source.written_variables.keys() - source.variables.keys()))
    arguments = _arguments(source.live_argv, wanted)
    if arguments is None:
        return ""
    program, live = arguments
    if program != wanted[0]:
        return f"it runs {program}, not {wanted[0]}"
    return "other arguments" if live != wanted[1:] else _variables(source, own)


def _variables(source: UnitSource, but: AbstractSet[str]) -> str:
    """Names of those whose values differ, some left out."""
    written = source.written_variables or {}
    other = sorted(name for name, value in written.items() if name not in but and source.variables.get(name) != value)
    return f"other values of {', '.join(other[:SHOWN])}" if other and source.variables else ""


def _arguments(live: Sequence[str], wanted: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The program and its arguments in a command line, behind an interpreter or not; None where it is another program's."""
    name = _base(wanted[0])
    for at, word in enumerate(live[:BEFORE_PROGRAM]):
        if _base(word) == name:
            program = wanted[0] if "/" not in word or "/" not in wanted[0] else word
            return program, tuple(live[at + 1 :])
    return None


def _base(path: str) -> str:
    return path.rpartition("/")[2]
