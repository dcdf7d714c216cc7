"""Keys of an experiment as words of SGLang's command line."""

from __future__ import annotations

from service.domain.sglang_spec import SglangSpeculative
from service.domain.spec_base import ArgValue
from workers.engines.vllm_arguments import compact_json


def words(name: str, value: ArgValue) -> list[str]:
    """One argument: true --flag, false and null nothing (SGLang has no --no-flag), a list one word each, a dict JSON."""
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    if isinstance(value, list):
        return [f"--{name}", *(str(item) for item in value)] if value else []
    text = compact_json(value) if isinstance(value, dict) else str(value)
    # A value that begins with a dash would be taken for the next option.
    return [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]


def speculation(asked: SglangSpeculative) -> list[str]:
    """The words for `speculative`; what is spelled out in a further key stands in the place of ours."""
    found: dict[str, ArgValue] = {"algorithm": asked.algorithm, "draft-model-path": asked.model}
    longest = asked.num_speculative_tokens
    if longest is not None:
        # The token that the target gives anyway, the root of the tree, counts among the draft tokens here.
        found["num-draft-tokens"] = longest + 1
        if asked.algorithm != "NGRAM":
            found |= {"num-steps": longest, "eagle-topk": 1}
    found |= {key.replace("_", "-").removeprefix("speculative-"): value for key, value in asked.further.items()}
    return [word for name, value in found.items() for word in words(f"speculative-{name}", value)]
