"""Whether the GPUs are free, and who holds them if not. Unknown is never free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.domain.reasons import Reason
from workers.diagnosis.gpu_evidence import GpuEvidence
from workers.hosts.gpu_reading import GpuHolder

TOLERANCE_MIB = 1024
"""Above the baseline, a card still counts as free: drivers, displays and MIG take some."""
ENGINE_NAMES = ("vllm", "sglang", "llama", "python", "enginecore")
UNKILLABLE_STATES = ("D",)


@dataclass
class ProcessNote:
    """What else the evidence says of a pid."""

    owner: str | None = None
    parent: int | None = None
    state: str | None = None
    exists: bool | None = None
    survived_kill: bool = False


@dataclass
class Surroundings:
    """What stands beside the tool's answer."""

    baseline_mib: int | None = None
    unit_state: str | None = None
    unit_pid: int | None = None
    unit_user: str | None = None
    notes: Mapping[int, ProcessNote] = field(default_factory=dict)


@dataclass
class GpuVerdict:
    """The answer, with its figures."""

    freed: bool | None
    reason: Reason | None = None
    evidence: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def judge_gpus(found: GpuEvidence, around: Surroundings) -> GpuVerdict:
    """Weigh memory, processes and what surrounds them."""
    facts = dict(found.facts)
    if found.failed:
        facts["gpu_query"] = "failed"
        return GpuVerdict(None, found.reason, found.evidence, facts, list(found.warnings))
    facts |= _memory_facts(found, around)
    used = [gpu.used_mib for gpu in found.gpus]
    holding = [holder for holder in found.holders if holder.used_mib != 0 and not _is_furniture(holder, used, around)]
    if holding:
        return _held(holding, found, around, facts)
    if not used or any(amount is None for amount in used):
        return GpuVerdict(
            None, None, "", facts, [*found.warnings, "memory_not_reported: unknown is not free; host memory is the remaining sign"]
        )
    limit = (around.baseline_mib or 0) + TOLERANCE_MIB
    above = [gpu for gpu in found.gpus if (gpu.used_mib or 0) > limit]
    if not above:
        return GpuVerdict(True, None, "", facts, list(found.warnings))
    text = ", ".join(f"GPU {gpu.index} {gpu.used_mib} MiB" for gpu in above)
    facts.setdefault("owner", "unknown")
    hint = "no process is listed: it may still be given back (wait and look again), belong to another container, or be lost in the driver"
    return GpuVerdict(
        False,
        Reason.HELD_BY_UNKNOWN_PROCESS,
        f"used and nobody listed: {text}",
        facts,
        [*found.warnings, f"memory_without_process: {hint}"],
    )


def _memory_facts(found: GpuEvidence, around: Surroundings) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    used = [gpu.used_mib for gpu in found.gpus]
    if used:
        known = [amount for amount in used if amount is not None]
        facts["used_mib"] = sum(known) if len(known) == len(used) else None
        reserved = [gpu.reserved_mib for gpu in found.gpus if gpu.reserved_mib is not None]
        if reserved:
            facts["reserved_mib"] = sum(reserved)
    if around.baseline_mib is not None:
        facts["baseline_mib"] = around.baseline_mib
    held = [holder.used_mib for holder in found.holders]
    if held and all(amount is not None for amount in held):
        facts["processes_mib"] = sum(amount for amount in held if amount is not None)
    if facts.get("used_mib") is None and held:
        facts["source"] = "compute-apps"
    if facts.get("vendor") is None and found.facts.get("vendor") == "amd":
        facts["cards"] = [{"device": f"card{gpu.index}", "total_mib": gpu.total_mib, "used_mib": gpu.used_mib} for gpu in found.gpus]
    return facts


def _is_furniture(holder: GpuHolder, used: list[int | None], around: Surroundings) -> bool:
    """A display server and its like: named, small, no engine, on cards that are all but empty."""
    if holder.name is None or holder.used_mib is None or any(word in holder.name.lower() for word in ENGINE_NAMES):
        return False
    limit = (around.baseline_mib or 0) + TOLERANCE_MIB
    return bool(used) and all(amount is not None and amount <= limit for amount in used)


def _held(holding: list[GpuHolder], found: GpuEvidence, around: Surroundings, facts: dict[str, Any]) -> GpuVerdict:
    largest = max(holding, key=lambda holder: holder.used_mib or 0)
    note = around.notes.get(largest.pid, ProcessNote())
    reason = _reason(largest, note, around)
    facts |= {"pid": largest.pid, "next_start": "blocked"}
    if facts.get("used_mib") is None and "used_mib" not in facts:
        facts["used_mib"] = largest.used_mib
    owner = note.owner or largest.owner
    if owner or reason == Reason.HELD_BY_UNKNOWN_PROCESS:
        facts["owner"] = owner or "unknown"
    if largest.name:
        facts["process"] = largest.name
    amount = "an unknown amount" if largest.used_mib is None else f"{largest.used_mib} MiB"
    evidence = f"pid {largest.pid} ({largest.name or 'no name'}) holds {amount}"
    return GpuVerdict(False, reason, evidence, facts, list(found.warnings))


def _reason(holder: GpuHolder, note: ProcessNote, around: Surroundings) -> Reason | None:
    if note.survived_kill or (note.state or " ")[0] in UNKILLABLE_STATES:
        return Reason.UNKILLABLE_PROCESS
    if note.exists is False or holder.name is None:
        return Reason.HELD_BY_UNKNOWN_PROCESS
    owner = note.owner or holder.owner
    if owner and around.unit_user and owner != around.unit_user:
        return Reason.HELD_BY_OTHER_USER
    gone = around.unit_state in {"inactive", "failed", "not_found"}
    looks_ours = any(word in holder.name.lower() for word in ENGINE_NAMES)
    if note.parent == 1 or (gone and looks_ours and (not owner or owner == around.unit_user or around.unit_user is None)):
        return Reason.ORPHAN_PROCESS
    if owner and around.unit_user is None and not looks_ours:
        return Reason.HELD_BY_OTHER_USER
    return None
