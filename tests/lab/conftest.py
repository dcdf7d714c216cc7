"""The lab's hosts as fixtures."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from service.domain.host_config import HostConfig
from tests.lab.fleet import HELPER, PRODUCTION
from tests.lab.host import Lab, LabHost, NewHost
from workers.hosts.base import ProductionHost
from workers.hosts.helper.assemble import assemble, default_config
from workers.hosts.helper_client import Claim
from workers.hosts.registry import connect, make_systemd_host

CLAIM = Claim("11111111-2222-3333-4444-555555555555", "test", 1)
HOSTS = pytest.StashKey[list[LabHost]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of the journal of its hosts, which are gone by the time that a person reads it."""
    report = yield
    hosts = [host for node in item.listchain() for host in node.stash.get(HOSTS, [])]
    for host in hosts if report.failed and report.when in {"setup", "call"} else ():
        report.sections.append((f"journal of {host.name}", host.run("journalctl", "-n", "60", "--no-pager", check=False).stdout))
    return report


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The lab on this machine. Its root is built here, unless `make test-all` has done it."""
    assert os.geteuid() == 0, "the lab's hosts are containers with a systemd of their own: they need root"
    place = os.environ.get("EXPCTL_LAB_DIR", "/var/tmp/expctl-lab")  # noqa: S108 - kept between runs
    made = Lab(Path(place), tmp_path_factory.mktemp("lab"))
    assert made.base.exists()
    return made


@contextmanager
def making(lab: Lab, folder: Path, hosts: list[LabHost]) -> Iterator[NewHost]:
    """What makes hosts, and removes them at the end."""
    addresses = lab.addresses(folder)
    with ExitStack() as stack:

        def make(name: str = "gpu0", *, boot: bool = True, binds: Sequence[Path] = (), disk_mib: int | None = None) -> LabHost:
            made = lab.host(name, addresses, binds, disk_mib)
            stack.callback(made.remove)
            hosts.append(made)
            if boot:
                made.boot()
            return made

        yield make


@pytest.fixture
def new_host(lab: Lab, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[NewHost]:
    """Makes hosts of the test's own; see NewHost."""
    with making(lab, tmp_path_factory.mktemp("ssh"), request.node.stash.setdefault(HOSTS, [])) as make:
        yield make


@pytest.fixture(scope="module")
def new_shared_host(lab: Lab, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[NewHost]:
    """The same for all tests of one file, where a host takes minutes to be ready."""
    with making(lab, tmp_path_factory.mktemp("ssh"), request.node.stash.setdefault(HOSTS, [])) as make:
        yield make


@pytest.fixture
def host(new_host: NewHost) -> LabHost:
    """A host that is up and idle: "gpu0"."""
    return new_host()


@pytest.fixture
def production_host(new_host: NewHost) -> LabHost:
    """A host whose production serves on port 8000 and holds all GPUs."""
    made = new_host()
    made.install_production()
    return made


@pytest.fixture
def helped_host(production_host: LabHost) -> LabHost:
    """A host with the helper, whose production is stopped."""
    production_host.write(HELPER, assemble(), mode=0o755)
    production_host.write("/etc/expctl-host.json", default_config(parked=[PRODUCTION], run_as=["vllm"]))
    production_host.run("systemctl", "stop", PRODUCTION)
    return production_host


@pytest.fixture
def units(helped_host: LabHost) -> Iterator[ProductionHost]:
    """The product's own way to that host."""
    config = HostConfig(ssh=f"root@{helped_host.name}", units="systemd", park=[PRODUCTION], run_as="vllm")
    transport = connect(config, helped_host.environment)
    yield make_systemd_host(helped_host.name, config, transport, CLAIM)
    transport.close()
