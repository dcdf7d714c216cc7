"""What all hosts of a test run share: the built root, the key, and the places on this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import workers
from tests.lab import make_host
from tests.lab.host.addresses import Addresses, new_key
from tests.lab.host.cable import Cable
from tests.lab.host.disk import Disk, overlay_works
from tests.lab.host.machine import LabHost
from tests.lab.host.power import Power
from tests.lab.host.slot import Slot

SOURCES = Path(workers.__path__[0])


class NewHost(Protocol):
    """The fixture `new_host`."""

    def __call__(self, name: str = "gpu0", *, boot: bool = True, binds: Sequence[Path] = (), disk_mib: int | None = None) -> LabHost:
        """A host of the test's own, gone after it. `binds`: folders of this machine to see read-only; `disk_mib`: to fill it."""


@dataclass(frozen=True)
class Lab:
    """One for a test run. `folder` outlives it, `scratch` does not."""

    folder: Path
    scratch: Path

    @cached_property
    def base(self) -> Path:
        """The built root; built now where it is missing."""
        return make_host.root_of(self.folder) if make_host.is_built(self.folder) else make_host.build(self.folder)

    @cached_property
    def key(self) -> Path:
        """The private key that every user of every host trusts."""
        new_key(self.scratch / "key")
        return self.scratch / "key"

    @property
    def real_vllm(self) -> list[Path]:
        """Folders to bind where a host shall run the lab's real vLLM: it, its model, and the Python that its environment links to."""
        environment = self.folder / "vllm"
        for file in (self.folder / "tiny").iterdir():
            file.chmod(0o644)  # the weights are written for their owner alone, and a unit's user is another
        [home] = re.findall(r"^home = (.+)$", (environment / "pyvenv.cfg").read_text(), re.MULTILINE)
        prefix = Path(home).resolve().parent
        return [environment, self.folder / "tiny", *([prefix] if prefix != Path("/usr") else [])]

    def addresses(self, folder: Path) -> Addresses:
        """A new test's, with no host yet."""
        return Addresses(folder, self.key)

    def host(self, name: str, addresses: Addresses, binds: Sequence[Path] = (), disk_mib: int | None = None) -> LabHost:
        """A new host that is off: nothing of any earlier one is on it. Whoever asks for it must call its `remove`."""
        overlay = overlay_works(self.scratch / "overlay")
        slot = Slot.take(self.folder / "hosts")
        try:
            disk = Disk.make(self.base, slot.folder / "disk", disk_mib, overlay=overlay)
            cable = Cable(slot)
            cable.lay()
            seen = [(SOURCES, "/opt/expctl/workers"), *((path, str(path)) for path in binds)]
            host = LabHost(name, slot, disk, cable, Power(slot, disk, cable, name, seen), addresses)
            host.provision(self.key.with_name("key.pub").read_text())
        except BaseException:
            slot.give_back()
            raise
        return host
