"""The host in memory keeps the promises of the real one."""

from __future__ import annotations

import pytest

from service.domain.reasons import Reason
from workers.hosts.base import Host, HostError, UnitDefinition, UnitPhase
from workers.hosts.fake import FakeHost

DEFINITION = UnitDefinition("u", ("vllm",))


def test_a_units_life() -> None:
    fake = FakeHost()
    host: Host = fake
    assert host.unit("u").phase == UnitPhase.NOT_FOUND
    state = host.start_unit(DEFINITION)
    assert host.start_unit(DEFINITION) == state
    with pytest.raises(HostError):
        host.start_unit(UnitDefinition("u", ("other",)))
    fake.say("u", "one", "two")
    chunk = host.read_log("u", None)
    fake.say("u", "three")
    assert host.read_log("u", chunk.cursor).lines == ("three",)
    fake.listen("u", 8001)
    assert host.port_owner(8001).unit == "u"
    assert host.stop_unit("u").signal == 15
    assert host.port_owner(8001) is None
    again = host.start_unit(DEFINITION)
    assert again.invocation_id != state.invocation_id
    assert host.read_log("u", chunk.cursor).lines == ()
    fake.end("u", exit_status=1, left_over=(7,))
    assert host.units()[0].left_over_pids == (7,)
    assert host.stop_unit("u").left_over_pids == ()


def test_scripted_failures_and_calls() -> None:
    fake = FakeHost()
    fake.fail("gpus", Reason.GPU_LOST, times=2)
    for _ in range(2):
        with pytest.raises(HostError, match="gpu_lost"):
            fake.gpus()
    assert fake.gpus().no_gpus
    assert fake.calls == [("gpus", "")] * 3
    assert fake.facts() == {"kernel": "fake"}
