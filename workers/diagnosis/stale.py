"""Whether a process runs what its unit's files say: the truth is /proc, and not the text of a unit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from service.domain.reasons import Reason
from workers.diagnosis.cause import Cause, Weight


def stale_definition(argv: Sequence[str], command_lines: Mapping[int, str]) -> Cause | None:
    """A process whose arguments are not those of the unit; None where they are, or cannot be told."""
    for pid, shown in command_lines.items():
        words = _words(shown)
        if len(argv) < 2 or len(words) < 2:  # noqa: PLR2004 - a title that the program gave itself, not its arguments
            continue
        # A script is shown with its interpreter in front.
        if words == list(argv) or words[-len(argv) + 1 :] == list(argv[1:]):
            continue
        missing = [word for word in argv[1:] if word not in words]
        surplus = [word for word in words[1:] if word not in argv]
        text = f"pid {pid} runs without {' '.join(missing) or 'nothing less'} and with {' '.join(surplus) or 'nothing more'}"
        return Cause(
            Reason.STALE_UNIT_DEFINITION, Weight.ROOT, text[:500], facts={"missing_arguments": missing, "other_arguments": surplus}
        )
    return None


def _words(shown: str) -> list[str]:
    if "\0" in shown:
        return shown.rstrip("\0").split("\0")
    try:
        return shlex.split(shown)
    except ValueError:
        return shown.split()
