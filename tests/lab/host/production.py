"""The host's production: a vLLM by a unit that a person has written."""

from __future__ import annotations

import json
from collections.abc import Mapping

EXECUTABLE = "/opt/vllm/bin/vllm"
NAME = "vllm-prod.service"

UNIT = """\
[Unit]
Description=Production: the model that everybody uses
After=network.target

[Service]
User=vllm
WorkingDirectory=/var/lib/vllm
Environment=CUDA_VISIBLE_DEVICES={gpus}
EnvironmentFile=/etc/default/{stem}
ExecStart={executable} serve ${{MODEL}} --served-model-name production --port {port} \\
    --tensor-parallel-size {count} --max-model-len 32768 $EXTRA_ARGS
Restart=on-failure
RestartSec=1
TimeoutStopSec=30

[Install]
WantedBy=multi-user.target
"""


def unit_text(name: str, port: int, gpus: str) -> str:
    """The unit's file."""
    stem = name.removesuffix(".service")
    return UNIT.format(gpus=gpus, stem=stem, executable=EXECUTABLE, port=port, count=len(gpus.split(",")))


def defaults_text(extra: str, env: Mapping[str, str]) -> str:
    """Its EnvironmentFile."""
    values = {"MODEL": "/srv/models/production", "EXTRA_ARGS": extra, **env}
    return "".join(f'{key}="{value}"\n' for key, value in values.items())


def sim_text(title_after_s: float | None, knobs: Mapping[str, str]) -> str:
    """Settings of every simulated engine on the host; see workers/sim/knobs.py."""
    values = {"STATE_DIR": "/run/gpus", "PROFILE": "fast", "LOAD_SECONDS": "0.3", **knobs}
    environment = {f"EXPCTL_SIM_{key}": value for key, value in values.items()}
    return json.dumps({"title_after_s": title_after_s, "environment": environment})
