"""Which servers a worker may be sent to by an experiment."""

from __future__ import annotations

import pytest

from service.domain.endpoint_rule import SETTING, EndpointRule
from service.domain.targets import AllowList

NEVER = "are never asked"
STRANGE = f"is in {SETTING}"


@pytest.mark.parametrize(
    ("allow", "host", "addresses", "why"),
    [
        ("", "localhost", ["127.0.0.1", "::1"], ""),
        ("", "gpu1", ["10.0.0.7"], ""),
        ("", "api.example.org", ["93.184.215.14"], ""),
        ("", "0xA9FEA9FE", ["169.254.169.254"], NEVER),
        ("", "x", ["10.0.0.7", "169.254.169.254"], NEVER),
        ("", "x", ["::ffff:169.254.169.254"], NEVER),
        ("", "x", ["64:ff9b::a9fe:a9fe"], NEVER),
        ("", "x", ["fe80::1%eth0"], NEVER),
        ("", "x", ["fd00:ec2::254"], NEVER),
        ("", "x", ["100.100.100.200"], NEVER),
        ("", "x", ["224.0.0.1"], NEVER),
        ("", "x", ["nonsense"], NEVER),
        ("169.254.0.0/16 x", "x", ["169.254.169.254"], NEVER),
        ("gpu1", "gpu1", ["10.0.0.7"], ""),
        ("gpu1", "gpu2", ["10.0.0.8"], STRANGE),
        ("10.0.0.0/24", "gpu2", ["10.0.0.8"], ""),
        ("10.0.0.0/24", "gpu2", ["10.0.0.8", "10.0.1.8"], STRANGE),
        ("gpu1", "127.0.0.1", ["127.0.0.1"], STRANGE),
        ("gpu1", "own", ["10.0.0.9"], ""),
        ("gpu1", "own", ["169.254.169.254"], NEVER),
    ],
)
def test_who_may_be_asked(allow: str, host: str, addresses: list[str], why: str) -> None:
    found = EndpointRule(AllowList.parse(allow, SETTING), "own").objection(host, addresses)
    assert why in found
    assert bool(why) == bool(found)
