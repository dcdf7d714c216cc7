"""The rules that vLLM holds a speculative config to, so that a wrong one is found before a load and not after it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from workers.engines.vllm_help import Objection

OPTION = "--speculative-config"
DEFAULT_LOOKUP = 5
"""Of prompt_lookup_min and _max where neither is set; where one is, the other equals it."""

COMMON = frozenset(
    {
        "method", "model", "num_speculative_tokens", "draft_tensor_parallel_size", "tensor_parallel_size", "max_model_len", "quantization",
        "revision", "code_revision", "enforce_eager", "attention_backend", "moe_backend", "kv_cache_dtype", "draft_load_config",
        "rejection_sample_method", "draft_sample_method", "num_speculative_tokens_per_batch_size", "synthetic_acceptance_length",
        "synthetic_acceptance_rates", "disable_by_batch_size", "disable_logprobs", "posterior_threshold", "posterior_alpha",
        "acceptance_method",
    }
)  # fmt: skip
NGRAM = frozenset({"prompt_lookup_max", "prompt_lookup_min"})
SUFFIX = frozenset(
    {
        "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests", "suffix_decoding_max_spec_factor",
        "suffix_decoding_min_token_prob",
    }
)  # fmt: skip
DRAFTER = frozenset(
    {
        "disable_padded_drafter_batch", "use_local_argmax_reduction", "parallel_drafting", "use_heterogeneous_vocab",
        "disable_eagle_block_drop", "index_share_for_mtp_iteration", "enable_adaptive_verification", "dspark_draft_topk",
        "speculative_token_tree",
    }
)  # fmt: skip
KEYS = COMMON | NGRAM | SUFFIX | DRAFTER
METHODS = frozenset(
    {
        "ngram", "ngram_gpu", "suffix", "eagle", "eagle3", "mtp", "medusa", "mlp_speculator", "draft_model", "dflash", "dspark",
        "extract_hidden_states", "custom_class",
    }
)  # fmt: skip
NEEDS_MODEL = frozenset({"eagle", "eagle3", "medusa", "mlp_speculator", "draft_model", "dflash", "dspark"})
KNOWS_ITS_OWN_LENGTH = frozenset({"suffix", "mtp"})
"""Methods that may go without num_speculative_tokens: the tree's depth, or what the model's config says."""


def object_to_speculation(config: Mapping[str, Any], tensor_parallel: int | None = 1, *, version_known: bool = True) -> list[Objection]:
    """What vLLM refuses of a speculative config.

    `tensor_parallel` None: not known. `version_known`: it is a version whose keys and methods are all listed here; of another one,
    a name that is not listed is in doubt only.
    """
    return [
        Objection(OPTION, text, near, certain=ground == "rule" or (ground == "name" and version_known))
        for ground, text, near in _objections(config, tensor_parallel)
    ]


def lookup_range(config: Mapping[str, Any]) -> tuple[int, int]:
    """prompt_lookup_min and _max as they take effect."""
    low, high = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    low, high = (value if isinstance(value, int) and not isinstance(value, bool) else None for value in (low, high))
    if low is None and high is None:
        return DEFAULT_LOOKUP, DEFAULT_LOOKUP
    return (low if low is not None else high or 0), (high if high is not None else low or 0)


Found = tuple[Literal["rule", "name"], str, str | None]
"""What an objection rests on: a rule that every version has, or names as the known versions have them."""


def _objections(config: Mapping[str, Any], tensor_parallel: int | None) -> Iterator[Found]:
    for key in config:
        if key not in KEYS:
            near = next(iter(difflib.get_close_matches(key, sorted(KEYS), n=1)), None)
            yield "name", f"speculative.{key} is not a key that vLLM knows" + (f"; the nearest valid one: {near}" if near else ""), near
    method = config.get("method")
    known = isinstance(method, str) and (method in METHODS or method.endswith("_mtp"))
    if method is not None and not known:
        near = next(iter(difflib.get_close_matches(str(method), sorted(METHODS), n=1)), None)
        yield "name", f"speculative.method: {method} is not known" + (f"; the nearest valid one: {near}" if near else ""), near
    if method is None and config.get("model") is None:
        yield "rule", "speculative needs a method, or a model to tell it from", "method"
    yield from _of_tokens(config, method)
    if method in {"ngram", "ngram_gpu"}:
        yield from _of_ngram(config)
    if method in NEEDS_MODEL and not config.get("model"):
        yield "rule", f"speculative.method {method} needs speculative.model, the drafter", "model"
    draft = config.get("draft_tensor_parallel_size")
    if draft is not None and tensor_parallel is not None and draft not in {1, tensor_parallel}:
        yield "rule", f"speculative.draft_tensor_parallel_size must be 1 or tensor-parallel-size ({tensor_parallel}), not {draft}", None
    if "tensor_parallel_size" in config:
        yield "name", "speculative.tensor_parallel_size is not taken; draft_tensor_parallel_size is meant", "draft_tensor_parallel_size"


def _of_tokens(config: Mapping[str, Any], method: object) -> Iterator[Found]:
    tokens = config.get("num_speculative_tokens")
    if tokens is None:
        drafter_says = config.get("model") is not None
        if method not in KNOWS_ITS_OWN_LENGTH and not drafter_says and not str(method).endswith("_mtp"):
            yield "rule", "speculative.num_speculative_tokens is missing", "num_speculative_tokens"
    elif not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        yield "rule", f"speculative.num_speculative_tokens must be a whole number of at least 1, not {tokens}", None


def _of_ngram(config: Mapping[str, Any]) -> Iterator[Found]:
    for key in sorted(NGRAM):
        value = config.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            yield "rule", f"speculative.{key} must be a whole number of at least 1, not {value}", None
            return
    low, high = lookup_range(config)
    if low > high:
        yield "rule", f"speculative.prompt_lookup_min ({low}) must be at most prompt_lookup_max ({high})", None
