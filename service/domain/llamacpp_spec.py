"""llama.cpp in an experiment file: a llama-server that expctl starts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from service.domain.engine_checks import ApiKey
from service.domain.server_spec import ServerSpec
from service.domain.spec_base import ArgValue, Name, OpenModel

_OF_VLLM = {"ngram": "ngram-map-k", "draft_model": "draft-simple", "eagle3": "draft-eagle3", "mtp": "draft-mtp"}
"""vLLM's word for a method -> the nearest of llama.cpp's."""


class LlamacppSpeculative(OpenModel):
    """llama.cpp's speculation. Any other key `some-key` goes to llama-server as `--spec-some-key`."""

    method: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[a-z0-9_]+(-[a-z0-9]+)*(,[a-z0-9_]+(-[a-z0-9]+)*)*$")]
    """`--spec-type`: ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod, ngram-cache, draft-simple, draft-eagle3, draft-mtp, or
    several with commas. vLLM's ngram, draft_model, eagle3 and mtp are taken for the nearest of these."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How long a draft is at most, whatever the method calls it."""
    prompt_lookup_max: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Of the n-gram methods: how many tokens must match."""
    model: Name | None = None
    """Of the draft methods: path of the drafter, a GGUF file."""

    @field_validator("prompt_lookup_max")
    @classmethod
    def _of_ngrams(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and "ngram" not in info.data.get("method", "ngram"):
            raise ValueError(f"{info.data['method']} looks nothing up; leave it out")
        return value

    @property
    def types(self) -> list[str]:
        """The methods by llama.cpp's own names."""
        return [_OF_VLLM.get(name, name) for name in self.method.split(",")]


class LlamacppEngine(ServerSpec):
    """A llama.cpp server that expctl starts from these keys."""

    elsewhere: ClassVar[dict[str, str]] = {
        "model": "engine.model",
        "port": "engine.port",
        "alias": "engine.served_model_name",
        "api-key": "engine.api_key",
        "spec-type": "engine.speculative",
    }

    kind: Literal["llamacpp"]
    """llama.cpp's llama-server."""
    model: Name
    """Path of the model on the host: a GGUF file, of a split one the first part."""
    served_model_name: Annotated[Name | None, Field(validate_default=True)] = None
    """The id that requests name. Default: the model's path."""
    executable: Name | None = None
    """Default: what the host's row says, else llama-server on the PATH."""
    api_key: ApiKey = None
    """A reference such as `env:LLAMA_KEY`, never the key itself."""
    args: dict[str, ArgValue] = Field(default_factory=dict)
    """Arguments by their long names. true: --flag, false: --no-flag, null: left out, list: joined by commas, dict: JSON. Unless
    they say otherwise, the server has `--host 0.0.0.0`, as vLLM listens, and `--metrics`."""
    speculative: LlamacppSpeculative | None = None

    @field_validator("served_model_name")
    @classmethod
    def _one_name(cls, value: str | None, info: ValidationInfo) -> str | None:
        if "," in (value or info.data.get("model", "")):
            raise ValueError("llama.cpp reads a comma as the end of a name; give a served_model_name without one")
        return value
