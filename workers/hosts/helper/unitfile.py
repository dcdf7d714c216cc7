"""Unit files as systemd reads them, and what of one may stand in a copy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from workers.hosts.helper.refusals import UNIT_SYNTAX, Refused

NEVER_COPIED = {
    "Unit": {
        # A second name would make the copy answer for the original.
        *("Alias", "SourcePath"),
        # An experiment that fails, as many do, must page nobody, start nothing and reboot nothing.
        *("OnFailure", "OnSuccess", "OnFailureJobMode", "OnSuccessJobMode", "OnFailureIsolate"),
        *("FailureAction", "SuccessAction", "FailureActionExitStatus", "SuccessActionExitStatus", "RebootArgument"),
        *("StartLimitAction", "JobTimeoutAction", "JobTimeoutRebootArgument"),
        # Units that the original pulls along or stops. Ours stops what the request names, and nothing else.
        *("Conflicts", "Upholds", "PropagatesStopTo", "StopPropagatedFrom", "PropagatesReloadTo", "ReloadPropagatedFrom"),
        # Settings under which systemd would not start it, or would stop it again.
        *("RefuseManualStart", "RefuseManualStop", "StopWhenUnneeded"),
        # What the last block says anew.
        "Description",
    },
    "Service": {
        # Names that there is one of on a host.
        *("Sockets", "BusName", "USBFunctionDescriptors", "USBFunctionStrings"),
        *("FailureAction", "SuccessAction", "StartLimitAction", "RebootArgument"),
        # They hold against Restart=no, and a restart would hide a crash behind an hour of loading.
        *("RestartForceExitStatus", "Restart", "RestartMode"),
        # They keep lines from the journal that we read.
        *("StandardInput", "StandardOutput", "StandardError", "LogNamespace", "LogLevelMax", "LogFilterPatterns"),
        *("LogRateLimitIntervalSec", "LogRateLimitBurst", "StandardInputText", "StandardInputData"),
        # What the last block says anew.
        *("ExecStart", "RemainAfterExit", "SendSIGKILL"),
    },
}
"""[Install] and every section but these two are not copied at all."""

KILL_MODES = ("control-group", "mixed")
"""With any other, processes that hold GPU memory outlive the unit."""
EXEC = re.compile(r"Exec[A-Z][A-Za-z]*")
YES = ("1", "yes", "y", "true", "t", "on")
SAFE_VALUE = re.compile(r"[A-Za-z0-9:_./@-]*")
"""What a specifier may stand for: nothing that means something in any place of a unit file."""


def settings(text: str, path: str) -> Iterator[tuple[str, str, str]]:
    """(section, name, value) of each line, continued ones joined. Refused where versions of systemd read the text differently."""
    section = ""
    for line in _logical_lines(text, path):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line.startswith(".include"):
            raise Refused(UNIT_SYNTAX, f"{path} has .include, which is not followed")
        else:
            name, equals, value = line.partition("=")
            if equals:
                yield section, name.rstrip(), value.lstrip()


def _logical_lines(text: str, path: str) -> Iterator[str]:
    if "\0" in text or "\r" in text:
        raise Refused(UNIT_SYNTAX, f"{path} has carriage returns or NULs, which not every systemd takes for the end of a line")
    begun = ""
    for line in text.split("\n"):
        if line.lstrip(" \t").startswith(("#", ";")):  # between continued lines, too
            continue
        # systemd: an odd number of backslashes at the end continues the line, and the last of them becomes a blank.
        whole = begun + (line.lstrip(" \t") if not begun else line)
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            begun = whole[:-1] + " "
            continue
        begun = ""
        if whole.strip(" \t"):
            yield whole.strip(" \t")
    if begun.strip(" \t"):
        yield begun.strip(" \t")


def merged(files: Sequence[Sequence[str]]) -> list[tuple[str, str, str]]:
    """The settings of a unit's file and its drop-ins, in the order in which they apply.

    Drop-ins for every service are left out: they apply to the copy by themselves.
    """
    return [
        one
        for path, text in files
        if "/service.d/" not in path
        for one in settings(text, path)
        if one[0] in NEVER_COPIED  # [Install] is not among them
    ]


def copied(every: Sequence[tuple[str, str, str]], specifiers: Mapping[str, str]) -> dict[str, list[str]]:
    """The lines of [Unit] and [Service] that a copy keeps, with the original's name where they speak of it."""
    kept: dict[str, list[str]] = {section: [] for section in NEVER_COPIED}
    forking = _last(every, "Type") == "forking"
    for section, name, value in every:
        if name in NEVER_COPIED[section]:
            continue
        # Only with Type=forking is the file what systemd learns the main process from.
        if name == "PIDFile" and not forking:
            continue
        if name == "KillMode" and value not in KILL_MODES:
            continue
        kept[section].append(f"{name}={named(value, specifiers)}")
    return kept


