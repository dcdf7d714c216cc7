"""Every reason, its remedy and its retries, from the enum, its rules and the remedies that hold figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from docs.generate.markdown import paragraph, sentence, table
from service.domain.reasons import RULES, Reason, ReasonClass, Retry
from workers.engines.remedies import remedy
from workers.shift import BLOCKING, TRIP_AFTER, TRIPPING

HEAD = ("reason", "what happened", "what to do", "again by itself", "ends as")

CLASSES: dict[ReasonClass, str] = {
    ReasonClass.CONFIG: "The experiment, or what it stands on, has to be changed.",
    ReasonClass.OOM: "Memory did not suffice.",
    ReasonClass.LOAD: "The engine did not come to serve, or did not stay.",
    ReasonClass.GPU: "The GPUs were not free, or not well.",
    ReasonClass.INFRA: "The host, the way to it, or expctl itself.",
    ReasonClass.BENCH: "It served, and what was measured may not be believed.",
    ReasonClass.WINDOW: "Its turn was over, or what it waits for did not come.",
    ReasonClass.USER: "Somebody wanted it so.",
}

FIGURES: dict[Reason, Mapping[str, Any]] = {
    Reason.KV_CACHE_TOO_SMALL: {
        "estimated_max_model_len": 41_248, "requested_max_model_len": 131_072, "needed_gib": 15.25, "available_gib": 4.8,
    },
    Reason.GPU_MEMORY_NOT_FREE_AT_START: {"free_gib": 61.4, "wanted_gib": 85.5},
    Reason.CUDA_OUT_OF_MEMORY: {"tried_gib": 2.0, "total_gib": 94.97, "free_gib": 0.56, "own_gib": 94.3},
    Reason.BAD_ARGUMENTS: {"argument": "--dtype", "value": "bf16", "nearest": "bfloat16"},
    Reason.PORT_IN_USE: {"port": 8001},
    Reason.MODEL_NOT_FOUND: {"path": "/models/kimi"},
    Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS: {"path": "model-00014-of-00029.safetensors"},
    Reason.NCCL_INIT_ERROR: {"path": "/dev/shm/nccl-AbCdEf"},  # noqa: S108 - where NCCL keeps them
    Reason.EXEC_FAILED: {"path": "/opt/vllm/bin/vllm", "errno_text": "Permission denied"},
}  # fmt: skip
"""Of one case each, to show a remedy with figures."""

_TIMES = {1: "once", 2: "twice"}


def reasons() -> str:
    """A table for each class."""
    return "\n".join(f"## {one.value}\n\n{CLASSES[one]}\n\n{table(HEAD, _rows(one))}" for one in CLASSES)


def _rows(wanted: ReasonClass) -> Iterator[tuple[str, str, str, str, str]]:
    for reason, rule in RULES.items():
        if rule.reason_class is wanted:
            yield f"`{reason}`", sentence(rule.sentence), _remedy(reason), again(rule.retry), rule.outcome.value


def _remedy(reason: Reason) -> str:
    plain = sentence(RULES[reason].remedy)
    return f"{plain} Such as: *{remedy(reason, FIGURES[reason])}*" if reason in FIGURES else plain


def again(retry: Retry) -> str:
    """Such as `twice, each time after 60 s`."""
    if not retry.times:
        return "no"
    return f"{_TIMES.get(retry.times, f'{retry.times} times')}, {'each time ' if retry.times > 1 else ''}after {retry.after_s:.0f} s"


def blocking() -> str:
    """What keeps the host from being used until a person has looked."""
    return paragraph(", ".join(f"`{reason}`" for reason in Reason if reason in BLOCKING))


def tripping() -> str:
    """When a shift ends early."""
    classes = ", ".join(f"`{one}`" for one in ReasonClass if one in TRIPPING)
    return f"{TRIP_AFTER} failures in a row, of different configurations, with reasons of the classes {classes}"


BLOCKS: dict[str, Callable[[], str]] = {"reasons": reasons, "blocking": blocking, "tripping": tripping}
