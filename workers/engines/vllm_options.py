"""vLLM's command line, read word by word without vLLM: which words are an option, its values, or the model.

Which options take a value is not asked of any version: a name says so where it begins like a switch (`--enable-...`), the few
that say it otherwise are listed, and of the rest each takes one value. Only the place of the model depends on that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SHORT: dict[str, str] = {
    "-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size", "-dpn": "data-parallel-rank",
    "-dpr": "data-parallel-start-rank", "-dpl": "data-parallel-size-local", "-dpa": "data-parallel-address",
    "-dpp": "data-parallel-rpc-port", "-dpb": "data-parallel-backend", "-dph": "data-parallel-hybrid-lb",
    "-dpe": "data-parallel-external-lb", "-dpm": "data-parallel-multi-port-external-lb", "-dcp": "decode-context-parallel-size",
    "-pcp": "prefill-context-parallel-size", "-ep": "enable-expert-parallel", "-sc": "speculative-config", "-dc": "diffusion-config",
    "-cc": "compilation-config", "-ac": "attention-config", "-asc": "api-server-count", "-q": "quantization", "-n": "nnodes",
    "-r": "node-rank",
}  # fmt: skip
"""Short options, vLLM 0.8 to 0.32."""

SAME: dict[str, str] = {"device-memory-utilization": "gpu-memory-utilization"}
"""Two names of one option."""

LISTS = frozenset(
    {
        "served-model-name", "api-key", "lora-modules", "allowed-media-domains", "sleep-preserve-parameter-names", "logits-processors",
        "ignore-patterns", "numa-bind-nodes", "numa-bind-cpus", "kv-cache-dtype-skip-layers", "cpu-offload-params", "offload-params",
        "lora-target-modules", "collect-detailed-traces", "cudagraph-capture-sizes", "cuda-graph-sizes", "prompt-adapters",
    }
)  # fmt: skip
"""Options that take every word up to the next option."""

_SWITCHES = frozenset(
    {
        "headless", "grpc", "trust-request-chat-template", "trust-request-mm-kwargs", "return-tokens-as-token-ids", "log-error-stack",
        "exclude-tools-when-tool-choice-none", "cohere-is-reasoning-model", "tokens-only", "allow-credentials", "trust-remote-code",
        "allow-deprecated-quantization", "enforce-eager", "return-sampling-mask", "use-fp64-gumbel", "use-tqdm-on-load", "use-replayssm",
        "skip-tokenizer-init", "skip-mm-profiling", "sleep-mode-offload-cudagraph", "numa-bind", "dcp-q-replicate",
        "data-parallel-hybrid-lb", "data-parallel-external-lb", "data-parallel-multi-port-external-lb", "ray-workers-use-nsight",
        "kv-sharing-fast-prefill", "swa-bounded-replay", "language-model-only", "mm-encoder-only", "interleave-mm-strings",
        "mm-device-do-normalize", "fully-sharded-loras", "specialize-active-lora", "kv-cache-metrics", "cudagraph-metrics",
        "jit-monitor-verbose", "long-prefill-token-threshold-adaptive", "scheduler-reserve-full-isl", "async-scheduling",
        "aggregate-engine-logging", "fail-on-environ-validation", "calculate-kv-scales", "use-v2-block-manager",
    }
)  # fmt: skip
_TAKES_A_VALUE = frozenset({"disable-access-log-for-endpoints"})
_SWITCH_LIKE = re.compile(r"(enable|disable|no)-")
_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


@dataclass(frozen=True)
class Option:
    """One option as it stands in a line."""

    name: str
    """Long, with dashes, without the leading ones and without `no-`; a dotted one without what follows the first dot."""
    start: int
    end: int
    """Where the next item begins."""
    negated: bool = False
    keys: str = ""
    """What follows the first dot: `method` of `--speculative-config.method`."""
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """The arguments of a server, taken apart."""

    options: tuple[Option, ...]
    positionals: tuple[int, ...]
    """Places of the words that belong to no option."""

    def of(self, name: str) -> tuple[Option, ...]:
        """Every mention of an option, the dotted ones too."""
        return tuple(option for option in self.options if option.name == canonical(name)[0])

    def value(self, name: str) -> str | None:
        """The first value of the last mention, which is the one that counts; None where it has none."""
        found = [option.values[0] for option in self.of(name) if option.values and not option.keys]
        return found[-1] if found else None


def read_line(words: Sequence[str], *, model_first: bool) -> Line:
    """Take the words after the subcommand apart. `model_first`: a first word without a dash is the model."""
    options: list[Option] = []
    positionals: list[int] = []
    at = 0
    if model_first and words and not is_option(words[0]):
        positionals.append(0)
        at = 1
    while at < len(words):
        if not is_option(words[at]):
            positionals.append(at)
            at += 1
            continue
        option = _option(words, at)
        options.append(option)
        at = option.end
    return Line(tuple(options), tuple(positionals))


def is_option(word: str) -> bool:
    """Whether vLLM takes a word for an option: a negative number is a value."""
    return word.startswith("-") and word != "-" and not _NUMBER.fullmatch(word)


def canonical(word: str) -> tuple[str, str]:
    """An option's name in full, and the keys after a dot. Takes it with or without its leading dashes."""
    short, _, keys = word.partition(".")
    if short in SHORT:
        return SHORT[short], keys.removesuffix("+")
    name = short.lstrip("-").replace("_", "-")
    return SAME.get(name, name), keys.removesuffix("+")


def is_switch(name: str) -> bool:
    """Whether an option takes no value, as far as its name tells."""
    return name in _SWITCHES or (bool(_SWITCH_LIKE.match(name)) and name not in _TAKES_A_VALUE)


def _option(words: Sequence[str], at: int) -> Option:
    word, equals, value = words[at].partition("=")
    if word.startswith("-O"):
        return _optimization(words, at)
    name, keys = canonical(word)
    negated = word.startswith("--no-") and not keys
    name = name.removeprefix("no-") if negated else name
    if equals:
        return Option(name, at, at + 1, negated, keys, (value,))
    end = at + 1
    most = 0 if negated or (is_switch(name) and not keys) else len(words) if name in LISTS and not keys else 1
    while end < len(words) and end - at <= most and not is_option(words[end]):
        end += 1
    return Option(name, at, end, negated, keys, tuple(words[at + 1 : end]))


def _optimization(words: Sequence[str], at: int) -> Option:
    """-O3, -O=3, -O 3; and of old versions -O{json}, -O '{json}', -O.key value, which were the compilation config."""
    word = words[at]
    rest = word[2:].removeprefix("=")
    end = at + 1
    keys = ""
    if word.startswith("-O."):
        keys, equals, rest = word[3:].partition("=")
        rest = rest if equals else ""
    if not rest and end < len(words) and not is_option(words[end]):
        rest, end = words[end], end + 1
    level = bool(re.fullmatch(r"\d", rest)) and not keys
    return Option("optimization-level" if level else "compilation-config", at, end, keys=keys, values=(rest,) if rest else ())
