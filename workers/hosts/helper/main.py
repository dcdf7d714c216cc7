"""The verbs, and what stands around each: the request, the locks, the claim, the answer, the log."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import sys
import syslog
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workers.hosts.helper.acting import end_process, start, stop
from workers.hosts.helper.comeback import comeback
from workers.hosts.helper.config import NOTHING, Config, read_config
from workers.hosts.helper.context import Context, context_for
from workers.hosts.helper.deadman import arm, deadman, disarm, restore
from workers.hosts.helper.journal import journal
from workers.hosts.helper.looking import facts, look, port_verb, processes_verb
from workers.hosts.helper.observing import every_status, status
from workers.hosts.helper.places import Caller, Places, calling, places_for
from workers.hosts.helper.refusals import DISK_FULL, INTERNAL_ERROR, Misuse, Refused
from workers.hosts.helper.request import LIMIT_BYTES, Fields, parsed
from workers.hosts.helper.sources import live, read_source, written_variables
from workers.hosts.helper.state import UnreadableRecord, claim_of, not_fired
from workers.hosts.helper.workfolders import remove_work, work_folders
from workers.hosts.helper.writing import remove_unit, write_unit

VERSION = "1"
PROTOCOL = 1
USAGE = "usage: expctl-host VERB < request.json\n       expctl-host --version\nverbs: "
FAILED, MISUSED = 1, 2


def hello(context: Context, fields: Fields) -> dict[str, Any]:
    """Who we are, what is allowed here, who holds the host and what is promised."""
    fields.done()
    with context.state.open():
        holder, record = context.state.holder(), context.state.record()
        armed = context.state.armed()
    return {
        "version": VERSION,
        "protocol": PROTOCOL,
        "sha256": hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
        "boot_id": context.clock.boot_id(),
        "systemd": context.systemd.version(),
        "python": platform.python_version(),
        "uid": os.geteuid(),
        "caller": {"uid": context.caller.uid, "user": context.caller.user, "root": context.caller.root},
        "config": context.config.shown(),
        "armed": armed,
        "holder": holder,
        "record": None if record is None else record.shown(context.clock),
    }


def status_verb(context: Context, fields: Fields) -> dict[str, Any]:
    """One unit."""
    unit = context.config.known_unit(str(fields.take("unit")))
    fields.done()
    return status(context, unit)


def units(context: Context, fields: Fields) -> dict[str, Any]:
    """Every unit of ours."""
    fields.done()
    return {"units": every_status(context)}


def source(context: Context, fields: Fields) -> dict[str, Any]:
    """A listed unit as its files and systemd have it."""
    unit = context.config.listed_unit(str(fields.take("unit")))
    fields.done()
    found = read_source(context.systemd, context.places, unit)
    argv, variables = live(context.processes, found.show)
    of_process = bool(variables)
    written, whole = written_variables(context.systemd, context.places, unit)
    return {
        "unit": unit,
        "files": [list(one) for one in found.files],
        "sha256": found.sha256,
        "show": found.show,
        "live_argv": argv,
        "variables": variables or written,
        "variables_from": "process" if of_process else "unit",
        # For whoever wants to know what a start would give it now; null where that cannot be said.
        "written_variables": written if whole else None,
        **comeback(context, found),
    }


READING: dict[str, Callable[[Context, Fields], dict[str, Any]]] = {
    "hello": hello,
    "status": status_verb,
    "units": units,
    "look": look,
    "source": source,
    "journal": journal,
    "port": port_verb,
    "processes": processes_verb,
    "facts": facts,
    "work-folders": work_folders,
}
CHANGING: dict[str, Callable[[Context, Fields], dict[str, Any]]] = {
    "write-unit": write_unit,
    "start": start,
    "stop": stop,
    "remove-unit": remove_unit,
    "remove-work": remove_work,
    "end-process": end_process,
    "restore": restore,
    "disarm": disarm,
}
STARTING = ("write-unit", "start")
"""Not once the dead-man has acted: production serves again."""
VERBS = (*READING, *CHANGING, "arm", "deadman")


def answer(verb: str, request: dict[str, Any], context: Context) -> dict[str, Any]:
    """What a verb says to a request. Raises Refused or Misuse."""
    fields = Fields(request, "the request")
    if verb == "deadman":
        return deadman(context)
    if verb in READING:
        return READING[verb](context, fields)
    claim = claim_of(fields)
    _log_change(verb, request, context.caller)
    if verb == "arm":
        return arm(context, fields, lambda: context.state.take(claim))
    with context.state.working():
        # Only now: while we waited, somebody newer may have come.
        with context.state.open():
            context.state.take(claim)
            if verb in STARTING:
                not_fired(context.state.record())
        return CHANGING[verb](context, fields)


def _log_change(verb: str, request: dict[str, Any], caller: Caller) -> None:
    """Say in the host's log who changes what; sudo's own line has no unit in it."""
    told: dict[str, Any] = {name: request[name] for name in ("unit", "pid", "why", "user", "ttl_s", "force") if name in request}
    _log(syslog.LOG_INFO, {"verb": verb, "caller": caller.user, "claim": request.get("claim"), **told})


def _log(priority: int, told: dict[str, Any]) -> None:
    if os.geteuid() == 0:  # not in tests
        syslog.openlog("expctl-host", syslog.LOG_PID, syslog.LOG_AUTHPRIV)
        syslog.syslog(priority, json.dumps(told)[:2000])


def served(verb: str, raw: bytes) -> tuple[int, dict[str, Any]]:
    """Exit status and answer."""
    try:
        places = places_for(os.environ)
        caller = calling(os.environ)
        context = context_for(places, caller, _limits(verb, places))
        return 0, {"ok": True, **answer(verb, _request(raw), context)}
    except Misuse as error:
        return MISUSED, _no(INTERNAL_ERROR, str(error))
    except Refused as error:
        return FAILED, {**_no(error.reason, str(error)), **error.details}
    except UnreadableRecord as error:
        return FAILED, _no(INTERNAL_ERROR, f"{error}; the dead-man brings back all that may be parked at its next tick")
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return FAILED, _no(DISK_FULL if full else INTERNAL_ERROR, f"{verb}: {error}")
    except Exception as error:  # noqa: BLE001 - an answer, whatever happens, with the traceback beside it
        traceback.print_exc()
        return FAILED, _no(INTERNAL_ERROR, f"{verb}: {type(error).__name__}: {error}")


def _limits(verb: str, places: Places) -> Config:
    try:
        return read_config(places.config)
    except Refused:
        # What was recorded is brought back, whatever has become of the config.
        if verb != "deadman":
            raise
        return NOTHING


def _no(reason: str, message: str) -> dict[str, Any]:
    return {"ok": False, "reason": reason, "message": message}


def _request(raw: bytes) -> dict[str, Any]:
    value = parsed(raw, "the request") if raw.strip() else {}
    if not isinstance(value, dict):
        raise Misuse("the request must be an object")
    return value


def main(argv: Sequence[str]) -> int:
    """Entry point. Exit status 0: done, 1: refused or failed, 2: a mistake of the caller's."""
    os.umask(0o077)
    if list(argv) == ["--version"]:
        sys.stdout.write(f"expctl-host {VERSION}\n")
        return 0
    if len(argv) != 1 or argv[0] not in VERBS:
        sys.stderr.write(USAGE + " ".join(VERBS) + "\n")
        return MISUSED
    verb = argv[0]
    raw = b"" if verb == "deadman" else sys.stdin.buffer.read(LIMIT_BYTES + 1)
    exit_status, told = served(verb, raw)
    if verb == "deadman" and told.get("fired", True):  # or it failed
        _log(syslog.LOG_WARNING, told)
    sys.stdout.write(json.dumps(told) + "\n")
    return exit_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
