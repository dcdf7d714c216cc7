"""Where vLLM's arguments are in a unit's command line, and what they say once `%` and `$` are filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from service.domain.errors import UsageError
from workers.basecommand import BaseCommand
from workers.engines.vllm_options import Line, Option, is_option, read_line
from workers.expansion import SYSTEM_SPECIFIERS, Unresolved, expand_specifiers, expand_variables, is_reference, live_specifiers

_PYTHON = re.compile(r"python[0-9.]*")
_PYTHON_VALUE = frozenset({"-X", "-W", "--check-hash-based-pycs"})
_API_SERVER = re.compile(r"vllm\.entrypoints\.(openai\.|launchers\.)?api_server(\.\w+)?")
_COMMAND_LINE = frozenset({"vllm", "vllm.entrypoints.cli.main", "vllm.scripts"})


@dataclass(frozen=True)
class Found:
    """An option or a positional, and the words it stands in."""

    option: Option
    at: int
    end: int
    origin: str
    """The word it comes out of."""
    fixed: bool
    """It comes out of a variable that holds an option or more, so that it cannot be changed by itself."""


@dataclass(frozen=True)
class VllmLine:
    """A command line that starts a vLLM server. Places are those of its half-decoded words."""

    unit: str
    words: tuple[str, ...]
    lead: int
    first: int
    """The first word of the server's arguments."""
    serve: bool
    """`vllm serve`, not the older module that knows the model by --model only."""
    by_python: bool
    seen: tuple[str, ...]
    """The arguments as vLLM gets them, as far as known."""
    origins: tuple[int, ...]
    """The word that each of them comes out of."""
    line: Line

    def mentions(self, name: str) -> tuple[Found, ...]:
        """Every mention of an option, in order."""
        return tuple(self._found(option) for option in self.line.of(name))

    def value(self, name: str) -> str | None:
        """The first value of the mention that counts."""
        return self.line.value(name)

    def unknown(self, text: str) -> bool:
        """Whether what was read still holds a specifier that only the host can fill in."""
        return bool(live_specifiers([text])) and any(word.endswith(text) for word in self.words)

    @property
    def positional(self) -> Found | None:
        """The model behind `vllm serve`, where it stands without --model."""
        if not self.serve or not self.line.positionals:
            return None
        at = self.line.positionals[0]
        return self._found(Option("model", at, at + 1, values=(self.seen[at],)))

    @property
    def stray(self) -> tuple[str, ...]:
        """Words that are neither the model nor part of an option."""
        return tuple(self.seen[at] for at in self.line.positionals[1 if self.serve else 0 :])

    def model(self) -> str | None:
        """The model, where the line names it. Behind `serve`, vLLM goes by the first --model, then by the place."""
        if not self.serve:
            return self.value("model")
        named = [one.option.values[0] for one in self.mentions("model") if one.option.values]
        place = self.positional
        return named[0] if named else place.option.values[0] if place else None

    def _found(self, option: Option) -> Found:
        origins = self.origins[option.start : option.end]
        inside = range(option.start, option.end)
        shared = any(origin in origins and at not in inside for at, origin in enumerate(self.origins))
        by_reference = is_option(self.seen[option.start]) and is_reference(self.words[origins[0]])
        return Found(option, origins[0], origins[-1] + 1, self.words[origins[0]], shared or by_reference)


def find_server(base: BaseCommand, env: Mapping[str, str]) -> VllmLine:
    """Take a command line apart. UsageError where it starts no vLLM server."""
    variables = {**base.variables, **env}
    first, serve, by_python = _arguments_begin(base, [_filled(word, variables) for word in base.words])
    return _read(base.unit, base.words, base.lead, (first, serve, by_python), variables)


def read_again(line: VllmLine, words: tuple[str, ...], lead: int, variables: Mapping[str, str]) -> VllmLine:
    """The line with other words: it begins as before, whatever its program is called now."""
    return _read(line.unit, words, lead, (lead + line.first - line.lead, line.serve, line.by_python), variables)


def _read(unit: str, words: tuple[str, ...], lead: int, form: tuple[int, bool, bool], variables: Mapping[str, str]) -> VllmLine:
    first, serve, by_python = form
    seen: list[str] = []
    origins: list[int] = []
    for at in range(first, len(words)):
        text = _filled(words[at], variables)
        seen += text
        origins += [at] * len(text)
    line = read_line(seen, model_first=serve)
    return VllmLine(unit, words, lead, first, serve, by_python, tuple(seen), tuple(origins), line)


def _filled(word: str, variables: Mapping[str, str]) -> tuple[str, ...]:
    """What a word becomes; a specifier that is not known here stays as it is written."""
    try:
        return expand_variables(expand_specifiers([word], SYSTEM_SPECIFIERS), variables)
    except Unresolved:
        return (word,)


def _arguments_begin(base: BaseCommand, texts: list[tuple[str, ...]]) -> tuple[int, bool, bool]:
    """Where the server's arguments begin, whether it is `serve`, and whether an interpreter is named."""
    plain = [" ".join(text) for text in texts]
    at = base.lead
    program = plain[at].rpartition("/")[2]
    by_python = bool(_PYTHON.fullmatch(program))
    if by_python:
        at += 1
        while at < len(plain) and plain[at].startswith("-") and plain[at] != "-m":
            at += 2 if plain[at] in _PYTHON_VALUE else 1
        if at < len(plain) and plain[at] == "-m":
            at += 1
    name = plain[at] if at < len(plain) else ""
    if by_python and (_API_SERVER.fullmatch(name) or name.endswith("/api_server.py")):
        return at + 1, False, True
    is_vllm = name.rpartition("/")[2] == "vllm" or (by_python and name in _COMMAND_LINE)
    if is_vllm and plain[at + 1 : at + 2] == ["serve"]:
        return at + 2, True, by_python
    raise UsageError(
        f"{base.unit} does not start `vllm serve`, as far as can be told",
        f"its command line begins with {' '.join(plain[base.lead : base.lead + 3])[:120]}",
        "name a unit of vLLM, or give the experiment engine.model instead of from_unit",
    )
