"""Change arguments of a vLLM command line that somebody else wrote, and leave every other word as it stands.

Words are half decoded (see `workers.execline`): `%` and `$` of the original stay alive, what is put in is literal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.domain.errors import UsageError
from service.domain.spec_base import ArgValue
from workers.basecommand import BaseCommand
from workers.engines.line_editor import SPECULATION, Change, Editor, full_name
from workers.engines.vllm_line import VllmLine, find_server, read_again

DEFAULT_PORT = 8000


@dataclass(frozen=True)
class Wanted:
    """What an experiment changes; None is: leave it."""

    args: Mapping[str, ArgValue] = field(default_factory=dict)
    """true --flag, false --no-flag, null taken out, dict or list JSON."""
    model: str | None = None
    served_model_name: str | None = None
    port: int | None = None
    executable: str | None = None
    speculative: str | None = None
    """JSON."""
    own_api_key: bool = False
    """The key comes in the environment, so that none in the line may speak against it."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Merged:
    """The new command line, and what can be told from it."""

    words: tuple[str, ...]
    argv: tuple[str, ...]
    """What /proc is expected to show; empty where it cannot be known beforehand."""
    model_id: str
    """The id that requests name; empty where the line does not tell."""
    port: int
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]


def merge(base: BaseCommand, wanted: Wanted) -> Merged:
    """The command line of `base` with what is wanted. UsageError where it is not vLLM's, or cannot be changed so."""
    original = find_server(base, wanted.env)
    editor = Editor(original)
    editor.environment(wanted.env)
    if wanted.executable is not None:
        editor.executable(wanted.executable)
    if wanted.model is not None:
        editor.model(wanted.model)
    editor.model_to_front()
    for name, value in _arguments(wanted).items():
        editor.argument(name, value)
    lead, words = editor.result()
    line = read_again(original, words, lead, {**base.variables, **wanted.env})
    return Merged(
        words=words,
        argv=base.argv(words, lead, wanted.env),
        model_id=_model_id(line),
        port=_port(line, wanted),
        changes=tuple(editor.changes),
        warnings=tuple(dict.fromkeys((*base.warnings, *editor.warnings, *_warnings(line)))),
    )


def _arguments(wanted: Wanted) -> dict[str, ArgValue]:
    """Everything that is said by an option, the experiment's own keys last."""
    made = dict(wanted.args)
    if wanted.served_model_name is not None:
        made["served-model-name"] = wanted.served_model_name
    if wanted.port is not None:
        # On a Unix socket it would listen to nothing else.
        made |= {"port": wanted.port, "uds": None}
    if wanted.own_api_key:
        made["api-key"] = None
    speculation = {name for name in made if full_name(name) == ("speculative-config", "")}
    if wanted.speculative is not None:
        made = {name: value for name, value in made.items() if name not in speculation} | {"speculative-config": wanted.speculative}
    if wanted.speculative is not None or speculation:
        given = {full_name(name)[0] for name in made}
        made |= dict.fromkeys(name for name in SPECULATION if name not in given)
    return made


def _model_id(line: VllmLine) -> str:
    served = line.value("served-model-name")
    if served is None and line.value("config") is not None:
        return ""
    model = served or line.model() or ""
    return "" if line.unknown(model) else model


def _port(line: VllmLine, wanted: Wanted) -> int:
    if wanted.port is not None:
        return wanted.port
    text, config = line.value("port"), line.value("config")
    if text is None and config is None:
        return DEFAULT_PORT
    if text is None or not text.isascii() or not text.isdecimal():
        why = f"it stands in {config}, if anywhere" if text is None else f"--port is {text}"
        raise UsageError(f"engine.keep_port: the port of {line.unit} cannot be told", why, "write engine.port instead")
    return int(text)


def _warnings(line: VllmLine) -> list[str]:
    found = []
    config = line.value("config")
    if config is not None:
        found.append(f"{line.unit} reads {config}: what stands there is not seen here; arguments in the command line win over it")
    if line.stray:
        found.append(f"these words of the command line belong to no option: {' '.join(line.stray)}")
    if line.mentions("api-key"):
        found.append(f"{line.unit} has an API key in its command line, which requests will need: name it by engine.api_key")
    return found
