"""What `expctl help TOPIC` says. Every list comes from the table that the code itself goes by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from expctl import environment, moments
from expctl.exitcodes import MEANINGS
from expctl.globals import GLOBAL_OPTIONS
from expctl.views.terms import paragraph, terms

EXAMPLE = """\
name: kimi-k2.5-int4 ngram k=5
host: local
engine:
  kind: vllm
  model: /models/kimi-k2.5-int4
  args: {tensor-parallel-size: 8}
  speculative: {method: ngram, num_speculative_tokens: 5, prompt_lookup_max: 4}
bench: {prompts: five, concurrency: [1, 8], repeat: 5}
baseline: kimi-k2.5-int4 base
"""
FORMATTING = ("--json", "--fields a,b", "-q, --quiet", "--no-color")
"""The global options that change what is printed."""


class Example(str):
    """Lines that stand as they are."""

    __slots__ = ()


Part = str | Example | Mapping[str, str]


class Topic(NamedTuple):
    """Something to know that belongs to no single verb."""

    about: str
    parts: Callable[[], Iterator[Part]]


def text(name: str, width: int) -> str:
    """A topic as wide as the screen."""
    return "\n\n".join(_drawn(part, width) for part in TOPICS[name].parts())


def _drawn(part: Part, width: int) -> str:
    if isinstance(part, Mapping):
        return terms(part, width)
    return "\n".join(f"  {line}" for line in part.splitlines()) if isinstance(part, Example) else paragraph(part, width)


def _exit_codes() -> Iterator[Part]:
    yield "How a command ended, for scripts:"
    yield {str(int(code)): meaning for code, meaning in MEANINGS.items()}
    yield "Ctrl-C and a broken connection never stop an experiment; `expctl cancel` does."


def _environment() -> Iterator[Part]:
    yield "The command line reads (an option goes before a variable):"
    yield environment.OF_COMMAND_LINE
    yield "The processes of the service (`up`, `api`, `steward`, `worker`, `db`) read, once, when they start:"
    yield {one.variable: f"{one.meaning} Default: {one.default or 'empty'}." for one in environment.settings()}


def _experiment_file() -> Iterator[Part]:
    from service.domain.meanings import meanings  # noqa: PLC0415 - only this topic needs the models
    from service.domain.spec import Spec  # noqa: PLC0415 - as above
    from service.domain.specfile import ENGINE_KINDS  # noqa: PLC0415 - as above

    yield "YAML, an experiment a document; several documents (`---`) are one group, submitted in order. Such as:"
    yield Example(EXAMPLE)
    yield "Keys at the top; `sweep` makes one experiment of each combination of its values:"
    yield dict(meanings(Spec))
    yield f"engine.kind is one of {', '.join(ENGINE_KINDS)}; each has keys of its own. Unknown keys are errors that name the nearest one."
    yield "Every key with its meaning: `expctl schema`, from which editors complete, and docs/experiment-file.md. To start from: examples/."
    yield "To see what would run, without queueing anything: `expctl submit FILE --dry-run`."


def _formatting() -> Iterator[Part]:
    yield "Data goes to standard output, talk (progress, hints, warnings) to standard error. Before or after every verb:"
    yield {name: GLOBAL_OPTIONS[name] for name in FORMATTING}
    yield "Colour is used in a terminal, and never carries a meaning alone. NO_COLOR goes before CLICOLOR_FORCE, and:"
    yield environment.COLOURS
    yield "Tables are as wide as the terminal. In a pipe a row of a list is a line, however long, and drawings have 120 columns, unless:"
    yield environment.WIDTH
    yield "Fields of each verb: docs/json.md, or any wrong name given to `--fields`."


def _times() -> Iterator[Part]:
    yield "Times in tables are those of your own zone, in JSON they are RFC 3339. What lies behind (`--since`, `--until`, your own zone):"
    yield moments.BEHIND
    yield "Durations (`--timeout`, `--older-than`, `load.timeout` of an experiment file):"
    yield moments.DURATIONS
    yield "What is to come (`not_before` and a host's `--window`, in the host's zone):"
    yield moments.AHEAD


TOPICS = {
    "exit-codes": Topic("how a command ended, for scripts", _exit_codes),
    "environment": Topic("variables that are read", _environment),
    "experiment-file": Topic("what is submitted", _experiment_file),
    "formatting": Topic("JSON, fields, quiet, colour, width", _formatting),
    "times": Topic("how times and durations are written", _times),
}
