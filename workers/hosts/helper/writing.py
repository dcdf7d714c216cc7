"""write-unit and remove-unit."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from workers.hosts.helper.compose import Order, check_folder, check_program, check_variables, environment_file, forked, rendered
from workers.hosts.helper.config import is_root, uid_of
from workers.hosts.helper.context import Context
from workers.hosts.helper.files import make_folder, read_ours, remove, write_ours
from workers.hosts.helper.observing import seen_path, status
from workers.hosts.helper.refusals import PERMISSION_DENIED, STALE_UNIT_DEFINITION, UNIT_SYNTAX, Misuse, Refused
from workers.hosts.helper.request import LISTED_UNIT, OUR_UNIT, SHA256, USER, Fields, plain
from workers.hosts.helper.sources import Source, read_source
from workers.hosts.helper.systemd import living
from workers.hosts.helper.unitfile import YES, copied, merged, named, privileged, specifiers_of, start_prefixes

ALLOWED_PREFIXES = "-:@"
HARMLESS_CAPABILITIES = ("CAP_IPC_LOCK", "CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_NET_BIND_SERVICE")
"""Capabilities that a unit may hand to a program that somebody else chooses. Most others lead to root."""
PROGRAM = re.compile(r"([-@:+!|]*)(.*)", re.DOTALL)


def write_unit(context: Context, fields: Fields) -> dict[str, Any]:
    """Write a unit's file and environment, and have systemd read them. A running unit is not changed under its feet."""
    unit = context.config.our_unit(fields.text("unit", OUR_UNIT))
    fork, argv = fields.take("fork"), fields.texts("argv")
    env, cwd = fields.table("env"), fields.take("cwd")
    user = fields.text_or_none("user", USER)
    conflicts = tuple(_conflict(context, one, unit) for one in fields.texts("conflicts"))
    once = fields.flag("once")
    fields.done()
    if cwd is not None:
        check_folder(plain(cwd, "cwd"))
    check_variables(env)
    environment_path = f"/run/expctl-host/{unit}.env" if env else None
    if fork is not None:
        text, runs_as = _forked(context, fork, Order(unit, (), env, cwd, user, conflicts), environment_path)
    elif argv:
        order = Order(unit, tuple(argv), env, cwd, _user_of_rendered(context, user), conflicts, once)
        text, runs_as = rendered(order, environment_path), order.user or "root"
    else:
        raise Misuse("either argv or fork must be given")
    _check_exists(runs_as)
    return {**_written(context, unit, text, env), "user": runs_as}


def _conflict(context: Context, name: str, unit: str) -> str:
    """Only what may be stopped anyway: a conflict stops the other unit."""
    if name == unit:
        raise Refused(PERMISSION_DENIED, f"{unit} cannot conflict with itself")
    return name if OUR_UNIT.fullmatch(name) else context.config.parked_unit(name)


def _user_of_rendered(context: Context, user: str | None) -> str | None:
    if user is None and context.config.run_as:
        user = context.config.run_as[0]
    context.config.check_user(user or "", context.caller)
    return user


def _check_exists(user: str) -> None:
    if not user.isdigit() and uid_of(user) is None:
        raise Refused(UNIT_SYNTAX, f"there is no user {user!r} on this host")


def _forked(context: Context, value: Any, order: Order, environment_path: str | None) -> tuple[str, str]:
    fields = Fields(value, "fork")
    name = context.config.listed_unit(fields.text("from_unit", LISTED_UNIT))
    words, sha256 = fields.texts("words"), fields.text_or_none("sha256", SHA256)
    fields.done()
    source = read_source(context.systemd, context.places, name)
    if sha256 not in (None, source.sha256) or source.show.get("NeedDaemonReload") == "yes":
        raise Refused(STALE_UNIT_DEFINITION, f"{name} was edited meanwhile, or systemd has not read it again yet (systemctl daemon-reload)")
    every = merged(source.files)
    original_user = source.show.get("User", "")
    runs_as = _check_fork(context, source, every, order)
    specifiers = specifiers_of(name, source.show["FragmentPath"])
    words = [named(word, specifiers) for word in words]
    _check_words(words, start_prefixes(every, name))
    whole = Order(order.unit, tuple(words), order.env, order.cwd, order.user, order.conflicts)
    return forked(whole, copied(every, specifiers), original_user, environment_path), runs_as


