"""Bringing production back: by request, or by the dead-man, which a timer runs when nobody has said for too long that he lives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from workers.hosts.helper.acting import end_units
from workers.hosts.helper.config import NOTHING
from workers.hosts.helper.context import Context
from workers.hosts.helper.files import read_ours, remove, write_ours
from workers.hosts.helper.observing import brief
from workers.hosts.helper.places import INSTALLED, stamp
from workers.hosts.helper.refusals import INTERNAL_ERROR, REMOTE_COMMAND_FAILED, STALE_UNIT_DEFINITION, Refused
from workers.hosts.helper.request import Fields
from workers.hosts.helper.sources import read_source
from workers.hosts.helper.state import UNREADABLE, Record, UnreadableRecord, not_fired, ordered_record
from workers.hosts.helper.systemd import living, number

TIMER, SERVICE = "expctl-deadman.timer", "expctl-deadman.service"
SHORTEST_TICK_S, LONGEST_TICK_S = 1, 30
STOP_GRACE_S = 60.0
START_WAIT_S = 20.0
SETTLED_S = 300.0
"""How long a unit must have been active before the dead-man trusts it: memory that is not free yet ends a server within minutes."""
LOCK_PATIENCE_S = 120.0
"""How long the dead-man waits for another call. Who holds the lock for longer is frozen, and its deadline has passed."""

SERVICE_TEXT = f"""# Written by expctl-host while it is armed, taken away when it is disarmed.
[Unit]
Description=expctl: bring production back where nobody renews the deadline

[Service]
Type=oneshot
ExecStart={INSTALLED} deadman
TimeoutStartSec=600
# Ticks in which nothing happens are not worth a line.
LogLevelMax=notice
"""
TIMER_TEXT = """# Written by expctl-host while it is armed, taken away when it is disarmed.
[Unit]
Description=expctl: look whether the deadline has passed

[Timer]
OnBootSec={tick}
OnUnitActiveSec={tick}
AccuracySec=1s

[Install]
WantedBy=timers.target
"""


def arm(context: Context, fields: Fields, take: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Promise to bring the recorded units back when the deadline passes; later calls move the deadline.

    Does not wait for calls that work on units: it is the worker's heartbeat.
    """
    ttl_s = fields.number("ttl_s", 2, 86_400)
    wanted = ordered_record(fields.take("record"), context.config) if fields.has("record") else fields.take("record")
    fields.done()
    with context.state.open():
        before = context.state.record()
        not_fired(before)
        holder = take()
        if before is not None and before.why_due(context.clock) and before.holder["service"] != holder["service"]:
            raise Refused(REMOTE_COMMAND_FAILED, "the dead-man is about to bring back what another expctl had parked: try again later")
        if before is None and wanted is None:
            raise Refused(REMOTE_COMMAND_FAILED, "nothing is armed on this host, so there is nothing to renew")
        if before is not None and wanted is not None and [one["unit"] for one in wanted[0]] != before.units:
            raise Refused(REMOTE_COMMAND_FAILED, f"armed already, for {', '.join(before.units) or 'no unit'}: disarm first")
        record = before or _new_record(context, wanted or ([], {}))
        record.holder = holder
        record.renew(context.clock, ttl_s)
        context.state.save(record)
        try:
            _set_timer(context, ttl_s)
        except Refused:
            if before is None:  # not armed, then
                context.state.forget()
            raise
    return {"deadline": stamp(record.deadline_wall), "ttl_s": ttl_s, "record": record.shown(context.clock), "first": before is None}


def _new_record(context: Context, wanted: tuple[list[dict[str, Any]], dict[str, Any]]) -> Record:
    parked, note = wanted
    for one in parked:
        if read_source(context.systemd, context.places, one["unit"]).sha256 != one["sha256"]:
            raise Refused(STALE_UNIT_DEFINITION, f"{one['unit']} was edited since it was looked at")
    return Record(parked, note, {}, context.clock.wall(), 0.0, "", 0.0, 0.0)


