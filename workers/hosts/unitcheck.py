"""What is wrong or risky in a unit file, seen before anything is started."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from service.domain.reasons import Reason
from workers.execline import BadLine, CommandLine, Word, split_commands
from workers.expansion import (
    KNOWN_SPECIFIERS,
    PROVIDED,
    SYSTEM_SPECIFIERS,
    Unresolved,
    expand,
    live_specifiers,
    name_specifiers,
    references,
)
from workers.hosts.unitfile import Setting, UnitFile, read_unit

_RUNS = ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost", "ExecReload", "ExecCondition")

_DIRECTIVE = re.compile(
    r"((?:Exec|Restart|Timeout|Kill|Limit|Standard|Syslog|Environment|Start|Memory|CPU|IO|Tasks|OOM|Protect|Private|Watchdog|Log)[A-Za-z]*"
    r"|Type|User|Group|WorkingDirectory|RootDirectory|Nice|UMask|Slice|Delegate|PIDFile|RemainAfterExit|SuccessExitStatus|NoNewPrivileges"
    r"|WantedBy|RequiredBy|Alias|After|Before|Wants|Requires|Conflicts|Description|Documentation|RuntimeDirectory|StateDirectory)="
    r"|\[(?:Unit|Service|Install)\]\Z"
)
_OPTION = re.compile(r"--?[\w.-]+=")
_OF_A_SHELL = frozenset({">", ">>", "<", "|", "||", "&&", "&", "2>", "2>>", "2>&1", "&>", "1>&2", ">&2"})
_BEGINS_JSON = re.compile(r'\{ *["}]|\[ *["{\[\]\w-]')
_DECODE = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class Finding:
    """One thing to know. With a reason, starting the unit would not do what was meant."""

    code: str
    text: str
    reason: Reason | None = None
    argument: str | None = None


@dataclass(frozen=True)
class UnitReport:
    """What a unit would run, and what is wrong with it."""

    argv: tuple[str, ...]
    """As /proc would show it; with `%` or `$` still in it where those depend on the host; empty where nothing would run."""
    findings: tuple[Finding, ...]
    restart: str
    """Restart= as it takes effect."""

    @property
    def reason(self) -> Reason | None:
        """Why it should not be started; None where nothing speaks against it."""
        return next((finding.reason for finding in self.findings if finding.reason is not None), None)


def examine(files: Iterable[tuple[str, str]], unit: str = "x.service", variables: Mapping[str, str] | None = None) -> UnitReport:
    """Read a unit's files, given in the order in which they apply, as systemd would."""
    try:
        parsed = read_unit(files)
    except BadLine as error:
        return UnitReport((), (Finding("refused", str(error), Reason.UNIT_SYNTAX),), "no")
    specifiers = {**SYSTEM_SPECIFIERS, **name_specifiers(unit)}
    known = {**parsed.environment(specifiers), **(variables or {})}
    commands = [command for _, command in _commands(parsed, ("ExecStart",))]
    argv = _argv(commands[0], specifiers, known) if commands else ()
    return UnitReport(argv, findings(parsed, known), parsed.last("Restart") or "no")


def findings(unit: UnitFile, variables: Mapping[str, str]) -> tuple[Finding, ...]:
    """Everything worth knowing about a unit. `variables` are those whose value is known."""
    found = [*_refused(unit), *_swallowed(unit)]
    names = unit.environment_names() | set(variables) | PROVIDED
    for setting, command in _commands(unit, _RUNS):
        found += _odd_words(setting, command)
        if ":" not in command.prefixes:
            found += _unset(unit, setting, command, names)
    found += [Finding("ignored_line", f"systemd passes over a line: {line}") for line in unit.ignored]
    return (*found, *_settings(unit))


def _commands(unit: UnitFile, keys: Iterable[str]) -> Iterator[tuple[Setting, CommandLine]]:
    for key in keys:
        for setting in unit.every(key):
            try:
                yield from ((setting, command) for command in split_commands(setting.value))
            except BadLine:
                continue


def _argv(command: CommandLine, specifiers: Mapping[str, str], variables: Mapping[str, str]) -> tuple[str, ...]:
    words = command.texts[1:] if "@" in command.prefixes else command.texts
    if ":" in command.prefixes:
        words = tuple(word.replace("$", "$$") for word in words)
    try:
        return expand(words, specifiers, variables)
    except Unresolved:
        return words


def _refused(unit: UnitFile) -> Iterator[Finding]:
    """What systemd would not start."""
    for key in _RUNS:
        for setting in unit.every(key):
            try:
                split_commands(setting.value)
            except BadLine as error:
                yield Finding("refused", f"{_where(setting)}: systemd refuses it: {error}", Reason.UNIT_SYNTAX)
    count = sum(1 for _ in _commands(unit, ("ExecStart",)))
    if count > 1 and unit.last("Type") != "oneshot":
        text = f"{count} commands in ExecStart=, and systemd takes more than one only with Type=oneshot; an empty ExecStart= takes back"
        yield Finding("several_commands", f"{text} those of earlier files", Reason.UNIT_SYNTAX)
    if not count and not any(setting.section == "Service" and setting.key.startswith("Exec") for setting in unit.settings):
        yield Finding("no_command", "it has no ExecStart=", Reason.UNIT_SYNTAX)


