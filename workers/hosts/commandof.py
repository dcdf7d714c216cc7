"""From an existing unit to the command line that a fork of it may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.domain.reasons import Reason
from workers.basecommand import BaseCommand
from workers.execline import BadLine, CommandLine, split_commands, split_words
from workers.expansion import SYSTEM_SPECIFIERS, Unresolved, expand_specifiers, expand_variables, name_specifiers, pin_specifiers
from workers.hosts.base import HostError, UnitSource
from workers.hosts.unitcheck import findings
from workers.hosts.unitfile import UnitFile, read_unit
from workers.hosts.wrappers import hidden, skip_transparent


def command_of(source: UnitSource) -> BaseCommand:
    """The words of a unit's ExecStart=, as they can be changed one by one.

    Raises HostError where there is none or more than one command, where systemd would refuse it, and where the program is
    hidden behind a shell, a container or another program that starts it as a child. `env`, `nice`, `ionice`, `taskset`,
    `numactl`, `stdbuf` and `nohup` are passed over: they become the program.
    """
    unit = _read(source)
    line = _only_command(source, unit)
    _, variables = _meanings(source, unit)
    found = findings(unit, variables)
    for finding in found:
        if finding.reason is not None:
            raise HostError(finding.reason, f"{source.name} cannot be forked: {finding.text}")
    warnings = tuple(finding.text for finding in found)
    if source.properties.get("NeedDaemonReload") == "yes":
        warnings += (f"{source.name} was edited after systemd read it: the fork takes the files as they are now",)
    # The fork has another name, and another file.
    words = pin_specifiers(_plain(source, line), _specifiers(source))
    return BaseCommand(unit=source.name, words=words, lead=skip_transparent(source.name, words), variables=variables, warnings=warnings)


def shown_command(source: UnitSource) -> tuple[str, ...]:
    """What a unit runs, for reading only: as its process shows it; where that is but a title or nothing, as its files say.

    What is hidden behind a shell or a container is in there as it is written. Empty where nothing can be told.
    """
    return source.live_argv if is_command_line(source.live_argv) else _written(source)


def is_command_line(argv: Sequence[str]) -> bool:
    """Whether these are a process's arguments. One that has given itself a title shows that alone, and so does one without arguments."""
    return any(argv[1:])


def unset_variables(source: UnitSource) -> frozenset[str]:
    """Names that UnsetEnvironment= takes from whatever sets them. HostError where the files cannot be read."""
    values = [setting.value for setting in _read(source).every("UnsetEnvironment")]
    return frozenset(word.text.partition("=")[0] for value in values for word in split_words(value))


def _written(source: UnitSource) -> tuple[str, ...]:
    try:
        unit = _read(source)
        texts = [text for setting in unit.every("ExecStart") for command in split_commands(setting.value) for text in command.texts]
    except (HostError, BadLine):
        return ()
    specifiers, variables = _meanings(source, unit)
    return tuple(word for text in texts for word in expand_variables(_told([text], specifiers), variables))


def _told(words: Sequence[str], specifiers: Mapping[str, str]) -> Sequence[str]:
    """A specifier that only the host can fill in stays as it is written."""
    try:
        return expand_specifiers(words, specifiers)
    except Unresolved:
        return words


def _meanings(source: UnitSource, unit: UnitFile) -> tuple[dict[str, str], dict[str, str]]:
    """What `%` and `$` become; the living process's variables first."""
    specifiers = {**SYSTEM_SPECIFIERS, **_specifiers(source)}
    return specifiers, {**unit.environment(specifiers), **source.variables}


def _specifiers(source: UnitSource) -> dict[str, str]:
    """What `%` means in this unit and would mean something else in another."""
    # An alias is only another name for the file; systemd fills in the name of the file.
    name = source.properties.get("Id") or source.name
    fragment = source.properties.get("FragmentPath") or (source.files[0][0] if source.files else "")
    return {**name_specifiers(name), "y": fragment, "Y": fragment.rpartition("/")[0]}


def _read(source: UnitSource) -> UnitFile:
    stem = source.name.rpartition(".")[0]
    if stem.endswith("@"):
        raise HostError(
            Reason.UNIT_SYNTAX,
            f"{source.name} is a template and runs nothing by itself; name an instance of it, such as {stem}NAME.service",
        )
    if not source.files:
        raise HostError(Reason.UNIT_SYNTAX, f"{source.name} has no unit file on the host; see `systemctl cat {source.name}`")
    try:
        return read_unit(source.files)
    except BadLine as error:
        raise HostError(Reason.UNIT_SYNTAX, str(error)) from error


def _only_command(source: UnitSource, unit: UnitFile) -> CommandLine:
    commands: list[CommandLine] = []
    for setting in unit.every("ExecStart"):
        try:
            commands += split_commands(setting.value)
        except BadLine as error:
            raise HostError(Reason.UNIT_SYNTAX, f"{setting.path}:{setting.line}: systemd refuses this ExecStart=: {error}") from error
    if not commands:
        raise HostError(Reason.UNIT_SYNTAX, f"{source.name} has no ExecStart=, so there is no command line to change")
    if len(commands) > 1:
        programs = ", ".join(command.texts[0] for command in commands)
        raise HostError(
            Reason.UNIT_SYNTAX,
            f"{source.name} cannot be forked: it runs {len(commands)} commands one after the other ({programs});"
            " leave the engine's in ExecStart=, and move the others to ExecStartPre= or to units of their own",
        )
    return commands[0]


def _plain(source: UnitSource, line: CommandLine) -> tuple[str, ...]:
    """The words as they mean the same without any prefix."""
    if "|" in line.prefixes:
        raise hidden(source.name, "the user's shell (prefix `|`)")
    if "+" in line.prefixes or "!" in line.prefixes:
        raise HostError(
            Reason.UNIT_SYNTAX,
            f"{source.name} cannot be forked: the prefix `{line.prefixes}` runs its program with all privileges, whatever User= says;"
            " take the prefix away, or give the experiment engine.model instead of from_unit",
        )
    words = line.texts
    # `-` only forgives a failure, which an experiment must see; `@` only shows another argv[0].
    if "@" in line.prefixes:
        words = (words[0], *words[2:])
    if ":" in line.prefixes:
        words = (words[0], *(word.replace("$", "$$") for word in words[1:]))
    return words
