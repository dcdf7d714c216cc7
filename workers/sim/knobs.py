"""What steers the simulation, all of it from the environment.

| variable | default | meaning |
|---|---|---|
| EXPCTL_SIM_LOAD_SECONDS | 3 | how long a load takes; 0 for at once |
| EXPCTL_SIM_PROFILE | kimi-k2.5 | name of a packaged profile (`workers/sim/profiles`), or the path of a JSON file |
| EXPCTL_SIM_SEED | 1 | shifts the acceptance process |
| EXPCTL_SIM_FAULT | (none) | comma list of the faults below |
| EXPCTL_SIM_STATE_DIR | <temporary folder>/expctl-sim-<uid> | where a live engine says which GPUs it holds |

Faults of a load: `oom_at_load`, `kv_cache_too_small`, `hang_at=45` (stops at 45 % of the shards, alive), `ignore_term` (once
it serves, a process of the same group is deaf to SIGTERM, stays behind and holds the GPUs).
Faults of a stream, after N tokens: `exit_mid_stream=N`, `error_chunk=N`, `truncate=N` (closes cleanly without an end),
`abort=N` (finish_reason "abort"), `reset=N` (connection reset), `hang_stream=N`; and `no_usage`. `@request=K` restricts one to
the K-th request: `truncate=5@request=2`. Requests for a single token (probes) neither count nor fail.
Others: `wrong_health` (/health says 500), `smi_fails` (nvidia-smi cannot reach its driver).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "EXPCTL_SIM_"
PLAIN_FAULTS = ("oom_at_load", "kv_cache_too_small", "ignore_term", "no_usage", "wrong_health", "smi_fails")
NUMBERED_FAULTS = ("hang_at", "exit_mid_stream", "error_chunk", "truncate", "abort", "reset", "hang_stream")
STREAM_FAULTS = ("exit_mid_stream", "error_chunk", "truncate", "abort", "reset", "hang_stream")


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong on demand."""

    name: str
    value: int = 0
    request: int | None = None
    """Only this request, counted from 1; None for every request."""

    def hits(self, request: int) -> bool:
        """Whether the fault is meant for this request."""
        return self.request is None or self.request == request


@dataclass(frozen=True)
class Knobs:
    """The simulation's settings."""

    load_seconds: float = 3.0
    profile: str = "kimi-k2.5"
    seed: int = 1
    faults: tuple[Fault, ...] = ()
    state_dir: Path = Path()

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Knobs:
        """Read EXPCTL_SIM_*; ValueError names the one that cannot be read."""
        return cls(
            load_seconds=float(_read(env, "LOAD_SECONDS", "3")),
            profile=_read(env, "PROFILE", "kimi-k2.5"),
            seed=int(_read(env, "SEED", "1")),
            faults=parse_faults(_read(env, "FAULT", "")),
            state_dir=state_dir(env),
        )

    def fault(self, name: str) -> Fault | None:
        """The fault of that name, if it was asked for."""
        return next((fault for fault in self.faults if fault.name == name), None)

    def stream_fault(self, request: int) -> Fault | None:
        """The fault that ends this request's stream early, if any."""
        return next((fault for fault in self.faults if fault.name in STREAM_FAULTS and fault.hits(request)), None)


def _read(env: Mapping[str, str], key: str, default: str) -> str:
    return env.get(PREFIX + key) or default


def state_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Where live engines and the simulated nvidia-smi meet."""
    given = env.get(PREFIX + "STATE_DIR")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"expctl-sim-{os.getuid()}"


def parse_faults(text: str) -> tuple[Fault, ...]:
    """`truncate=5@request=2,no_usage` as faults; ValueError for an unknown one, so that a typing mistake is no silent success."""
    return tuple(_parse_fault(item.strip()) for item in text.split(",") if item.strip())


def _parse_fault(item: str) -> Fault:
    body, _, condition = item.partition("@")
    name, has_value, value = body.partition("=")
    if (name in NUMBERED_FAULTS) != bool(has_value) or name not in PLAIN_FAULTS + NUMBERED_FAULTS:
        known = ", ".join(PLAIN_FAULTS + tuple(f"{numbered}=N" for numbered in NUMBERED_FAULTS))
        raise ValueError(f"{PREFIX}FAULT: unknown fault {item!r}; known: {known}")
    request: int | None = None
    if condition:
        key, _, number = condition.partition("=")
        if key != "request":
            raise ValueError(f"{PREFIX}FAULT: {condition!r} is not of the form request=K")
        request = int(number)
    return Fault(name, int(value) if value else 0, request)