def _set_timer(context: Context, ttl_s: float) -> None:
    """Have the timer run, also after a reboot. Nothing is changed where it does already."""
    tick = int(max(SHORTEST_TICK_S, min(LONGEST_TICK_S, ttl_s / 4)))
    folder, changed = context.places.lasting_units, False
    for name, text in ((SERVICE, SERVICE_TEXT), (TIMER, TIMER_TEXT.format(tick=tick))):
        if read_ours(folder / name) != text.encode():
            write_ours(folder / name, text, mode=0o644)
            changed = True
    if changed:
        context.systemd.reload()
    if changed or context.systemd.show(TIMER)["ActiveState"] != "active":
        context.systemd.ask("enable", "--", TIMER)
        context.systemd.ask("restart", "--", TIMER)


def disarm(context: Context, fields: Fields) -> dict[str, Any]:
    """Forget the promise. Refused while something that was promised is not there, unless forced."""
    force = fields.flag("force")
    fields.done()
    with context.state.open():
        try:
            record = context.state.record()
        except UnreadableRecord:
            if not force:
                raise
            record = None
        if record is not None and not force:
            shown = context.systemd.show_all(record.units)
            down = [unit for unit, show in zip(record.units, shown) if show["ActiveState"] != "active"]
            if down:
                raise Refused(REMOTE_COMMAND_FAILED, f"not active yet: {', '.join(down)}; the dead-man stays armed for them", units=down)
        # First the record: a timer without one does nothing, a record without a timer would be a broken promise.
        was_armed = context.state.forget()
        context.state.release()
        context.systemd.try_to("disable", "--now", "--", TIMER)  # it fails where there is none
        if [name for name in (TIMER, SERVICE) if remove(context.places.lasting_units / name)]:
            context.systemd.reload()
    return {"disarmed": was_armed}


def restore(context: Context, fields: Fields) -> dict[str, Any]:
    """Stop all of ours, start what was recorded, in its order. The promise stays until `disarm`."""
    deadline_s = fields.number("deadline_s", 1, 120, START_WAIT_S)
    fields.done()
    with context.state.open():
        record = context.state.record()
    if record is None:
        raise Refused(REMOTE_COMMAND_FAILED, "nothing is recorded on this host that could be brought back")
    units = context.systemd.our_units()
    left_over = end_units(context, units, STOP_GRACE_S)
    restored = [_brought_back(context, unit, deadline_s) for unit in record.units]
    return {"restored": restored, "all_active": all(one["active"] for one in restored), "stopped": units, "left_over": left_over}


def _brought_back(context: Context, unit: str, wait_s: float) -> dict[str, Any]:
    """Have a unit started if it does not run. Never raises for what systemd says: the next unit must be started, too."""
    how, message, show = "failed", "", {}
    try:
        show = context.systemd.show(unit)
        how = "already_active" if show["ActiveState"] == "active" else "started"
        if not living(show):
            context.systemd.try_to("reset-failed", "--", unit)  # fails where there is nothing to reset
            context.systemd.ask("start", "--no-block", "--", unit)
        show = _until_active(context, unit, wait_s)
    except Refused as error:
        how, message = "failed", str(error)
    active = show.get("ActiveState") == "active"
    if how == "started" and not active:
        how = "starting" if (show and living(show)) or number(show, "Job") else "failed"
    return {"unit": unit, "active": active, "how": how, "message": message, "show": brief(show)}


def _until_active(context: Context, unit: str, wait_s: float) -> dict[str, str]:
    deadline = context.clock.monotonic() + wait_s
    while True:
        show = context.systemd.show(unit)
        waiting = show["ActiveState"] != "active" and (living(show) or number(show, "Job") > 0)
        if not waiting or context.clock.monotonic() > deadline:
            return show
        context.clock.sleep(0.2)


