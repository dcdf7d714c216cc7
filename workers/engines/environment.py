"""The environment that an engine is started with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from service.domain.engine_spec import visible_devices
from service.domain.errors import UsageError
from workers.engines.apikey import resolve_env

# Unbuffered, since a buffered log shows progress late and loses the last words of a crash.
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}


def engine_environment(
    own: Mapping[str, str], gpus: Literal["all"] | list[int], environ: Mapping[str, str], given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """An experiment's own variables over those `given`, with references looked up in `environ`, and the GPUs that it may use.

    UsageError where a reference leads nowhere, or where the GPUs are said twice and differently.
    """
    env = {**(given or {}), **resolve_env(own, environ)}
    if gpus != "all":
        visible = visible_devices(gpus)
        if env.setdefault("CUDA_VISIBLE_DEVICES", visible) != visible:
            raise UsageError(
                f"engine.gpus says {visible}, engine.env says CUDA_VISIBLE_DEVICES={env['CUDA_VISIBLE_DEVICES']}",
                "the GPUs are said twice and differently",
                "leave CUDA_VISIBLE_DEVICES out of engine.env",
            )
        # CUDA's own order is by speed; only this one is the order that nvidia-smi numbers cards in.
        env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    return env
