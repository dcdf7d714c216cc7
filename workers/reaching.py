"""From a host's settings to the host itself: by which wire, in whose name, and with how much patience."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from service.domain.engine_spec import VllmEngine
from service.domain.host_config import HostConfig
from service.domain.spec import Spec
from service.store import hosts
from service.store.hosts import Lease
from workers.engines.apikey import bearer
from workers.hosts.base import Host, ProductionHost, UnitSource
from workers.hosts.helper_client import Claim
from workers.hosts.patient import PatientHost
from workers.hosts.registry import connect, engine_address, make_local_host, make_systemd_host
from workers.hosts.transport import Transport
from workers.outage import Outage
from workers.worker import Worker


@dataclass
class Reach:
    """One claimed host, as one thread reaches it. Connections are closed at the end of the `with`."""

    worker: Worker
    lease: Lease
    config: HostConfig
    _connections: ExitStack = field(default_factory=ExitStack, init=False)
    _transport: Transport | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """Where the load client reaches the host, without a port."""
        return self.config.engine_address or engine_address(self.config.ssh, self.worker.environ)

    def host(self, check: Callable[[], None], patience_s: float | None) -> Host:
        """The host, for experiments."""
        if self.config.units == "process":
            return make_local_host(self.lease.host, self.config, self.worker.data_dir)
        return self.production_host(check, patience_s)

    def production_host(self, check: Callable[[], None], patience_s: float | None) -> PatientHost:
        """The host with its service manager, and patience with the wire to it."""
        outage = Outage(self.worker.database, self.lease, check, self._wait, patience_s)
        return PatientHost(self.impatient(), outage)

    def impatient(self) -> ProductionHost:
        """The host; a wire that breaks is an error at once."""
        return make_systemd_host(self.lease.host, self.config, self.transport(), self.claim(), self.worker.data_dir)

    def transport(self) -> Transport:
        """The wire itself."""
        if self._transport is None:
            self._transport = connect(self.config, self.worker.environ)
            self._connections.callback(self._transport.close)
        return self._transport

    def claim(self) -> Claim:
        """In whose name the host is changed."""
        with self.worker.database.read() as session:
            return Claim(hosts.installation_id(session), self.lease.owner, self.lease.fence)

    def _wait(self, seconds: float) -> None:
        self.worker.stop.wait(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connections.close()


def forked_unit(spec: Spec, host: Host) -> UnitSource | None:
    """The unit that an experiment forks, as it is at this moment; None where it forks none."""
    if not isinstance(spec.engine, VllmEngine) or spec.engine.from_unit is None:
        return None
    return host.source(spec.engine.from_unit)


def headers_of(config: HostConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The API key of production as a header, where one is named."""
    reference = config.production_api_key
    return bearer(environ.get(reference.removeprefix("env:")) or None if reference else None)