def deadman(context: Context) -> dict[str, Any]:
    """One tick of the timer: nothing while the deadline has not passed; after it, every tick until all is back and stays."""
    with contextlib.ExitStack() as held:
        record = _fired(context)
        if record is None or record.settled:
            return {"fired": False, "settled": record is not None}
        _hold(held, context.state.working(LOCK_PATIENCE_S))
        if _disarmed(context):  # while we waited: somebody has brought everything back
            return {"fired": True, "settled": True, **record.story()}
        before = {one["unit"]: one for one in record.restored}
        try:
            record.left_over = end_units(context, context.systemd.our_units(), STOP_GRACE_S)
        except Refused as error:
            # What could not be stopped must not keep production away.
            record.note = {**record.note, "not_stopped": str(error)}
        record.restored = [_brought_back_to_stay(context, unit, before.get(unit)) for unit in record.units]
        if record.restored_at is None and all(one["active"] for one in record.restored):
            record.restored_at = context.clock.wall()
        record.settled = all(one["settled"] for one in record.restored)
        _hold(held, context.state.open())
        _save(context, record)
        if record.settled:
            context.systemd.try_to("disable", "--now", "--", TIMER)
    return {"fired": True, "settled": record.settled, **record.story()}


def _disarmed(context: Context) -> bool:
    try:
        return context.state.record() is None
    except UnreadableRecord:
        return False


def _hold(held: contextlib.ExitStack, lock: contextlib.AbstractContextManager[None]) -> None:
    """Take a lock, or go on without: who still has it is frozen, and the deadline that it would have kept has passed."""
    with contextlib.suppress(Refused):
        held.enter_context(lock)


def _save(context: Context, record: Record) -> None:
    """Write it where that is possible: a full disk must not keep production away."""
    try:
        context.state.save(record)
    except (Refused, OSError) as error:
        record.note = {**record.note, "not_saved": str(error)}


def _fired(context: Context) -> Record | None:
    """The record, once its time has come; that it has is written at once, so that no late heartbeat is taken."""
    with contextlib.ExitStack() as held:
        _hold(held, context.state.open())
        try:
            record = context.state.record()
        except UnreadableRecord as error:
            record = _from_config(context, str(error))
        if record is not None and record.fired_at is None:
            why = record.fired_why or record.why_due(context.clock)
            if why is None:
                return None
            record.fired_at, record.fired_why = context.clock.wall(), why
            _save(context, record)
            with contextlib.suppress(Refused, OSError):  # as with the record
                context.state.release()
        return record


def _from_config(context: Context, told: str) -> Record:
    """All that the config lets be parked, where nobody can say any more what was."""
    if context.config is NOTHING:
        raise Refused(INTERNAL_ERROR, f"{told}; and expctl-host.json does not say either what may be parked")
    context.state.keep_unreadable()
    parked = [{"unit": unit, "sha256": "", "live_argv": [], "proof": {}} for unit in context.config.parked]
    nobody = {"service": "", "owner": "", "fence": 0, "since": ""}
    record = Record(parked, {"unreadable": told}, nobody, context.clock.wall(), 0.0, context.clock.boot_id(), 0.0, 0.0)
    record.fired_why = UNREADABLE
    return record


def _brought_back_to_stay(context: Context, unit: str, before: dict[str, Any] | None) -> dict[str, Any]:
    if before is not None and before["active"]:
        show = context.systemd.show(unit)
        if show["ActiveState"] == "inactive" and show.get("Result") == "success":
            # It was back, and has been stopped in good order: somebody did that, and knows why.
            return {**before, "active": False, "how": "stopped_by_hand", "show": brief(show), "settled": True}
    now = _brought_back(context, unit, START_WAIT_S)
    if before is not None and before["active"] and now["how"] == "already_active":
        now["how"] = before["how"]
    return {**now, "settled": now["active"] and _active_for(context, unit) >= SETTLED_S}


def _active_for(context: Context, unit: str) -> float:
    since = number(context.systemd.show(unit), "ActiveEnterTimestampMonotonic") / 1e6
    return context.clock.monotonic() - since
