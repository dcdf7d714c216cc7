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
from workers.hosts.ssh_destination import DestinationError, Route, resolve
from workers.hosts.systemd import SystemdHost
from workers.hosts.transport import Transport

LOOPBACK = "http://127.0.0.1"


def make_local_host(name: str, config: HostConfig, data_dir: Path) -> Host:
    """This machine, with plain processes."""
    return LocalHost(name, data_dir, nvidia_smi=config.nvidia_smi)


def make_systemd_host(
    name: str, config: HostConfig, transport: Transport, claim: Claim | None, data_dir: Path | None = None
) -> ProductionHost:
    """A host with systemd and our helper. Without a claim it can only be looked at. `data_dir`: where artifacts are kept."""
    like = config.park[0] if config.park else None
    gpus = GpuTools(transport, config.nvidia_smi)
    return SystemdHost(name, Helper(transport, claim), gpus, run_as=config.run_as, like=like, data_dir=data_dir)


def connect(config: HostConfig, environ: Mapping[str, str]) -> Transport:
    """The wire to a host; opened at its first command."""
    if config.ssh is None:
        return LocalTransport()
    ssh_config, known_hosts = ssh_files(environ)
    return SshTransport(config.ssh, ssh_config=ssh_config, known_hosts=known_hosts)


def route_of(destination: str, environ: Mapping[str, str]) -> Route:
    """The machines on the way to a destination. HostError where it leads nowhere."""
    try:
        return resolve(destination, *ssh_files(environ))
    except DestinationError as error:
        raise HostError(Reason.HOST_UNREACHABLE, str(error)) from error


def engine_address(destination: str | None, environ: Mapping[str, str]) -> str:
    """Where servers on the host are reached by default: under the name or address that ssh goes to."""
    if destination is None:
        return LOOPBACK
    host = route_of(destination, environ).destination.host
    return f"http://[{host}]" if ":" in host else f"http://{host}"


def ssh_files(environ: Mapping[str, str]) -> tuple[Path | None, Path | None]:
    """ssh_config to read instead of the user's, and where keys are pinned: beside the data, unless a setting says otherwise."""
    ssh_config, known_hosts, data = (environ.get(name) for name in ("EXPCTL_SSH_CONFIG", "EXPCTL_KNOWN_HOSTS", "EXPCTL_DATA_DIR"))
    pins = Path(known_hosts) if known_hosts else Path(data) / "known_hosts" if data else None
    return (Path(ssh_config) if ssh_config else None), pins
