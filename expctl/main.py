"""The command line's front door: global options, the table of verbs, and errors in three lines.

A verb's module is imported only when that verb is used; `expctl --help` imports none.
"""

from __future__ import annotations

import importlib
import io
import keyword
import os
import sys

from expctl.exitcodes import MEANINGS, ExitCode
from expctl.globals import GLOBAL_OPTIONS, options, take_globals
from expctl.views.terms import GLUE, paragraph, screen, terms
from service.domain.errors import ExpctlError, UsageError

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
        "help": "a verb, or a topic such as exit-codes",
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

ABOUT = "A job queue for long GPU experiments: submit server configurations in the evening, read verdicts in the morning."


def main() -> None:
    """Entry point of the `expctl` command."""
    _have_streams()
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


def _have_streams() -> None:
    """Standard streams that whoever called has closed lead nowhere. Else the next file that is opened would be taken for one of them."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - standard error's
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _output_failed(error: OSError) -> int:
    # What is still buffered would fail once more when Python ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        os.dup2(sys.stdout.fileno(), sys.stderr.fileno())
        return ExitCode.READER_LEFT
    return _report(ExpctlError("the output cannot be written", error.strerror or str(error), "free some space, or send it elsewhere"))


def run(argv: list[str]) -> int:
    """Run one command line and give its exit status."""
    try:
        words = take_globals(argv)
        if options.version:
            from importlib.metadata import version  # noqa: PLC0415 - slow, and rarely wanted

            print(f"expctl {version('expctl')}")
            return 0
        if words == ["help"] or words[:1] in (["--help"], ["-h"]):
            print(usage())
            return 0
        return _verb(words[0] if words else "queue", words[1:])
    except ExpctlError as error:
        return _report(error)
    except KeyboardInterrupt:
        print("interrupted; what runs keeps running", file=sys.stderr)
        return ExitCode.INTERRUPTED
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
        kind = "option" if name.startswith("-") else "verb"
        raise UsageError(f"there is no {kind} {name}", "", f"did you mean {close[0]}?" if close else "see `expctl --help`")
    if name == "completion" and words[:2] == ["--answer", "--"]:
        return _complete(words[2:])
    if options.fields:
        from expctl.fields import refuse_unknown  # noqa: PLC0415 - rarely wanted

        refuse_unknown(name, words, options.fields)
    # A verb that is a word of Python has an underscore behind its module's name.
    module = importlib.import_module(f"expctl.commands.{name}_" if keyword.iskeyword(name) else f"expctl.commands.{name}")
    from expctl.calling import call  # noqa: PLC0415 - `expctl --help` needs none of it

    return call(module.app, f"expctl {name}", words)


def _report(error: ExpctlError) -> int:
    first, *rest = [line for part in error.lines() for line in part.split("\n")]
    print(f"error: {first}", file=sys.stderr)
    for line in rest:
        print(f"  {line}", file=sys.stderr)
    return error.exit_code


def usage() -> str:
    """What there is: verbs by group, options, topics."""
    from expctl.topics import TOPICS  # noqa: PLC0415 - only for help

    width = screen()
    longest = max(len(verb) for group in VERBS.values() for verb in group)
    codes = "; ".join(f"{code}{GLUE}{meaning.partition(':')[0].partition(';')[0]}" for code, meaning in MEANINGS.items())
    parts = ["usage: expctl [options] VERB ...", paragraph(ABOUT, width)]
    parts += [f"{group}\n{terms(verbs, width, longest)}" for group, verbs in VERBS.items()]
    parts.append(f"Options, before or after the verb\n{terms(GLOBAL_OPTIONS, width)}")
    parts.append(f"Topics: expctl help TOPIC\n{terms({name: topic.about for name, topic in TOPICS.items()}, width)}")
    parts += [paragraph(f"Exit codes: {codes}.", width), paragraph("`expctl help VERB`, or `expctl VERB --help`, says more.", width)]
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
