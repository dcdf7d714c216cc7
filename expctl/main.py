"""The command line's front door: global options, the table of verbs, and errors in three lines.

A verb's module is imported only when that verb is used; `expctl --help` imports none.
"""

from __future__ import annotations

import importlib
import io
import keyword
import os
import sys
from typing import Any

from expctl.globals import options, take_globals
from service.domain.errors import ExpctlError

VERBS: dict[str, dict[str, str]] = {
    "Run": {
        "demo": "run the main job on a simulated host and compare",
        "up": "run the embedded service: API, steward, a worker for each host",
        "submit": "queue the experiments of a file",
        "cancel": "end experiments, waiting or running",
        "retry": "queue a finished experiment again",
        "hold": "keep experiments from starting",
        "release": "let held experiments start",
        "move": "another place in the queue",
        "pause": "start nothing new on a host",
        "resume": "let a paused host go on",
    },
    "See": {
        "queue": "how the night is going (plain `expctl` is the same)",
        "show": "everything about one experiment",
        "watch": "follow an experiment as it goes",
        "wait": "wait for experiments to finish",
        "logs": "the engine's log",
        "timeline": "what each host did over a night",
    },
    "Results": {
        "results": "what an experiment measured",
        "compare": "a baseline against others, with a verdict",
        "baseline": "show, pin or forget baselines",
        "report": "a night in Markdown: verdicts, evidence, failures, what to try next",
    },
    "Manage": {
        "host": "add hosts, look at them, check them, give them back",
        "notify": "who is told what: Slack, signed webhooks",
        "token": "who may do what: tokens of a team's service",
        "prune": "remove the bulk of old experiments",
        "doctor": "what this machine and this service need",
        "completion": "completion for bash, zsh and fish",
    },
    "Toolbox (no service needed)": {
        "bench": "measure any OpenAI-compatible server",
        "import": "other tools' results in one set of definitions",
        "diagnose": "what a machine printed, and what it means",
        "schema": "the JSON Schema of the experiment file",
    },
    "Processes": {
        "api": "the HTTP API alone",
        "worker": "the worker of one host alone",
        "steward": "the steward alone",
        "db": "migrate the database",
    },
}

INTERRUPTED = 130
READER_LEFT = 141
"""What a shell shows of a program that SIGPIPE ended."""

HELP = """\
usage: expctl [options] VERB ...

A job queue for long GPU experiments: submit server configurations in the evening, read verdicts in the morning.
{verbs}
Options, before or after the verb:
  --server URL        the service (default: EXPCTL_SERVER, else http://127.0.0.1:8700)
  --json              data as JSON; --fields a,b picks
  -q, --quiet         ids and data only
  --no-color          plain text without any escape; also by NO_COLOR
  --version

Exit codes: 0 ok, 1 error, 2 usage, 3 an experiment that was awaited, watched or followed did not succeed, or a comparison
failed its condition, 4 not signed in, 5 not found, 6 conflict, 124 --timeout passed, 130 Ctrl-C (which never stops an experiment),
141 the reader of the output left.

expctl VERB --help says more."""


def main() -> None:
    """Entry point of the `expctl` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a sign is no reason to fail
    try:
        code = run(sys.argv[1:])
        # Now, while a failure can still be told in words.
        sys.stdout.flush()
    except OSError as error:
        code = _output_failed(error)
    sys.exit(code)


def _output_failed(error: OSError) -> int:
    # What is still buffered would fail once more when Python ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        os.dup2(sys.stdout.fileno(), sys.stderr.fileno())
        return READER_LEFT
    return _report(ExpctlError("the output cannot be written", error.strerror or str(error), "free some space, or send it elsewhere"))


def run(argv: list[str]) -> int:
    """Run one command line and give its exit status."""
    try:
        words = take_globals(argv)
        if options.version:
            from importlib.metadata import version  # noqa: PLC0415 - slow, and rarely wanted

            print(f"expctl {version('expctl')}")
            return 0
        if words[:1] in (["--help"], ["-h"], ["help"]):
            print(HELP.format(verbs=_verb_list()))
            return 0
        return _verb(words[0] if words else "queue", words[1:])
    except ExpctlError as error:
        return _report(error)
    except KeyboardInterrupt:
        print("interrupted; what runs keeps running", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        if error.filename is None:
            raise  # the output's own: `main` tells
        return _report(ExpctlError(f"{error.filename} cannot be used", error.strerror or str(error)))


def _complete(words: list[str]) -> int:
    """What a shell asks: a line for each word that may come next."""
    from expctl.completing import offers  # noqa: PLC0415 - only for shells

    for offer in offers(words):
        print(f"{offer.word}\t{offer.what}")
    return 0


def _verb(name: str, words: list[str]) -> int:
    known = {verb for group in VERBS.values() for verb in group}
    if name not in known:
        import difflib  # noqa: PLC0415 - only for a typo

        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "see `expctl --help`"
        print(f"error: there is no verb {name}\n  {hint}", file=sys.stderr)
        return 2
    if name == "completion" and words[:2] == ["--answer", "--"]:
        return _complete(words[2:])
    if options.fields:
        from expctl.fields import refuse_unknown  # noqa: PLC0415 - rarely wanted

        refuse_unknown(name, words, options.fields)
    # A verb that is a word of Python has an underscore behind its module's name.
    module = importlib.import_module(f"expctl.commands.{name}_" if keyword.iskeyword(name) else f"expctl.commands.{name}")
    return _call(module.app, f"expctl {name}", words)


def _call(app: Any, name: str, words: list[str]) -> int:
    import typer  # noqa: PLC0415 - `expctl --help` needs none of it
    import typer.main  # noqa: PLC0415 - as above

    if options.color is False:
        app.rich_markup_mode = None  # its help would be bold
    command = typer.main.get_command(app)
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
        # Typer's usage errors share no public class, but all of them know how to show themselves.
        show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
        if show is None or code is None:
            raise
        show()
        return int(code)
    if result == INTERRUPTED:
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _report(error: ExpctlError) -> int:
    first, *rest = [line for part in error.lines() for line in part.split("\n")]
    print(f"error: {first}", file=sys.stderr)
    for line in rest:
        print(f"  {line}", file=sys.stderr)
    return error.exit_code


def _verb_list() -> str:
    lines = []
    for group, verbs in VERBS.items():
        lines.append(f"\n{group}")
        lines.extend(f"  {name:<10} {text}" for name, text in verbs.items())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
