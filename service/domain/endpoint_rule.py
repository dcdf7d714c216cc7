"""Which addresses an `endpoint` experiment may have the worker ask. Pure: whoever asks resolves the names.

The worker reaches machines that a submitter may not, and tells of what they answer. Engines stand in private networks, so those are
open unless the operator names what is; what hands out a cloud's credentials is never an engine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from service.domain.targets import Address, AllowList, address_of, wraps_another

SETTING = "EXPCTL_ENDPOINT_ALLOW"
METADATA = frozenset(
    ipaddress.ip_address(one) for one in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
"""Where clouds answer for a machine's identity outside the link-local networks."""


@dataclass(frozen=True)
class EndpointRule:
    """What the operator allows, and the host's own address, which is always fine."""

    allow: AllowList = field(default_factory=AllowList)
    own: str = ""

    def objection(self, host: str, addresses: Sequence[str]) -> str:
        """Why a server may not be asked, by the host in its URL and the addresses that stands for; empty where it may."""
        for text in addresses:
            if _never(address_of(text)):
                return f"{host} stands for {text}: link-local, multicast and metadata addresses are never asked"
        if self.allow == AllowList() or host == self.own or self.allow.names_host("endpoint", host):
            return ""
        strange = next((text for text in addresses if not self.allow.names_host("endpoint", text)), None)
        if strange is None:
            return ""
        return f"neither {host} nor {strange} is in {SETTING}; an operator adds it there and starts the worker again"


def _never(address: Address | None) -> bool:
    return address is None or address.is_link_local or address.is_multicast or address in METADATA or wraps_another(address)
