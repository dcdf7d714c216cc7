"""What each exit code of the command line means."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Every code that a verb may end with. Errors bring theirs along: `service.domain.errors`."""

    OK = 0
    ERROR = 1
    USAGE = 2
    UNSUCCESSFUL = 3
    NOT_SIGNED_IN = 4
    NOT_FOUND = 5
    CONFLICT = 6
    TIMED_OUT = 124
    """As `timeout` of the coreutils says it."""
    INTERRUPTED = 130
    READER_LEFT = 141
    """What a shell shows of a program that SIGPIPE ended."""


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.ERROR: "an error: it is told in up to three lines, what, why, what to do",
    ExitCode.USAGE: "usage: a verb, an option or a file that is wrong",
    ExitCode.UNSUCCESSFUL: "an experiment that was awaited, watched or followed did not succeed, or `--fail-if` holds",
    ExitCode.NOT_SIGNED_IN: "not signed in",
    ExitCode.NOT_FOUND: "there is no such experiment, host or baseline",
    ExitCode.CONFLICT: "not possible in this state",
    ExitCode.TIMED_OUT: "`--timeout` passed",
    ExitCode.INTERRUPTED: "Ctrl-C; what runs keeps running",
    ExitCode.READER_LEFT: "the reader of the output left, as in `expctl queue | head`",
}
