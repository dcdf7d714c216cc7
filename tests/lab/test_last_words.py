"""What a program says before it dies is read, however soon it dies and however busy the host is."""

from __future__ import annotations

import pytest

from tests.lab.host import LabHost, wait_for
from workers.hosts.base import ProductionHost, UnitDefinition, UnitPhase

pytestmark = pytest.mark.lab

RUNS = 30
BUSY = "for i in 1 2 3 4 5 6; do timeout 60 sh -c 'while :; do :; done' >/dev/null 2>&1 & done"


def test_short_lives_on_a_busy_host(helped_host: LabHost, units: ProductionHost) -> None:
    """The journal looks at a program only after it has its first line; of one that is gone by then it does not note which run it was."""
    helped_host.run("sh", "-c", BUSY)
    silent = []
    for number in range(RUNS):
        name = f"expctl-{number}-short"
        units.start_unit(UnitDefinition(name, ("/bin/sh", "-c", "echo it is broken >&2; exit 7"), user="vllm"))
        wait_for(lambda name=name: units.unit(name).phase == UnitPhase.ENDED, 20, f"{name} has failed")  # type: ignore[misc]
        if "it is broken" not in units.read_log(name, None).lines:
            silent.append(name)
    assert silent == []