def named(value: str, specifiers: Mapping[str, str]) -> str:
    """A value with the specifiers that depend on a unit's own name replaced by what they mean in the original."""

    def replacement(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter not in specifiers:  # %% among them
            return match.group(0)
        meant = specifiers[letter]
        if SAFE_VALUE.fullmatch(meant) is None:
            raise Refused(UNIT_SYNTAX, f"%{letter} of the unit means {meant!r}, which cannot be put into a copy")
        return meant

    return re.sub(r"%(.)", replacement, value)


def specifiers_of(unit: str, path: str) -> dict[str, str]:
    """What the specifiers that depend on a unit's own name and file stand for."""
    whole = unit.rpartition(".")[0]
    prefix, at, instance = whole.partition("@")
    last = prefix.rpartition("-")[2]
    return {
        "n": unit,
        "N": whole,
        "p": prefix,
        "P": _unescaped(prefix),
        "i": instance,
        "I": _unescaped(instance),
        "j": last,
        "J": _unescaped(last),
        "f": "/" + _unescaped(instance if at else prefix).lstrip("/"),
        "y": path,
        "Y": path.rpartition("/")[0],
    }


def _unescaped(text: str) -> str:
    """As systemd-escape --unescape. Bytes above ASCII stay escaped: no specifier with a backslash is put into a copy anyway."""
    return re.sub(r"\\x([0-7][0-9a-f])", lambda match: chr(int(match.group(1), 16)), text.replace("-", "/"))


def _last(every: Sequence[tuple[str, str, str]], name: str) -> str:
    values = [value for section, key, value in every if section == "Service" and key == name]
    return values[-1] if values else ""


def privileged(every: Sequence[tuple[str, str, str]]) -> str:
    """The line by which a part of the unit runs as root although the unit does not; empty where there is none.

    In doubt it is one: quotes and escapes may hide a prefix, so anything before the path's first slash counts.
    """
    for section, name, value in every:
        if section != "Service":
            continue
        if name == "PermissionsStartOnly" and value.lower() in YES:
            return f"{name}={value}"
        if name == "PAMName" and value:  # PAM's modules run as root and see the unit's environment
            return f"{name}={value}"
        if EXEC.fullmatch(name) and name != "ExecStart" and any(map(_elevated, _programs(value))):
            return f"{name}={value}"
    return ""


def _programs(value: str) -> list[str]:
    words = value.split()
    return [word for place, word in enumerate(words) if place == 0 or words[place - 1] == ";"]


def _elevated(word: str) -> bool:
    return any(sign in word.partition("/")[0] for sign in "+!|\\")


def start_prefixes(every: Sequence[tuple[str, str, str]], unit: str) -> str:
    """The prefix characters of the one ExecStart. Refused where there is none, or several."""
    commands: list[str] = []
    for section, name, value in every:
        if section == "Service" and name == "ExecStart":
            commands = [*commands, value] if value else []
    if len(commands) != 1 or len(_programs(commands[0])) != 1:
        raise Refused(UNIT_SYNTAX, f"{unit} must have exactly one ExecStart to be forked, it has {len(commands)}")
    match = re.match(r"[\"']?([-@:+!|]*)", commands[0])
    return match.group(1) if match else ""
