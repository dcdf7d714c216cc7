"""Where ssh finds its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.domain.reasons import Reason
from workers.hosts.base import HostError
from workers.hosts.registry import engine_address, ssh_files


@pytest.mark.parametrize(
    ("environ", "pins"),
    [
        ({"EXPCTL_KNOWN_HOSTS": "/k"}, Path("/k")),
        ({"EXPCTL_DATA_DIR": "/d"}, Path("/d/known_hosts")),
        ({"EXPCTL_DATA_DIR": "/d", "EXPCTL_KNOWN_HOSTS": "/k"}, Path("/k")),
        ({}, None),
    ],
)
def test_keys_are_pinned_beside_the_data(environ: dict[str, str], pins: Path | None) -> None:
    assert ssh_files(environ) == (None, pins)


def test_servers_are_reached_where_ssh_goes_to(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host gpu0\n  HostName 10.1.2.3\nHost gpu6\n  HostName fd00::1\n")
    environ = {"EXPCTL_SSH_CONFIG": str(config)}
    assert engine_address("me@gpu0", environ) == "http://10.1.2.3"
    assert engine_address("gpu6", environ) == "http://[fd00::1]"
    assert engine_address(None, environ) == "http://127.0.0.1"
    with pytest.raises(HostError) as caught:
        engine_address("no such destination!", environ)
    assert caught.value.reason == Reason.HOST_UNREACHABLE