def _check_fork(context: Context, source: Source, every: list[tuple[str, str, str]], order: Order) -> str:
    """Refuse what would give the caller more than a program under a user of run_as. Gives that user."""
    original_user = source.show.get("User", "")
    given = {name for section, name, value in every if section == "Service" and value}
    kind = source.show.get("Type", "")
    if kind in ("dbus", "oneshot"):
        raise Refused(UNIT_SYNTAX, f"{source.unit} is of Type={kind}: such a unit cannot be copied")
    if any(name == "DynamicUser" and value.lower() in YES for _, name, value in every):
        raise Refused(UNIT_SYNTAX, f"{source.unit} has DynamicUser=, whose directories belong to its name")
    if is_root(original_user):
        context.config.check_user(original_user, context.caller)
    runs_as = order.user or original_user
    context.config.check_user(runs_as, context.caller)
    elevated = privileged(every)
    changes_user = order.user not in (None, original_user)
    if elevated and (order.env or order.cwd is not None or changes_user):
        told = f"{source.unit} runs a part of itself as root ({elevated[:200]}), which would see the changed environment, directory or user"
        raise Refused(PERMISSION_DENIED, f"{told}: of such a unit only the command line may be changed")
    if changes_user and given & {"StateDirectory", "CacheDirectory", "LogsDirectory", "RuntimeDirectory", "ConfigurationDirectory"}:
        raise Refused(UNIT_SYNTAX, f"systemd would give the directories of {source.unit} to another user: leave the user as it is")
    _check_capabilities(context, source.unit, every)
    for _, name, value in every:
        unset = {word.partition("=")[0].strip("\"'") for word in value.split()} if name == "UnsetEnvironment" else set()
        if unset & set(order.env):
            raise Refused(UNIT_SYNTAX, f"{source.unit} unsets {', '.join(sorted(unset & set(order.env)))}")
    return runs_as or "root"


def _check_capabilities(context: Context, unit: str, every: list[tuple[str, str, str]]) -> None:
    if context.caller.root or context.config.allow_root:
        return
    for _, name, value in every:
        if name == "AmbientCapabilities" and any(word.upper() not in HARMLESS_CAPABILITIES for word in value.split()):
            raise Refused(PERMISSION_DENIED, f"{unit} has AmbientCapabilities={value[:200]}, with which a program can become root")


def _check_words(words: list[str], source_prefixes: str) -> None:
    if not words:
        raise Misuse("fork: words must not be empty")
    match = PROGRAM.fullmatch(words[0])
    prefixes, program = match.groups() if match else ("", words[0])
    for prefix in prefixes:
        if prefix not in ALLOWED_PREFIXES or prefix not in source_prefixes:
            raise Refused(PERMISSION_DENIED, f"the prefix {prefix!r} of the command is not the original's, or would run it as root")
    if not program:
        raise Refused(UNIT_SYNTAX, "the command's first word is no program")
    check_program(program)


def _written(context: Context, unit: str, text: str, env: dict[str, str]) -> dict[str, Any]:
    path, secret = context.places.units / unit, _environment_path(context, unit)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    answer = {"path": str(path), "sha256": sha256}
    variables = environment_file(env)
    if living(context.systemd.show(unit)):
        if read_ours(path) != text.encode() or (read_ours(secret) or b"") != variables.encode():
            raise Refused(STALE_UNIT_DEFINITION, f"{unit} is running with another definition: stop it first")
        return {**answer, "status": status(context, unit)}
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    make_folder(secret.parent)
    if env:
        write_ours(secret, variables)
    else:
        remove(secret)
    # As every unit file: its text is no secret, systemctl cat shows it to everybody.
    write_ours(path, text, mode=0o644)
    context.systemd.reload()
    _check_loaded(context, unit, path)
    return {**answer, "status": status(context, unit)}


def _environment_path(context: Context, unit: str) -> Path:
    return context.places.runtime / f"{unit}.env"


def _check_loaded(context: Context, unit: str, path: Path) -> None:
    """What systemd has read must be what was written: a file in /etc would win, a drop-in could have Restart= again."""
    show = context.systemd.show(unit)
    if show["LoadState"] != "loaded":
        raise Refused(UNIT_SYNTAX, f"systemd does not load {unit}: {show['LoadState']} {show.get('LoadError', '')}".rstrip())
    if context.places.root + show.get("FragmentPath", "") != str(path):
        raise Refused(UNIT_SYNTAX, f"{show.get('FragmentPath')} stands before {path} for systemd: take it away")
    if show.get("Restart") != "no":
        raise Refused(UNIT_SYNTAX, f"a drop-in sets Restart={show.get('Restart')} for {unit}: {show.get('DropInPaths')}")


def remove_unit(context: Context, fields: Fields) -> dict[str, Any]:
    """Take the files of an ended unit away, its environment with it. Refused while it has processes."""
    unit = context.config.our_unit(fields.text("unit", OUR_UNIT))
    fields.done()
    if living(context.systemd.show(unit)) or context.processes.of_unit(unit):
        raise Refused(STALE_UNIT_DEFINITION, f"{unit} still has processes: stop it first")
    removed = remove(context.places.units / unit)
    remove(_environment_path(context, unit))
    remove(seen_path(context, unit))
    if removed:
        context.systemd.reload()
    return {"removed": removed}


def referred_variables(text: str) -> list[str]:
    """The variables that the ExecStart lines of a unit's text refer to."""
    names: list[str] = []
    for line in text.split("\n"):
        if line.startswith("ExecStart="):
            names += re.findall(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)", line.replace("$$", ""))
    return sorted(set(names))
