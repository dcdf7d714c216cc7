"""start, stop and end-process."""

from __future__ import annotations

import os
import signal
from typing import Any

from workers.hosts.helper.config import uid_of
from workers.hosts.helper.context import Context
from workers.hosts.helper.files import read_ours
from workers.hosts.helper.observing import brief, gone, keep_seen, seen, status
from workers.hosts.helper.refusals import (
    PERMISSION_DENIED,
    PRODUCTION_STARTED_BY_HAND,
    REMOTE_COMMAND_FAILED,
    UNIT_SYNTAX,
    UNKILLABLE_PROCESS,
    Refused,
)
from workers.hosts.helper.request import OUR_UNIT, SENTENCE, Fields
from workers.hosts.helper.systemd import living, number
from workers.hosts.helper.writing import referred_variables

POLL_S = 0.1
KILLED_S = 15.0
"""How long after KILL a process may take to go: the kernel gives GPU memory back meanwhile."""
TERMINATED_S = 15.0
SEEN_S = 3.0
"""How long after its start a program is believed not to have renamed itself yet; vLLM imports for longer before it does."""
TITLES = ("VLLM::", "sglang::")
"""How the processes of an engine name themselves that outlive their server."""


def start(context: Context, fields: Fields) -> dict[str, Any]:
    """Start a unit of ours and look at its program before it can rename itself. Never starts one that runs."""
    unit = context.config.our_unit(fields.text("unit", OUR_UNIT))
    deadline_s = fields.number("deadline_s", 1, 120, 20.0)
    fields.done()
    text = (read_ours(context.places.units / unit) or b"").decode()
    show = context.systemd.show(unit)
    begun = not living(show)
    if begun:
        if not text:
            raise Refused(REMOTE_COMMAND_FAILED, f"{unit} has no file on this host (a reboot takes it away): write it first")
        _nobody_started_production(context, show)
        if show.get("NeedDaemonReload") == "yes":
            context.systemd.reload()
        context.systemd.try_to("reset-failed", "--", unit)  # fails where there is nothing to reset
        context.systemd.ask("start", "--no-block", "--", unit)
    show = _until_started(context, unit, deadline_s)
    if show["LoadState"] in ("bad-setting", "error"):
        raise Refused(UNIT_SYNTAX, f"systemd does not start {unit}: {show['LoadState']} {show.get('LoadError', '')}".rstrip())
    variables = _look_at_once(context, unit, show, referred_variables(text))
    return {**status(context, unit), "started": begun, "variables": variables}


def _nobody_started_production(context: Context, show: dict[str, str]) -> None:
    """Starting a unit stops what it conflicts with; what serves is stopped by name, or not at all."""
    parked = [unit for unit in show.get("Conflicts", "").split() if unit in context.config.parked]
    for unit, other in zip(parked, context.systemd.show_all(parked)):
        if living(other):
            raise Refused(PRODUCTION_STARTED_BY_HAND, f"{unit} is {other['ActiveState']}: it is not stopped by starting something else")


def _until_started(context: Context, unit: str, deadline_s: float) -> dict[str, str]:
    """Wait until the unit's program runs, or its start has failed."""
    deadline = context.clock.monotonic() + deadline_s
    while True:
        show = context.systemd.show(unit)
        pid = number(show, "MainPID")
        # Right after exec the arguments are not there yet.
        if pid and context.processes.started(pid) and context.processes.command_line(pid):
            return show
        waiting = (living(show) and show.get("SubState") != "exited") or number(show, "Job") > 0
        if not waiting or context.clock.monotonic() > deadline:
            return show
        context.clock.sleep(0.05)


def _look_at_once(context: Context, unit: str, show: dict[str, str], names: list[str]) -> dict[str, str]:
    invocation, pid = show.get("InvocationID", ""), number(show, "MainPID")
    known = seen(context, unit, invocation)
    age_s = context.clock.monotonic() - number(show, "ExecMainStartTimestampMonotonic") / 1e6
    # Of an older one nobody can say any more what it was started with.
    if not known and age_s < SEEN_S and pid and invocation and context.processes.started(pid):
        argv, environment = context.processes.command_line(pid), context.processes.variables(pid)
        known = {"variables": {name: environment[name] for name in names if name in environment}}
        if argv:
            keep_seen(context, unit, invocation, argv, known["variables"])
    variables: dict[str, str] = known.get("variables", {})
    return variables