def _swallowed(unit: UnitFile) -> Iterator[Finding]:
    """A backslash at the end of the last line makes the next directive an argument."""
    for setting, command in _commands(unit, _RUNS):
        for word in command.words[1:]:
            if _DIRECTIVE.match(word.text):
                text = f"{_where(setting)}: the line continuation before {word.text} swallowed the next directive, which is now an argument"
                todo = "; take away the backslash at the end of the line above it"
                yield Finding("swallowed_directive", text + todo, Reason.UNIT_SYNTAX, word.text)


def _odd_words(setting: Setting, command: CommandLine) -> Iterator[Finding]:
    where = _where(setting)
    for word in command.words:
        if word.odd_escape:
            yield Finding(
                "unknown_escape", f"{where}: systemd does not know an escape in {word.raw[:80]} and keeps its backslash", None, word.text
            )
        letters = live_specifiers([word.text])
        unknown = [letter for letter in letters if letter not in KNOWN_SPECIFIERS]
        if unknown:
            text = f"{where}: %{unknown[0]} in {word.text[:80]} is no specifier, and systemd refuses the unit; write %% for a percent sign"
            yield Finding("unknown_specifier", text, Reason.UNIT_SYNTAX, word.text)
        elif letters and "{" in word.text:
            text = f"{where}: systemd replaces %{letters[0]} inside {word.text[:80]}; write %% for a percent sign"
            yield Finding("specifier_in_json", text, None, word.text)
    shell = next((word.raw for word in command.words[1:] if word.raw in _OF_A_SHELL), None)
    if shell is not None and "|" not in command.prefixes:
        text = f"{where}: systemd runs no shell, so that {shell} is given to the program as an argument; use StandardOutput= or sh -c"
        yield Finding("shell_operator", text, Reason.UNIT_SYNTAX, shell)
    for text in _unquoted_json(command.words):
        told = f"{where}: {text[:120]} is not quoted, so that systemd takes its quotes away; put it between single quotes"
        yield Finding("unquoted_json", told, Reason.UNIT_SYNTAX, text)


def _unquoted_json(words: tuple[Word, ...]) -> Iterator[str]:
    """JSON that was written bare: as written it is JSON, as it arrives it is not."""
    text = " ".join(word.raw for word in words)
    begins = list(accumulate((len(word.raw) + 1 for word in words), initial=0))
    ends = {begin - 1 for begin in begins[1:]}
    done = 0
    for begin, word in zip(begins, words, strict=False):
        option = _OPTION.match(word.raw)
        start = begin + (option.end() if option else 0)
        if begin < done or not _BEGINS_JSON.match(text, start):
            continue
        try:
            end = _DECODE(text, start)[1]
        except ValueError:
            continue
        except RecursionError:
            return  # nobody nests a thousand brackets in a unit file, and each of them would be tried
        if end in ends and '"' in text[start:end]:
            yield text[begin:end]
            done = end


def _unset(unit: UnitFile, setting: Setting, command: CommandLine, names: frozenset[str]) -> Iterator[Finding]:
    files = ", ".join(entry.value for entry in unit.every("EnvironmentFile"))
    for name in references(command.texts[1:]):
        if name not in names:
            unless = f", unless {files} sets it" if files else ""
            text = (
                f"{_where(setting)}: ${name} is set nowhere, so that systemd puts nothing in its place{unless}; write $$ for a dollar sign"
            )
            yield Finding("unset_variable", text, None, f"${name}")


def _settings(unit: UnitFile) -> Iterator[Finding]:
    restart, kill, kind = unit.last("Restart"), unit.last("KillMode"), unit.last("Type")
    if restart not in {"", "no"}:
        text = f"Restart={restart} hides the first failure and loads the model again and again; a trial needs Restart=no"
        yield Finding("restart", text)
    if kill in {"process", "none"}:
        text = f"KillMode={kill} leaves the engine's worker processes alive after a stop, and they hold the GPU memory; use control-group"
        yield Finding("kill_mode", text)
    if kind in {"notify", "notify-reload"}:
        text = f"Type={kind} waits for a message that vLLM, SGLang and llama.cpp never send, until TimeoutStartSec= ends it; use exec"
        yield Finding("type_notify", text)
    if kind in {"forking", "oneshot"}:
        yield Finding("type", f"Type={kind} is not for a server that stays in the foreground; use exec")


def _where(setting: Setting) -> str:
    return f"{setting.path}:{setting.line}: {setting.key}="
