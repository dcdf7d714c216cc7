"""Keys of an experiment as words of llama-server's command line. Checked against its build 11434."""

from __future__ import annotations

from collections.abc import Mapping

from service.domain.llamacpp_spec import LlamacppSpeculative
from service.domain.spec_base import ArgValue
from workers.engines.vllm_arguments import compact_json

_MOST_DRAFTED = {
    "ngram-simple": "spec-ngram-simple-size-m",
    "ngram-map-k": "spec-ngram-map-k-size-m",
    "ngram-map-k4v": "spec-ngram-map-k4v-size-m",
    "ngram-mod": "spec-ngram-mod-n-max",
}
"""Method -> what it calls the longest draft. The draft methods share one word."""
_LOOKUP = {
    "ngram-simple": "spec-ngram-simple-size-n",
    "ngram-map-k": "spec-ngram-map-k-size-n",
    "ngram-map-k4v": "spec-ngram-map-k4v-size-n",
    "ngram-mod": "spec-ngram-mod-n-match",
}
"""Method -> how many tokens must match."""
_OF_DRAFTS = "spec-draft-n-max"


def words(name: str, value: ArgValue) -> list[str]:
    """One argument: true --flag, false --no-flag, null nothing, a list joined by commas, a dict JSON.

    Unlike vLLM's, this command line knows no `--flag=value`, and takes the word behind an argument for its value in any case.
    """
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, list):
        return [f"--{name}", ",".join(str(item) for item in value)]
    return [f"--{name}", compact_json(value) if isinstance(value, dict) else str(value)]


def speculation(asked: LlamacppSpeculative) -> list[str]:
    """The words for `speculative`; what is spelled out in a further key stands last, and so wins."""
    found: dict[str, ArgValue] = {"spec-type": ",".join(asked.types), "spec-draft-model": asked.model}
    for kind in asked.types:
        found |= _by_method(kind, asked)
    found |= {f"spec-{key.replace('_', '-').removeprefix('spec-')}": value for key, value in asked.further.items()}
    return [word for name, value in found.items() for word in words(name, value)]


def _by_method(kind: str, asked: LlamacppSpeculative) -> Mapping[str, ArgValue]:
    longest = _MOST_DRAFTED.get(kind) or (_OF_DRAFTS if kind.startswith("draft-") else None)
    lookup = _LOOKUP.get(kind)
    return ({longest: asked.num_speculative_tokens} if longest else {}) | ({lookup: asked.prompt_lookup_max} if lookup else {})
