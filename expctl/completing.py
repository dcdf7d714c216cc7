"""What may come next on a command line: verbs, options, their values, and the ids and hosts of the service that runs.

A shell asks at every press of a key, so the service is asked for a second at most, and whatever goes wrong is silence.
"""

from __future__ import annotations

import importlib
import keyword
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from types import FrameType
from typing import Any, NamedTuple, get_args

from expctl.globals import GLOBAL_OPTIONS, options
from expctl.main import VERBS
from service.domain.errors import ExpctlError

WITHIN_S = 1.0
"""As long as the service may take."""
MOST = 40
"""Ids that are offered, the newest first."""
FILES = ":files"
"""Said to the shell: offer files."""
GLOBALS = {name.split(", ")[-1].split(" ")[0]: what.replace("`", "") for name, what in GLOBAL_OPTIONS.items()} | {"--help": "what there is"}
FLAGS = frozenset(GLOBALS) - {"--server", "--fields", "--help"}

ID_PARAMETERS = frozenset({"experiment", "experiment_id", "ids", "base"})
FILE_PARAMETERS = frozenset({"file", "files", "output", "prompts", "data", "keep", "before"})
WAITING, OPEN = ("held", "queued"), ("held", "queued", "running", "stopping")
STATUSES: dict[str, tuple[str, ...]] = {
    "cancel": OPEN,
    "watch": OPEN,
    "hold": ("queued",),
    "release": ("held",),
    "move": WAITING,
    "retry": ("finished",),
    "results": ("finished",),
    "compare": ("finished",),
    "baseline": ("finished",),
}
"""Verb -> the experiments that it makes sense for; every other verb takes all."""


class Offer(NamedTuple):
    """One word that may come next, and what it is."""

    word: str
    what: str = ""


class TookTooLong(Exception):
    """The service did not answer in time."""


def offers(words: Sequence[str]) -> list[Offer]:
    """What may stand in place of the last of these words, which follow the command's name."""
    *before, last = list(words) or [""]
    last = "" if last == "=" else last
    # What stands before the part that is completed: bash cuts at =, other shells do not, and none does at commas.
    option, sign, rest = last.partition("=") if last.startswith("--") and "=" in last else ("", "", last)
    before += [option] if sign else []
    listed = before[-1:] == ["--fields"]
    kept, comma, begun = rest.rpartition(",") if listed else ("", "", rest)
    given = kept.split(",") if listed else []
    found = [one for one in _offers(_plain(before), begun) if one.word == FILES or (one.word.startswith(begun) and one.word not in given)]
    return [one if one.word == FILES else Offer(option + sign + kept + comma + one.word, one.what) for one in found]


def _plain(words: Sequence[str]) -> list[str]:
    """Without the signs at which bash cuts `--host=gpu-01`, and without global options; --server is heeded."""
    whole = [part for word in words if word != "=" for part in (word.split("=", 1) if word.startswith("--") else [word])]
    rest: list[str] = []
    for place, word in enumerate(whole):
        previous = whole[place - 1] if place else ""
        if previous == "--server":
            options.server = word
        elif word in FLAGS or (word == "--server" and place + 1 < len(whole)):
            continue
        else:
            rest.append(word)
    return rest


def _offers(before: list[str], last: str) -> Iterator[Offer]:
    if before and before[-1] == "--server":
        return
    if not before:
        yield from _globals(last)
        yield from (Offer(verb, what) for group in VERBS.values() for verb, what in group.items())
        return
    verb, *rest = before
    if not any(verb in group for group in VERBS.values()):
        return
    command = _command(verb)
    if rest[-1:] == ["--fields"]:
        yield from _fields(verb, rest)
        return
    names = getattr(command, "commands", None)
    if names is not None:
        inner = names.get(rest[0]) if rest else None
        if inner is None:
            yield from (Offer(name, _brief(one.help)) for name, one in names.items()) if not rest else ()
            return
        yield from _within(f"{verb} {rest[0]}", inner, rest[1:], last)
    else:
        yield from _within(verb, command, rest, last)


def _globals(last: str) -> Iterator[Offer]:
    if last.startswith("-"):
        yield from (Offer(name, what) for name, what in GLOBALS.items())


def _command(verb: str) -> Any:
    import typer.main  # noqa: PLC0415 - the first word needs none of it

    module = importlib.import_module(f"expctl.commands.{verb}_" if keyword.iskeyword(verb) else f"expctl.commands.{verb}")
    return typer.main.get_command(module.app)


