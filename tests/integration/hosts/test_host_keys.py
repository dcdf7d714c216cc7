"""Looking at host keys without logging in, and pinning them."""

from __future__ import annotations

import time
from collections.abc import Callable

import paramiko
import pytest

from service.domain.reasons import Reason
from tests.integration.hosts.conftest import QUICK, Account
from tests.integration.hosts.ssh_server import SshServer, port_that_says
from workers.hosts.base import HostError
from workers.hosts.host_keys import fetch_host_keys, pins_of_destination, trust
from workers.hosts.ssh_destination import Route, resolve
from workers.hosts.transport import TransportError


def route_to(account: Account, destination: str) -> Route:
    return resolve(destination, account.config, account.known_hosts)


def test_every_key_is_shown_and_nobody_logs_in(account: Account, server: SshServer) -> None:
    server.keys += [paramiko.ECDSAKey.generate(), paramiko.RSAKey.generate(2048)]
    keys = fetch_host_keys(route_to(account, f"127.0.0.1:{server.port}"), limits=QUICK)
    assert [(key.kind, key.fingerprint) for key in keys] == [(key.get_name(), key.fingerprint) for key in server.keys]
    assert server.attempts == []


def test_trust_pins_and_a_pinned_type_is_asked_for_first(account: Account, server: SshServer) -> None:
    """A host that has better keys as well is not taken for a changed one."""
    server.keys.append(paramiko.RSAKey.generate(2048))
    route = route_to(account, f"127.0.0.1:{server.port}")
    keys = fetch_host_keys(route, limits=QUICK)
    trust(route, keys[1:])
    assert [pin.key for pin in pins_of_destination(route).trusted] == [keys[1]]
    ssh = account.transport(f"127.0.0.1:{server.port}")
    assert ssh.run(["true"]).ok
    assert server.connections[-1].host_key_type == "rsa-sha2-512"


def test_a_pinned_type_that_is_shown_no_more_is_a_change(account: Account, server: SshServer) -> None:
    account.pin(server)
    server.keys = [paramiko.ECDSAKey.generate()]
    with pytest.raises(TransportError) as caught:
        account.transport(f"127.0.0.1:{server.port}").run(["true"])
    assert caught.value.reason == Reason.HOST_KEY_CHANGED


def test_trust_replaces_on_purpose_only(account: Account, server: SshServer, new_server: Callable[[], SshServer]) -> None:
    route = route_to(account, f"127.0.0.1:{server.port}")
    other = fetch_host_keys(route_to(account, f"127.0.0.1:{new_server().port}"), limits=QUICK)
    trust(route, other)
    keys = fetch_host_keys(route, limits=QUICK)
    with pytest.raises(HostError) as caught:
        trust(route, keys)
    assert caught.value.reason == Reason.HOST_KEY_CHANGED
    trust(route, keys, replace=True)
    assert [pin.key for pin in pins_of_destination(route).trusted] == list(keys)


def test_stage_by_stage_through_a_jump_host(account: Account, server: SshServer, new_server: Callable[[], SshServer]) -> None:
    hop = new_server()
    account.write_config(f"Host 127.0.0.1\n  ProxyJump hop\nHost hop\n  HostName localhost\n  Port {hop.port}\n")
    route = route_to(account, f"127.0.0.1:{server.port}")
    with pytest.raises(TransportError) as caught:
        fetch_host_keys(route, limits=QUICK)
    assert (caught.value.reason, hop.keys[0].fingerprint in caught.value.evidence) == (Reason.HOST_KEY_UNKNOWN, True)
    for stage in route.stages():
        trust(stage, fetch_host_keys(stage, limits=QUICK))
    assert account.transport(f"127.0.0.1:{server.port}").run(["true"]).ok
    assert len(account.known_hosts.read_text().splitlines()) == 2


def test_the_deadline_bounds_it(account: Account) -> None:
    began = time.monotonic()
    with port_that_says(b"") as port, pytest.raises(TransportError) as caught:
        fetch_host_keys(route_to(account, f"127.0.0.1:{port}"), deadline_s=0.3)
    assert caught.value.reason == Reason.HOST_UNREACHABLE
    assert time.monotonic() - began < 3.0
