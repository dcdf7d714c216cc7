"""What a simulated model is like: times and acceptance, by prompt, from a JSON file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.sim.acceptance import extend_positions

PACKAGED = Path(__file__).parent / "profiles"


@dataclass(frozen=True)
class PromptProfile:
    """How the simulated model behaves on one kind of prompt, alone on the machine."""

    id: str
    match: str
    """Regular expression looked for in the user's text; the entry without one is the default."""
    ttft_s: float
    step_s: float
    """A plain decode step: one token."""
    verify_ratio: float
    """A step that verifies five drafted tokens takes this many plain steps."""
    acceptance: tuple[float, ...]
    """Share of drafts accepted at each position, of all drafts."""
    coverage: float
    """Share of decode steps that draft at all."""
    reasoning_tokens: int
    total_tokens: int
    """Where the answer ends by itself."""

    def verifying_step_s(self, drafted: int) -> float:
        """A step that verifies `drafted` tokens: on the line from a plain step to the known one for five. A guess, as all of this."""
        return self.step_s * (1 + (self.verify_ratio - 1) * drafted / 5)

    def positions(self, drafted: int) -> list[float]:
        """Acceptance at each of `drafted` positions."""
        return extend_positions(self.acceptance, drafted)


@dataclass(frozen=True)
class Profile:
    """A simulated model."""

    name: str
    seed: int
    """Added to the one of the environment."""
    first_request_ttft_s: float
    """Time to first token of the first real request after a load, when kernels are still cold."""
    slowdown_per_request: float
    """With n requests running, a step takes 1 + this * (n - 1) times as long."""
    shards: int
    weights_gib: float
    kv_cache_gib: float
    kv_cache_tokens: int
    architecture: str
    prompts: tuple[PromptProfile, ...]

    def for_text(self, text: str) -> PromptProfile:
        """The entry whose pattern the user's text matches; else the default, which stands last."""
        return next((entry for entry in self.prompts if entry.match and re.search(entry.match, text, re.IGNORECASE)), self.prompts[-1])

    def crowding(self, running: int) -> float:
        """How much slower a step is with so many requests at once."""
        return 1 + self.slowdown_per_request * max(0, running - 1)


def load_profile(name: str) -> Profile:
    """A packaged profile by name, or one by the path of its JSON file."""
    path = Path(name) if "/" in name or name.endswith(".json") else PACKAGED / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in PACKAGED.glob("*.json")))
        raise ValueError(f"EXPCTL_SIM_PROFILE: no profile {name!r}; packaged: {known}")
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    shared: Mapping[str, Any] = data["default"]
    entries = [_entry({**shared, **entry}) for entry in data.get("prompts", [])]
    return Profile(
        name=data.get("name", path.stem),
        seed=data.get("seed", 0),
        first_request_ttft_s=data.get("first_request_ttft_s", 0.0),
        slowdown_per_request=data.get("slowdown_per_request", 0.04),
        shards=data.get("shards", 8),
        weights_gib=data.get("weights_gib", 10.0),
        kv_cache_gib=data.get("kv_cache_gib", 10.0),
        kv_cache_tokens=data.get("kv_cache_tokens", 262_144),
        architecture=data.get("architecture", "SimulatedForCausalLM"),
        prompts=(*entries, _entry({**shared, "id": "default", "match": ""})),
    )


def _entry(data: Mapping[str, Any]) -> PromptProfile:
    return PromptProfile(
        id=data["id"],
        match=data.get("match", ""),
        ttft_s=data["ttft_ms"] / 1000,
        step_s=data["step_ms"] / 1000,
        verify_ratio=data.get("verify_ratio", 1.0),
        acceptance=tuple(data.get("acceptance", ())),
        coverage=data.get("coverage", 1.0),
        reasoning_tokens=data.get("reasoning_tokens", 0),
        total_tokens=data.get("total_tokens", 512),
    )
