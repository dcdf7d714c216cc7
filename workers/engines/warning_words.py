"""Warnings that people ask about at night: what they mean, and whether they matter."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownWarning:
    """A line, a short code for it, and a word on it."""

    pattern: re.Pattern[str]
    code: str
    word: str


def _known(pattern: str, code: str, word: str) -> KnownWarning:
    return KnownWarning(re.compile(pattern), code, word)


KNOWN: tuple[KnownWarning, ...] = (
    _known(
        r"min_p, logit_bias,? and min_tokens parameters won't (?:currently )?work with speculative decoding",
        "sampling_limits",
        "matters only for requests that set min_p, logit_bias or min_tokens: up to 0.13 they are ignored, from 0.14 refused with HTTP 400",
    ),
    _known(
        r"min_p and logit_bias parameters won't work with speculative decoding",
        "sampling_limits",
        "matters only for requests that set min_p or logit_bias: they are refused with HTTP 400; a min_p in the model's "
        "generation_config.json counts as set, so serve with --generation-config vllm",
    ),
    _known(
        r"Default (?:vLLM )?sampling parameters have been overridden by .{0,80}generation_config.{0,200}min_p",
        "generation_config_min_p",
        "matters under speculation: every request then has a min_p, which is refused; serve with --generation-config vllm",
    ),
    _known(
        r"Default (?:vLLM )?sampling parameters have been overridden by|[Dd]efault sampling parameters .{0,80}generation_config",
        "generation_config",
        "matters for comparisons: requests inherit the model's own sampling defaults; --generation-config vllm turns that off",
    ),
    _known(
        r"Async scheduling (?:is )?not (?:yet )?supported with",
        "async_scheduling_off",
        "matters for comparisons: a baseline without speculation has async scheduling on; --no-async-scheduling makes them alike",
    ),
    _known(
        r"Model Runner V2 (?:does not yet support|requires)|using the V1 model runner instead",
        "model_runner_v1",
        "harmless; it decides which n-gram proposer runs (numba), so compare acceptance only with runs of the same one",
    ),
    _known(r"is deprecated and replaced with mtp", "method_renamed", "harmless: the old name of the method is understood"),
    _known(
        r"Enabling num_speculative_tokens > 1 will run multiple times of forward on same MTP layer",
        "mtp_repeated",
        "matters: one MTP layer guesses later tokens worse; look at the acceptance by position",
    ),
    _known(r"No available shared memory broadcast block found", "shm_broadcast", "harmless now and then while something takes long"),
    _known(
        r"Referenced but unset environment variable evaluates to an empty string: ",
        "unset_variable",
        "matters if the `$` was meant for the program: systemd puts in nothing; write $$",
    ),
    _known(r"Enforce eager set, disabling", "enforce_eager", "matters for speed: neither compilation nor CUDA graphs"),
    _known(
        r"(?:custom|quick) ?all-?reduce is disabled|Custom allreduce is disabled",
        "custom_allreduce_off",
        "matters for tensor parallelism over PCIe: AllReduce goes through NCCL",
    ),
    _known(r"max_num_scheduled_tokens is set to", "scheduled_tokens_limited", "may matter for speed: raise max-num-batched-tokens"),
    _known(r"Found ulimit of \d+ and failed to automatically increase", "ulimit", "matters with hundreds of streams: set LimitNOFILE="),
    _known(r"Performance might be sub-optimal|sub-?optimal performance", "kernel_config", "may matter for speed, not for the results"),
    _known(r"PROMETHEUS_MULTIPROC_DIR", "multiproc_dir", "matters: counters of earlier runs may be mixed in; leave the variable unset"),
    _known(r"process group has NOT been destroyed|destroy_process_group\(\) was not called", "process_group", "harmless at a stop"),
    _known(r"libtcmalloc is not found|libiomp is not found", "preload", "may matter for speed on CPUs"),
    _known(r"Suppressed \d+ messages? from", "journal_rate_limit", "lines are gone for good; ready and error lines may be among them"),
)


def word_on(message: str) -> str | None:
    """`code: what was said (what it means)` for a known warning; None for any other line."""
    found = known_warning(message)
    return None if found is None else f"{found.code}: {message.strip()[:200]} ({found.word})"


def known_warning(message: str) -> KnownWarning | None:
    """The known warning that a line is; None for any other."""
    return next((one for one in KNOWN if one.pattern.search(message)), None)
