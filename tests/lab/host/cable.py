"""The cable between this machine and a host. What is sent over a pulled one is gone: no reset, no ICMP, no error."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.lab.host.slot import Slot


@dataclass
class Cable:
    """A bridge of our own, so that our address outlives the host's end: a machine that is off is silent, it is not unreachable."""

    slot: Slot
    plugged: bool = True

    @property
    def mac(self) -> str:
        """The host's."""
        return f"02:99:00:00:{self.slot.number:02x}:02"

    @property
    def end(self) -> str:
        """The host's end, on this machine; it exists while the container does."""
        return f"vb-{self.slot.machine}"

    def lay(self) -> None:
        """Our side of it."""
        bridge = self.slot.bridge
        # Without a fixed address of its own the bridge takes that of its ends, which come and go.
        ip("link", "add", bridge, "address", f"02:99:00:00:{self.slot.number:02x}:01", "type", "bridge", "forward_delay", "0")
        ip("address", "add", f"{self.slot.our_address}/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        # The host's address needs no asking: where nobody answers that, the kernel would soon say "no route to host".
        ip("neighbour", "replace", self.slot.address, "lladdr", self.mac, "dev", bridge, "nud", "permanent")

    def exists(self) -> bool:
        """Whether the host's end is there."""
        return Path(f"/sys/class/net/{self.end}").exists()

    def pull(self) -> None:
        """From now on silence."""
        self.plugged = False
        self.apply()

    def plug(self) -> None:
        """As before; what TCP repeats meanwhile arrives late."""
        self.plugged = True
        self.apply()

    def apply(self) -> None:
        """Bring the host's end, where there is one, into the state it should be in."""
        if self.exists():
            try:
                ip("link", "set", self.end, "up" if self.plugged else "down")
            except subprocess.CalledProcessError:
                if self.exists():  # else the host has ended in this very moment
                    raise


def ip(*argv: str) -> None:
    """A change of this machine's network."""
    subprocess.run(["ip", *argv], check=True)
