"""Small programs that a host runs in tests, and what it keeps of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from workers.hosts.base import UnitDefinition
from workers.hosts.local import LocalHost

MakeUnit = Callable[..., UnitDefinition]
WaitUntil = Callable[..., None]
UNIT = "expctl-1-test"
FOREVER = "import signal; print('up', flush=True); signal.pause()"
STUBBORN_FAMILY = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    if os.fork() == 0:
        print('grandchild', os.getpid(), flush=True)
        signal.pause()
    signal.pause()
print('parent', os.getpid(), flush=True)
signal.pause()
"""


def record(tmp_path: Path, unit: str = UNIT) -> dict[str, object]:
    return dict(json.loads((tmp_path / "units" / unit / "unit.json").read_text()))


def log_text(host: LocalHost, unit: str = UNIT) -> str:
    return "\n".join(host.read_log(unit, None).lines)
