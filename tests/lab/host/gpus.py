"""What the host's nvidia-smi says beside the memory that live engines hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Foreign:
    """A process that nvidia-smi lists. Whether there is one with that number is the test's business."""

    pid: int
    gpus: Sequence[int] = (0,)
    used_mib: int = 5000
    name: str = "python3"


@dataclass(frozen=True)
class GpuState:
    """The answer's other half."""

    status: int = 0
    """Exit status."""
    output: str | None = None
    """Printed in place of any answer, as a broken driver does."""
    hang: bool = False
    """Never answers, as with a card that has fallen off the bus."""
    missing: Sequence[int] = ()
    """GPUs that are not listed."""
    cells: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    """Values in place of others: {0: {"memory.used": "[GPU is lost]"}}."""
    holders: Sequence[Foreign] = ()

    def text(self) -> str:
        """As the tool reads it."""
        return json.dumps(asdict(self))
