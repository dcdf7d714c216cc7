"""What to change, with the figure in it; the reason's general remedy where no figure is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.domain.reasons import RULES, Reason
from workers.engines.renamed import nearest_option

Facts = Mapping[str, Any]


def remedy(reason: Reason, facts: Facts, engine: str | None = None) -> str:
    """One or two sentences for a person."""
    special = _SPECIAL.get(reason)
    return (special(facts, engine) if special else None) or RULES[reason].remedy


def _kv_cache(facts: Facts, engine: str | None) -> str | None:
    estimate, asked = facts.get("estimated_max_model_len"), facts.get("requested_max_model_len")
    if estimate:
        needed, there = facts.get("needed_gib"), facts.get("available_gib")
        why = f" ({needed} GiB are needed, {there} GiB are there)" if needed and there else ""
        return f"set max-model-len to {estimate} or less{f' instead of {asked}' if asked else ''}{why}, or give the KV cache more memory"
    if engine == "sglang":
        return "raise --mem-fraction-static, use more GPUs, or a smaller quantisation"
    return "the weights leave nothing for the cache: raise gpu-memory-utilization, use more GPUs, or a smaller quantisation"


def _not_free(facts: Facts, _engine: str | None) -> str | None:
    if "free_gib" not in facts:
        return None
    wanted = f" of {facts['wanted_gib']} GiB wanted" if facts.get("wanted_gib") else ""
    held = f": somebody holds {facts['not_free_gib']} GiB" if facts.get("not_free_gib") else ""
    return f"only {facts['free_gib']} GiB{wanted} were free{held}; find out who (nvidia-smi) and start again once it is free"


def _out_of_memory(facts: Facts, engine: str | None) -> str | None:
    tried, total, free = facts.get("tried_gib"), facts.get("total_gib"), facts.get("free_gib")
    if not tried:
        return _LESS.get(engine)
    hint = oom_hint(facts)
    what = f"{tried} GiB were asked for" + (f", {free} of {total} GiB were free" if free is not None and total else "")
    if total and tried > total:
        return f"{what}: {hint}; look at the shapes and sizes that were asked for (batch, context, a wrong config)"
    rest = _LESS.get(engine, "lower gpu-memory-utilization, max-num-seqs or max-num-batched-tokens, or use more GPUs")
    return f"{what}{f': {hint}' if hint else ''}; {rest}"


_LESS: dict[str | None, str] = {
    "llama.cpp": "lower --ctx-size or --n-gpu-layers, use a smaller quantisation, or more GPUs",
    "sglang": "lower --mem-fraction-static, --cuda-graph-max-bs or --chunked-prefill-size, or use more GPUs",
}


def oom_hint(facts: Facts) -> str | None:
    """Who filled the card, as far as the message tells."""
    tried, total = facts.get("tried_gib"), facts.get("total_gib")
    own = facts.get("own_gib") or facts.get("own_pytorch_gib")
    others = facts.get("others_gib")
    if tried and total and tried > total:
        return "one request larger than the whole card: wrong sizes, not a full card"
    if others and own and others > own:
        return f"other processes hold {others} GiB of the card"
    return "the card was filled by this engine itself" if own else None


def _arguments(facts: Facts, engine: str | None) -> str | None:
    argument = facts.get("argument")
    if not argument:
        return None
    special = next((text(facts) for figure, text in _OF_ARGUMENTS if facts.get(figure)), None)
    if special:
        return special
    if facts.get("value"):
        instead = f"; {facts['nearest']} is the nearest that it takes" if facts.get("nearest") else ""
        return f"{argument} does not take {facts['value']}{instead}"
    near = facts.get("nearest") or nearest_option(str(argument), engine=engine)
    if near:
        return f"this version does not know {argument}; instead: {near}"
    return f"correct {argument}; the engine's --help lists the valid ones"


def _fitting(facts: Facts) -> str:
    heads = int(facts["attention_heads"])
    sizes = [str(size) for size in range(1, int(facts["tensor_parallel_size"]) + 1) if heads % size == 0]
    return f"the model has {heads} attention heads: set tensor-parallel-size to one of {', '.join(sizes)}"


_OF_ARGUMENTS: tuple[tuple[str, Callable[[Facts], str]], ...] = (
    ("model_max_len", lambda facts: f"set max-model-len to {facts['model_max_len']} or less"),
    (
        "gpus",
        lambda facts: f"{facts['world_size']} GPUs are asked for and {facts['gpus']} are there: lower tensor- or pipeline-parallel-size",
    ),
    ("attention_heads", _fitting),
    ("prompt_lookup_min", lambda facts: f"set prompt_lookup_min to at most prompt_lookup_max ({facts['prompt_lookup_max']})"),
)


def _port(facts: Facts, _engine: str | None) -> str | None:
    port = facts.get("port")
    return f"find out who listens on port {port} (ss -ltnp), stop it, or choose another engine.port" if port else None


def _path(facts: Facts, _engine: str | None) -> str | None:
    path = facts.get("path")
    return f"check that {path} exists and that the engine's user may read it" if path else None


def _weights(facts: Facts, _engine: str | None) -> str | None:
    path = facts.get("path")
    return f"{path} is damaged or missing: copy the model again and compare checksums" if path else None


def _nccl(facts: Facts, _engine: str | None) -> str | None:
    path = str(facts.get("path") or "")
    return "free /dev/shm: files named nccl-* that no living process maps are left over" if path.startswith("/dev/shm") else None  # noqa: S108


def _exec(facts: Facts, _engine: str | None) -> str | None:
    path = facts.get("path")
    if not path:
        return None
    return f"{path}: {facts.get('errno_text') or 'could not be executed'}; check the path, its mode, and the interpreter in its first line"


_SPECIAL: dict[Reason, Callable[[Facts, str | None], str | None]] = {
    Reason.KV_CACHE_TOO_SMALL: _kv_cache,
    Reason.GPU_MEMORY_NOT_FREE_AT_START: _not_free,
    Reason.CUDA_OUT_OF_MEMORY: _out_of_memory,
    Reason.BAD_ARGUMENTS: _arguments,
    Reason.PORT_IN_USE: _port,
    Reason.MODEL_NOT_FOUND: _path,
    Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS: _weights,
    Reason.NCCL_INIT_ERROR: _nccl,
    Reason.EXEC_FAILED: _exec,
}