def _fields(verb: str, rest: list[str]) -> Iterator[Offer]:
    from expctl.fields import OF_VERB  # noqa: PLC0415 - rarely wanted

    for name in OF_VERB.get(verb) or OF_VERB.get(f"{verb} {rest[0]}") or ():
        yield Offer(name)


def _within(verb: str, command: Any, rest: list[str], last: str) -> Iterator[Offer]:
    """What may follow a verb, or one of its own verbs."""
    by_option = {name: one for one in command.params if one.param_type_name == "option" for name in (*one.opts, *one.secondary_opts)}
    asked = by_option.get(rest[-1]) if rest else None
    if asked is not None and not asked.is_flag:
        yield from _values(verb, asked, [])
        return
    if last.startswith("-"):
        yield from (Offer(max(one.opts, key=len), _brief(one.help)) for one in command.params if one.param_type_name == "option")
        yield from _globals(last)
        return
    given = _arguments(rest, by_option)
    places = [one for one in command.params if one.param_type_name == "argument"]
    place = next((one for number, one in enumerate(places) if number == len(given) or (one.nargs == -1 and number <= len(given))), None)
    if place is not None:
        yield from _values(verb, place, given)


def _arguments(rest: list[str], by_option: dict[str, Any]) -> list[str]:
    """The words that are neither options nor their values."""
    found, skip = [], False
    for word in rest:
        if skip:
            skip = False
        elif word.startswith("-") and word != "-":
            skip = word in by_option and not by_option[word].is_flag
        else:
            found.append(word)
    return found


def _values(verb: str, parameter: Any, given: list[str]) -> Iterator[Offer]:
    if choices := _choices(parameter):
        yield from map(Offer, choices)
    elif verb == "help":
        yield from _to_explain() if not given else ()
    elif parameter.name in FILE_PARAMETERS and verb != "move":
        yield Offer(FILES)
    elif parameter.name == "host" or (verb.startswith("host ") and verb != "host add" and parameter.name == "name"):
        yield from _ask(_hosts)
    elif parameter.name in ID_PARAMETERS or verb == "move":
        first = verb.partition(" ")[0]
        yield from (one for one in _ask(lambda client: _ids(client, STATUSES.get(first, ()))) if one.word not in given)


def _to_explain() -> Iterator[Offer]:
    from expctl.topics import TOPICS  # noqa: PLC0415 - rarely wanted

    yield from (Offer(name, topic.about) for name, topic in TOPICS.items())
    yield from (Offer(verb, what) for group in VERBS.values() for verb, what in group.items() if verb != "help")


def _choices(parameter: Any) -> list[str]:
    """The members of an enum that a parameter is, wherever this version of typer keeps it."""
    known = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    found = [member.value for one in _parts(known) if isinstance(one, type) and issubclass(one, Enum) for member in one]
    return [str(one) for one in found or getattr(getattr(parameter, "type", None), "choices", None) or ()]


def _parts(annotation: Any) -> Iterator[Any]:
    """A type and all that it is made of, such as the Status of `list[Status] | None`."""
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _ask(what: Any) -> list[Offer]:
    from expctl.client import Client  # noqa: PLC0415 - only where the service is asked

    try:
        with _bounded(), Client(options.server, timeout_s=WITHIN_S) as client:
            client.throttled_s = 0.0
            return list(what(client))
    except (ExpctlError, TookTooLong, LookupError, TypeError):  # the latter two: what answers is no expctl service
        return []


def _hosts(client: Any) -> Iterator[Offer]:
    for host in client.hosts():
        yield Offer(host.name, "blocked" if host.blocked else "busy" if host.busy else "idle")


def _ids(client: Any, statuses: tuple[str, ...]) -> Iterator[Offer]:
    for one in client.experiments(statuses=statuses, limit=MOST):
        yield Offer(str(one.id), f"{one.name}, {one.status_text.partition(':')[0]}")


@contextmanager
def _bounded() -> Iterator[None]:
    """TookTooLong when the time is up, whatever is waited for: names of hosts are looked up outside of any timeout of ours."""

    def up(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, up)
    signal.setitimer(signal.ITIMER_REAL, WITHIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _brief(text: str | None) -> str:
    """The first sentence."""
    return " ".join((text or "").split("\n\n", 1)[0].split()).split(". ", 1)[0].removesuffix(".")
