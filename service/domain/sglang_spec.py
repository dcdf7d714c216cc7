"""SGLang in an experiment file: a server that expctl starts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator

from service.domain.engine_checks import ApiKey, Environment, Gpus, check_arguments
from service.domain.spec_base import ArgValue, Name, Port, SpecModel

_OF_VLLM = {"ngram": "NGRAM", "draft_model": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "NEXTN"}
"""vLLM's word for a method -> SGLang's."""
_ELSEWHERE = {
    "model-path": "engine.model",
    "model": "engine.model",
    "port": "engine.port",
    "served-model-name": "engine.served_model_name",
    "api-key": "engine.api_key",
    "speculative-algorithm": "engine.speculative",
}
"""Arguments that have a key of their own."""


class SglangSpeculative(SpecModel):
    """SGLang's speculation. Any other key `some-key` goes to the server as `--speculative-some-key`."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, protected_namespaces=())

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

    @property
    def further(self) -> dict[str, Any]:
        """The keys that are passed on as they are."""
        return dict(self.model_extra or {})


class SglangEngine(SpecModel):
    """An SGLang server that expctl starts from these keys."""

    kind: Literal["sglang"]
    """SGLang."""
    model: Name
    """Path or id of the model, as SGLang takes it."""
    served_model_name: Name | None = None
    """The id that requests name. Default: the model as it is written."""
    executable: Name | None = None
    """A Python that has SGLang, or a program that takes the same arguments. Default: what the host's row says, else python3."""
    user: Name | None = None
    """Who runs it. Default: the user that the host runs experiments as."""
    cwd: Name | None = None
    """The folder that it is started in."""
    port: Port | None = None
    """Default: the host's experiment port."""
    gpus: Gpus = "all"
    """Those that it may use, by index; they are proven free beforehand."""
    api_key: ApiKey = None
    """A reference such as `env:SGLANG_KEY`, never the key itself. SGLang takes it on its command line alone, where `ps` shows it."""
    args: dict[str, ArgValue] = Field(default_factory=dict)
    """Arguments by their long names. true: --flag, false and null: left out, list: one word each, dict: JSON. Unless they say
    otherwise, the server has `--host 0.0.0.0`, as vLLM listens, and `--enable-metrics`."""
    speculative: SglangSpeculative | None = None
    """Drafting ahead; left out, there is none."""
    env: Environment = Field(default_factory=dict)
    """Variables of its environment. Values are texts, whatever they look like; `env:NAME` is taken from the worker's environment."""

    @field_validator("args")
    @classmethod
    def _not_said_twice(cls, value: dict[str, ArgValue]) -> dict[str, ArgValue]:
        return check_arguments(value, _ELSEWHERE)

    @property
    def model_id(self) -> str:
        """The id that requests name."""
        return self.served_model_name or self.model
