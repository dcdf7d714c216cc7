"""From a host's settings to the host: the one place that knows every way to reach and to keep one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from service.domain.host_config import HostConfig
from service.domain.reasons import Reason
from workers.hosts.base import Host, HostError, ProductionHost
from workers.hosts.gpus import GpuTools
from workers.hosts.helper_client import Claim, Helper
from workers.hosts.local import LocalHost
from workers.hosts.local_transport import LocalTransport
from workers.hosts.ssh import SshTransport
from workers.hosts.ssh_destination import DestinationError, resolve
from workers.hosts.systemd import SystemdHost
from workers.hosts.transport import Transport

LOOPBACK = "http://127.0.0.1"


def make_local_host(name: str, config: HostConfig, data_dir: Path) -> Host:
    """This machine, with plain processes."""
    return LocalHost(name, data_dir, nvidia_smi=config.nvidia_smi)


def make_systemd_host(name: str, config: HostConfig, transport: Transport, claim: Claim | None) -> ProductionHost:
    """A host with systemd and our helper. Without a claim it can only be looked at."""
    like = config.park[0] if config.park else None
    return SystemdHost(name, Helper(transport, claim), GpuTools(transport, config.nvidia_smi), run_as=config.run_as, like=like)


def connect(config: HostConfig, environ: Mapping[str, str]) -> Transport:
    """The wire to a host; opened at its first command."""
    if config.ssh is None:
        return LocalTransport()
    return SshTransport(config.ssh, ssh_config=_path(environ, "EXPCTL_SSH_CONFIG"), known_hosts=_path(environ, "EXPCTL_KNOWN_HOSTS"))


def engine_address(destination: str | None, environ: Mapping[str, str]) -> str:
    """Where servers on the host are reached by default: under the name or address that ssh goes to."""
    if destination is None:
        return LOOPBACK
    try:
        host = resolve(destination, _path(environ, "EXPCTL_SSH_CONFIG"), _path(environ, "EXPCTL_KNOWN_HOSTS")).destination.host
    except DestinationError as error:
        raise HostError(Reason.HOST_UNREACHABLE, str(error)) from error
    return f"http://[{host}]" if ":" in host else f"http://{host}"


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None
