"""SGLang in an experiment file: a server that expctl starts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from service.domain.engine_checks import ApiKey
from service.domain.server_spec import ServerSpec
from service.domain.spec_base import ArgValue, Name, OpenModel

_OF_VLLM = {"ngram": "NGRAM", "draft_model": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "NEXTN"}
"""vLLM's word for a method -> SGLang's."""


class SglangSpeculative(OpenModel):
    """SGLang's speculation. Any other key `some-key` goes to the server as `--speculative-some-key`."""

    method: Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
    """`--speculative-algorithm`: EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM. vLLM's eagle, eagle3, mtp, draft_model and ngram are taken
    for these."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How long a draft is at most. The drafting methods get a chain of that many steps, and no tree, unless further keys say otherwise."""
    model: Name | None = None
    """Path of the drafter, where the method has one."""

    @property
    def algorithm(self) -> str:
        """The method by SGLang's own name."""
        return _OF_VLLM.get(self.method.lower(), self.method.upper())


class SglangEngine(ServerSpec):
    """An SGLang server that expctl starts from these keys."""

    elsewhere: ClassVar[dict[str, str]] = {
        "model-path": "engine.model",
        "model": "engine.model",
        "port": "engine.port",
        "served-model-name": "engine.served_model_name",
        "api-key": "engine.api_key",
        "speculative-algorithm": "engine.speculative",
    }

    kind: Literal["sglang"]
    """SGLang."""
    model: Name
    """Path or id of the model, as SGLang takes it."""
    executable: Name | None = None
    """A Python that has SGLang, or a program that takes the same arguments. Default: what the host's row says, else python3."""
    api_key: ApiKey = None
    """A reference such as `env:SGLANG_KEY`, never the key itself. SGLang takes it on its command line alone, where `ps` shows it."""
    args: dict[str, ArgValue] = Field(default_factory=dict)
    """Arguments by their long names. true: --flag, false and null: left out, list: one word each, dict: JSON. Unless they say
    otherwise, the server has `--host 0.0.0.0`, as vLLM listens, and `--enable-metrics`."""
    speculative: SglangSpeculative | None = None
