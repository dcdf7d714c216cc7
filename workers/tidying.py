"""What is left of experiments on a host, and taken away once nobody needs it there any more."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from service.store import experiments, retention
from service.store.database import Database
from service.store.hosts import Lease
from workers.hosts.base import Host, HostError, ProductionHost, UnitPhase
from workers.unitname import experiment_of, unit_name

log = structlog.get_logger()


def forget_units(database: Database, host: Host, *, all_ended: bool) -> None:
    """Forget the units of experiments that were pruned, or all that have ended: on a host under systemd their logs were copied."""
    try:
        # Of a unit that did not fail, systemd knows nothing any more once it has ended; its file is still there.
        ended = [state.name for state in host.units() if state.phase in {UnitPhase.ENDED, UnitPhase.NOT_FOUND}]
        with database.read() as session:
            kept = experiments.kept(session, [number for name in ended if (number := experiment_of(name)) is not None])
        for name in ended:
            if all_ended or experiment_of(name) not in kept:
                host.forget_unit(name)
    except HostError as error:
        log.warning("the host could not be tidied", host=host.name, why=str(error))


def remove_work_folders(database: Database, lease: Lease, host: ProductionHost, check: Callable[[], None]) -> None:
    """Remove the folders of commands whose files were fetched whole, or that were pruned. `check` is called before each."""
    try:
        found = {name: number for name in host.work_folders() if (number := experiment_of(name)) is not None}
        with database.read() as session:
            over = retention.work_is_over(session, lease.host_id, sorted(set(found.values())))
    except HostError as error:
        log.warning("the folders of commands could not be looked at", host=lease.host, why=str(error))
        return
    for name, number in found.items():
        # The name too: another installation's experiment may have had this number.
        if number in over and name == unit_name(number, over[number]):
            # Each may take minutes, and the work must not pass for stuck.
            check()
            _remove(host, name)


def _remove(host: ProductionHost, name: str) -> None:
    try:
        host.remove_work_folder(name)
    except HostError as error:
        log.warning("a command's folder could not be removed", host=host.name, unit=name, why=str(error))
