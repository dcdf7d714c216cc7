"""Small programs `vllm`, `sglang` and `nvidia-smi` that start the simulation, for a host that is given paths of programs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.sim.knobs import PREFIX

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds the package `workers`: site-packages, or a checkout."""


@dataclass(frozen=True)
class SimLaunchers:
    """Where the programs stand."""

    engine: Path
    nvidia_smi: Path
    sglang: Path
    """The engine again, with the words of SGLang."""


def write_launchers(folder: Path, env: Mapping[str, str]) -> SimLaunchers:
    """Write the programs into `folder`. Of `env` they export the EXPCTL_SIM_* values; what their own environment says comes first."""
    folder.mkdir(parents=True, exist_ok=True)
    knobs = {key: value for key, value in env.items() if key.startswith(PREFIX)}
    return SimLaunchers(
        engine=_write(folder / "vllm", "workers.sim", knobs),
        nvidia_smi=_write(folder / "nvidia-smi", "workers.sim.nvidia_smi", knobs),
        sglang=_write(folder / "sglang", "workers.sim.sglang_serve", knobs),
    )


def _write(path: Path, module: str, knobs: Mapping[str, str]) -> Path:
    lines = ["#!/bin/sh", f"# A simulation written by expctl: starts {module}, no real engine and no real GPU."]
    for key, value in sorted(knobs.items()):
        lines += [f'if [ -z "${{{key}+set}}" ]; then {key}={shlex.quote(value)}; fi', f"export {key}"]
    root = shlex.quote(str(ROOT))
    lines += [f'export PYTHONPATH={root}"${{PYTHONPATH:+:$PYTHONPATH}}"', f'exec {shlex.quote(sys.executable)} -P -m {module} "$@"']
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path
