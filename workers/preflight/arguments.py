"""A command line held against what the engine's own help and its rules say. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.domain.reasons import Reason
from workers.engines.vllm_help import HelpOption, Objection, object_to
from workers.engines.vllm_options import Line, read_line
from workers.engines.vllm_speculative import object_to_speculation
from workers.preflight.findings import Finding, doubtful, good, unchecked, wrong

FLAGS, SPECULATION = "arguments", "speculation"
KNOWN_FROM, KNOWN_TO = (0, 8), (0, 33)
"""vLLM's versions whose speculative keys and methods are known here."""
MODULES = frozenset({"vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main"})


def split_server(argv: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """A vLLM command line as (program and subcommand, arguments of the server); None where it is another program's."""
    for at, word in enumerate(argv[:8]):
        if word in MODULES and argv[at - 1 : at] and argv[at - 1] == "-m":
            end = at + 1 + (tuple(argv[at + 1 : at + 2]) == ("serve",))
            return tuple(argv[:end]), tuple(argv[end:])
        if word == "serve":
            return tuple(argv[: at + 1]), tuple(argv[at + 1 :])
    return None


def line_of(argv: Sequence[str]) -> Line:
    """The server's arguments taken apart; none where the command line is not known."""
    parts = split_server(argv)
    return read_line(parts[1] if parts else (), model_first=True)


def check_flags(words: Sequence[str], options: Mapping[str, HelpOption], whose: str) -> Iterator[Finding]:
    """Against the help of the very program that is about to be started."""
    found = object_to(words, options)
    yield from (_refused(FLAGS, one, f"{whose} does not list it so in its --help=all: {one.argument}") for one in found)
    if not found:
        yield good(FLAGS, f"{whose} knows all of them")


def _refused(about: str, objection: Objection, evidence: str) -> Finding:
    remedy = f"write {objection.nearest} instead of {objection.argument}" if objection.nearest else f"correct {objection.argument}"
    if not objection.certain:
        return doubtful(about, objection.text, remedy)
    return wrong(about, Reason.BAD_ARGUMENTS, objection.text, evidence, remedy)


def speculation_of(line: Line) -> tuple[dict[str, Any] | None, str]:
    """The speculative config of a command line; None and why where it cannot be told, an empty one where there is none."""
    config: dict[str, Any] = {}
    for option in line.of("speculative-config"):
        if option.keys:
            # --speculative-config.method ngram
            config[option.keys.split(".")[0]] = _value("".join(option.values[:1]))
            continue
        try:
            given = json.loads("".join(option.values[:1]))
        except (ValueError, RecursionError):
            return None, "--speculative-config is not JSON"
        if not isinstance(given, dict):
            return None, "--speculative-config is no JSON object"
        config |= given
    return config, ""


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def check_speculation(config: Mapping[str, Any], tensor_parallel: int | None, dists: Sequence[str] | None) -> Iterator[Finding]:
    """Against the rules that vLLM holds a speculative config to. `dists`: the engine's packages, None where nobody has looked."""
    version = version_of(dists or ())
    known = version is not None and KNOWN_FROM <= version <= KNOWN_TO
    found = object_to_speculation(config, tensor_parallel, version_known=known)
    yield from (_refused(SPECULATION, one, one.text) for one in found)
    if not found:
        yield good(SPECULATION, "its keys and rules hold")
    elif not known and not all(one.certain for one in found):
        told = f"version {'.'.join(map(str, version))} is" if version else "which version it is, is"
        yield unchecked(SPECULATION, f"whether this vLLM has other keys or methods: {told} not known here")


def version_of(dists: Sequence[str]) -> tuple[int, int] | None:
    """The version that a package's folder names, such as vllm-0.32.0.dist-info."""
    found = [match for one in dists if (match := re.match(r"vllm(?:_\w+)?-(\d+)\.(\d+)", one))]
    return (int(found[0][1]), int(found[0][2])) if found else None


def number(line: Line, name: str, default: int = 1) -> int:
    """The value of an option that is a whole number; the default where it is not given, or no number."""
    text = line.value(name) or ""
    return int(text) if text.isdecimal() else default
