"""Calling a verb: Typer's own errors come out as everybody's, in three lines with an exit code."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import typer
import typer.main

from expctl.exitcodes import ExitCode
from expctl.globals import options
from service.domain.errors import ExpctlError, UsageError


def call(app: Any, name: str, words: list[str]) -> int:
    """Run a verb and give its exit status. UsageError for words that it does not take, KeyboardInterrupt for Ctrl-C."""
    if options.color is False:
        app.rich_markup_mode = None  # its help would be bold
    command = typer.main.get_command(app)
    if not words and getattr(command, "no_args_is_help", False):
        # Nobody asked for help: it stands in for what is missing, so it is talk.
        with contextlib.redirect_stdout(sys.stderr):
            _run(command, name, ["--help"])
        return ExitCode.USAGE
    return _run(command, name, words)


def _run(command: Any, name: str, words: list[str]) -> int:
    try:
        result = command.main(args=words, prog_name=name, standalone_mode=False)
    except typer.Abort as abort:
        raise KeyboardInterrupt from abort
    except typer.Exit as done:
        return int(done.exit_code)
    except SystemExit as left:
        # Typer and rich make exit status 1 of a reader that left.
        if isinstance(left.__context__, BrokenPipeError):
            raise left.__context__ from None
        raise
    except Exception as error:
        # Typer's usage errors share no public class, but all of them know their message.
        if not hasattr(error, "format_message"):
            raise
        raise _said(error, name) from None
    if result == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _said(error: Any, name: str) -> ExpctlError:
    message = str(error.format_message()).replace("Value error, ", "").rstrip(".")
    what = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    if getattr(error, "exit_code", ExitCode.USAGE) != ExitCode.USAGE:
        return ExpctlError(what)
    usage = " ".join(context.get_usage().split()) if context else ""
    return UsageError(what, usage[:1].lower() + usage[1:], f"see `{context.command_path if context else name} --help`")
