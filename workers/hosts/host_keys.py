"""Looking at a host's keys without logging in to it, for whoever is to say whether they are the right ones."""

from __future__ import annotations

import contextlib
import time

from service.domain.reasons import Reason
from workers.hosts.known_hosts import HostKey, Pins, pin_keys, pins_of
from workers.hosts.ssh_chain import Chain
from workers.hosts.ssh_connection import ALGORITHMS, NoSuchHostKey
from workers.hosts.ssh_destination import Route
from workers.hosts.ssh_limits import SshLimits, cut_at
from workers.hosts.transport import TransportError

DEADLINE_S = 30.0


def fetch_host_keys(route: Route, *, deadline_s: float = DEADLINE_S, limits: SshLimits | None = None) -> tuple[HostKey, ...]:
    """Every key that the route's destination shows, one of each type, the best type first.

    Jump hosts are logged in to, so their keys must be pinned before: see Route.stages. The destination is not logged in to.
    TransportError as for a command: host_unreachable, connection_refused, and of a jump host also host_key_unknown,
    host_key_changed, auth_failed.
    """
    until = time.monotonic() + deadline_s
    chain = Chain(route, limits or SshLimits())
    keys = []
    with contextlib.closing(chain), cut_at(until, chain.close):
        for machine in route.machines[:-1]:
            chain.enter(machine, until)
        for kind in ALGORITHMS:
            key = _key_of(chain, kind, until)
            if key is not None:
                keys.append(key)
    if not keys:
        raise TransportError(
            Reason.HOST_UNREACHABLE, f"{route.destination} shows no key of a known type: {', '.join(ALGORITHMS)}", "not_executed"
        )
    return tuple(keys)


def _key_of(chain: Chain, kind: str, until: float) -> HostKey | None:
    """None where the host has no key of that type."""
    try:
        connection, key = chain.knock(chain.route.destination, [kind], until)
    except NoSuchHostKey:
        return None
    connection.shut()
    return key


def pins_of_destination(route: Route) -> Pins:
    """What the known_hosts files say of the route's destination today."""
    machine = route.destination
    return pins_of(machine.key_host, machine.key_port, route.own_known_hosts, machine.known_hosts)


def trust(route: Route, keys: tuple[HostKey, ...], *, replace: bool = False) -> None:
    """Pin the destination's keys in the project's own file; errors as pin_keys has them."""
    pin_keys(route.own_known_hosts, route.destination.key_name, keys, replace=replace)
