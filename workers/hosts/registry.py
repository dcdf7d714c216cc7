"""From a host's row to the host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.hosts.base import Host
from workers.hosts.local import LocalHost


def make_host(name: str, config: Mapping[str, Any], data_dir: Path) -> Host:
    """The host of that name, reached as its settings say."""
    return LocalHost(name, data_dir, nvidia_smi=str(config.get("nvidia_smi", "nvidia-smi")))