def stop(context: Context, fields: Fields) -> dict[str, Any]:
    """End a unit and every process of it. A parked unit only while its restoring is promised."""
    name = context.config.known_unit(str(fields.take("unit")))
    grace_s = fields.number("grace_s", 0, 300, 15.0)
    fields.done()
    if OUR_UNIT.fullmatch(name) is None:
        _promised(context, name)
    left_over = end_units(context, [name], grace_s)
    now = status(context, name)
    if left_over:
        told = f"processes of {name} outlive KILL: {', '.join(map(str, left_over))}; the kernel or a driver does not let go of them"
        raise Refused(UNKILLABLE_PROCESS, told, pids=left_over, status=now)
    return {**now, "left_over": []}


def _promised(context: Context, unit: str) -> None:
    with context.state.open():
        record = context.state.record()
        if record is None or record.fired_at is not None or unit not in record.units:
            raise Refused(PERMISSION_DENIED, f"{unit} is stopped only while the dead-man is armed for it, so that it comes back")


def end_units(context: Context, units: list[str], grace_s: float) -> list[int]:
    """End units together: TERM by systemd, after `grace_s` KILL. Gives the pids of what outlives even that."""
    ending = [unit for unit in units if not gone(context, unit)]
    if not ending:
        return []
    running = [unit for unit in ending if living(context.systemd.show(unit))]
    if running:
        context.systemd.ask("stop", "--no-block", "--", *running)
    for pid in _pids(context, [unit for unit in ending if unit not in running]):  # systemd has done with those
        kill(context, pid, None, signal.SIGTERM)
    if _all_gone(context, ending, grace_s):
        return []
    deadline = context.clock.monotonic() + KILLED_S
    while context.clock.monotonic() < deadline:
        for pid in _pids(context, ending):  # in the next rounds, what was forked meanwhile
            kill(context, pid, None, signal.SIGKILL)
        if _all_gone(context, ending, 1.0):
            return []
    return _pids(context, ending)


def _pids(context: Context, units: list[str]) -> list[int]:
    return sorted({pid for unit in units for pid in context.processes.of_unit(unit)})


def _all_gone(context: Context, units: list[str], within_s: float) -> bool:
    deadline = context.clock.monotonic() + within_s
    while True:
        if all(gone(context, unit) for unit in units):
            return True
        if context.clock.monotonic() > deadline:
            return False
        context.clock.sleep(POLL_S)


def kill(context: Context, pid: int, start_ticks: int | None, number_of_signal: int) -> bool:
    """Signal a process, given its start time only if it still is that one. False where it has ended."""
    process = context.processes.read(pid)
    if process is None or start_ticks not in (None, process.start_ticks):
        return False
    try:
        os.kill(pid, number_of_signal)
    except ProcessLookupError:
        return False
    return True


def end_process(context: Context, fields: Fields) -> dict[str, Any]:
    """End a left-over process of an engine: TERM, after 15 s KILL."""
    pid, start_ticks = fields.integer("pid", 2, 2**31), fields.integer("start_ticks", 0, 2**63)
    fields.text("why", SENTENCE)  # it is for the host's log
    fields.done()
    process = context.processes.read(pid)
    if process is None or process.start_ticks != start_ticks:
        return {"ended": False, "signal": None}
    _check_left_over(context, pid)
    for name, wait_s in (("TERM", TERMINATED_S), ("KILL", KILLED_S)):
        kill(context, pid, start_ticks, signal.Signals[f"SIG{name}"])
        deadline = context.clock.monotonic() + wait_s
        while context.clock.monotonic() < deadline:
            process = context.processes.read(pid)
            if process is None or process.start_ticks != start_ticks:
                return {"ended": True, "signal": name}
            context.clock.sleep(POLL_S)
    raise Refused(UNKILLABLE_PROCESS, f"process {pid} outlives KILL: the kernel or a driver does not let go of it", pids=[pid])


def _check_left_over(context: Context, pid: int) -> None:
    """Refuse all but an engine's process that no living unit answers for and that an experiment's user runs."""
    unit = context.processes.unit(pid)
    ours = unit is not None and OUR_UNIT.fullmatch(unit) is not None
    title = " ".join(context.processes.command_line(pid))
    described = context.processes.read(pid)
    if not ours and not title.startswith(TITLES) and not (described and described.name.startswith(TITLES)):
        raise Refused(PERMISSION_DENIED, f"process {pid} is neither of a unit of expctl nor an engine's: {title[:200]!r}")
    allowed = {uid_of(user) for user in context.config.run_as} | ({0} if context.config.allow_root else set())
    if not context.caller.root and not set(context.processes.users(pid)) <= allowed:
        raise Refused(PERMISSION_DENIED, f"process {pid} is run by {context.processes.user(pid)}, who is not under run_as")
    if unit is not None and living(context.systemd.show(unit)):
        raise Refused(PERMISSION_DENIED, f"process {pid} belongs to {unit}, which lives: {brief(context.systemd.show(unit))}")
