"""Edits to the words of a vLLM command line, one argument at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from service.domain.errors import UsageError
from service.domain.spec_base import ArgValue
from workers.engines.vllm_arguments import argument
from workers.engines.vllm_line import Found, VllmLine
from workers.engines.vllm_options import canonical
from workers.execline import literal

SECRET = frozenset({"api-key", "hf-token"})
SPECULATION = ("spec-method", "spec-model", "spec-tokens")
"""Short forms of parts of --speculative-config: beside it, vLLM refuses them."""


@dataclass(frozen=True)
class Change:
    """One argument before and after; None where it is not there. Secrets are not shown."""

    flag: str
    before: str | None
    after: str | None


class Editor:
    """Edits by place, so that none moves the place of another."""

    def __init__(self, line: VllmLine) -> None:
        self._line = line
        self._words: list[tuple[str, ...]] = [(word,) for word in line.words]
        self._appended: list[str] = []
        self.changes: list[Change] = []
        self.warnings: list[str] = []

    def result(self) -> tuple[int, tuple[str, ...]]:
        """How many words now lead up to the program, and all words."""
        lead = sum(len(words) for words in self._words[: self._line.lead])
        return lead, (*(word for words in self._words for word in words), *self._appended)

    def environment(self, env: Mapping[str, str]) -> None:
        """`env A=b` in front of the program would win over the experiment's own variable, so it goes."""
        for at, word in enumerate(self._line.words[: self._line.lead]):
            name, equals, _ = word.partition("=")
            if equals and name in env:
                self._words[at] = ()
                self.changes.append(Change(f"env {name}", "in the command line", "in the environment"))

    def executable(self, program: str) -> None:
        """Another vLLM, or another Python where the line names one."""
        line = self._line
        before = line.words[line.lead]
        if line.by_python and not program.rpartition("/")[2].startswith("python"):
            raise UsageError(
                f"engine.executable: {line.unit} starts vLLM as an argument of {before}",
                f"{program} cannot stand in the place of a Python interpreter",
                "name a Python interpreter, or leave engine.executable out",
            )
        # systemd expands no `$` in the program that it starts itself.
        word = literal(program) if line.lead else program.replace("%", "%%")
        if word != before:
            self._words[line.lead] = (word,)
            self.changes.append(Change("program", before, program))

    def model(self, model: str) -> None:
        """Another model, in the place where the line has one."""
        line = self._line
        if not line.serve:
            self.argument("model", model)
        elif line.model() != model:
            self.changes.append(Change("model", line.model(), model))
            self._model_first(literal(model))

    def model_to_front(self) -> None:
        """Right behind `serve`, no option whose neighbours change can take the model for a value of its own."""
        place = self._line.positional
        untouched = place is not None and self._words[place.at] == (self._line.words[place.at],)
        if place is not None and place.at > self._line.first and untouched and not place.fixed and not self._line.mentions("model"):
            self._model_first(self._line.words[place.at])

    def _model_first(self, word: str) -> None:
        line = self._line
        places = (*line.mentions("model"), *([line.positional] if line.positional else []))
        self._check_fixed("model", [one for one in places if one.fixed])
        for place in places:
            self._remove(place)
        self._words[line.first - 1] = (line.words[line.first - 1], word)

    def argument(self, name: str, value: ArgValue) -> None:
        """Set an option, or with None take it out."""
        full, keys = full_name(name)
        every = self._line.mentions(full)
        # A whole value replaces the dotted ones too, since vLLM lets those win.
        mentions = [one for one in every if not keys or one.option.keys == keys]
        fixed = [one for one in mentions if one.fixed]
        editable = [one for one in mentions if not one.fixed]
        new = argument(name, value)
        if not new or any(one.option.keys for one in fixed):
            self._check_fixed(full, fixed)
        self._doubts(full, keys, new, every)
        if new and not fixed and len(editable) == 1 and _says(editable[0], new, value):
            return
        for mention in editable:
            self._remove(mention)
        self._place(new, editable, fixed)
        before, after = _shown(mentions[-1]) if mentions else None, _told(new, value)
        if full in SECRET:
            before, after = before and "***", after and "***"
        if before is not None or after is not None:
            self.changes.append(Change(f"--{full}.{keys}" if keys else f"--{full}", before, after))

    def _place(self, new: list[str], editable: list[Found], fixed: list[Found]) -> None:
        words = tuple(map(literal, new))
        if editable and not fixed:
            self._words[editable[-1].at] = words
        else:
            # The last mention wins, and one of them cannot be changed.
            self._appended += words

    def _remove(self, mention: Found) -> None:
        for at in range(mention.at, mention.end):
            self._words[at] = ()

    def _check_fixed(self, name: str, fixed: list[Found]) -> None:
        if not fixed:
            return
        origin = fixed[0].origin
        raise UsageError(
            f"--{name} of {self._line.unit} cannot be changed by itself",
            f"it comes out of {origin} in the unit's command line",
            f"set {origin.lstrip('$')} in engine.env instead",
        )

    def _doubts(self, name: str, keys: str, new: list[str], every: tuple[Found, ...]) -> None:
        if keys and new and any(not one.option.keys for one in every):
            told = f"--{name}.{keys} makes vLLM forget the rest of --{name} in the unit's line"
            self.warnings.append(f"{told}; write the whole of it in engine.args")
        config = self._line.value("config")
        if not new and not every and config is not None and name not in {"uds", "api-key", *SPECULATION}:
            self.warnings.append(f"--{name} is not in the unit's line; where {config} sets it, it stays")


def full_name(name: str) -> tuple[str, str]:
    """A key of engine.args as an option's name, and the keys after its first dot."""
    if name == "O":
        return "optimization-level", ""
    return canonical(f"-{name}" if len(name) == 1 else name)


def _says(mention: Found, new: list[str], value: ArgValue) -> bool:
    """Whether a mention says already what is wanted."""
    option = mention.option
    if isinstance(value, bool):
        return not option.values and option.negated is not value
    if len(option.values) != 1 or mention.option.keys != full_name(new[0].partition("=")[0].lstrip("-"))[1]:
        return False
    text = _value(new)
    return option.values[0] == text or (_json(text) is not None and _json(option.values[0]) == _json(text))


def _value(new: list[str]) -> str:
    """The value in `--flag value` or `--flag=value`."""
    return new[0].partition("=")[2] if len(new) == 1 else new[1]


def _told(new: list[str], value: ArgValue) -> str | None:
    if not new:
        return None
    return ("on" if value else "off") if isinstance(value, bool) else _value(new)


def _shown(mention: Found) -> str:
    option = mention.option
    return " ".join(option.values) if option.values else "off" if option.negated else "on"


def _json(text: str) -> object:
    """A JSON object or list, else None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None
