"""The kinds of engine that an experiment file may name, and what each key of theirs means."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from service.domain.engine_checks import ApiKey, Environment, Gpus, check_argument_names
from service.domain.llamacpp_spec import LlamacppEngine
from service.domain.sglang_spec import SglangEngine
from service.domain.spec_base import ArgValue, Name, OpenModel, Port, Seconds, SpecModel

UNIT = r"^[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?\.service$"
"""A service of systemd; of a template an instance, since only that can run."""


class Speculative(OpenModel):
    """vLLM's `--speculative-config`: `method` and any other key of that option, passed on as it is."""

    method: str | None = None
    """Such as ngram, eagle3, mtp, draft_model."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many tokens are drafted at a time."""


class VllmEngine(SpecModel):
    """A vLLM server that expctl starts: from these keys alone, or as a fork of a unit of the host with these keys changed."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["model"]}, {"required": ["from_unit"]}]})

    kind: Literal["vllm"]
    """vLLM."""
    from_unit: Annotated[str, Field(max_length=255, json_schema_extra={"pattern": UNIT})] | None = None
    """A systemd service of the host, such as vllm-kimi.service: what is run is a copy of it, with the keys below changed. The unit
    itself is never touched."""
    model: Annotated[Name | None, Field(validate_default=True)] = None
    """Path or id of the model, as vLLM takes it. Only with `from_unit` may it be left out: then it is the unit's."""
    served_model_name: Name | None = None
    """The id that requests name. Default: the model's, or with `from_unit` the unit's own."""
    executable: Name | None = None
    """Default: what the host's row says, or with `from_unit` the unit's own."""
    user: Name | None = None
    """Who runs it. Default: the user that the host runs experiments as, or with `from_unit` the unit's own."""
    cwd: Name | None = None
    """The folder that it is started in."""
    port: Port | None = None
    """Default: the host's experiment port."""
    keep_port: bool = False
    """With `from_unit`: listen on the unit's own port, where its clients will find the experiment."""
    gpus: Gpus = "all"
    """Those that it may use, by index; they are proven free beforehand."""
    api_key: ApiKey = None
    """A reference such as `env:VLLM_API_KEY`, never the key itself."""
    args: dict[str, ArgValue] = Field(default_factory=dict)
    """true: --flag, false: --no-flag, null: left out (with `from_unit`: taken out), dict or list: JSON."""
    speculative: Speculative | None = None
    """Becomes `--speculative-config`. To run a `from_unit` without its speculation, write `args: {speculative-config: null}`."""
    env: Environment = Field(default_factory=dict)
    """Variables of its environment. Values are texts, whatever they look like; `env:NAME` is taken from the worker's environment."""

    @field_validator("from_unit")
    @classmethod
    def _a_service(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(UNIT, value):
            raise ValueError(
                "write the whole name of a service, such as vllm.service; of a template an instance, such as vllm@kimi.service"
            )
        return value

    @field_validator("model")
    @classmethod
    def _model_or_unit(cls, value: str | None, info: ValidationInfo) -> str | None:
        # A from_unit that is wrong in itself is missing from the data, and its own error says enough.
        if value is None and info.data.get("from_unit", "") is None:
            raise PydanticCustomError("missing", "name a model, or a from_unit that has one")
        return value

    @field_validator("keep_port")
    @classmethod
    def _only_a_unit_has_one(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("from_unit", "") is None:
            raise ValueError("only a from_unit has a port to keep")
        if value and info.data.get("port") is not None:
            raise ValueError("port and keep_port exclude each other; write one of them")
        return value

    @field_validator("args")
    @classmethod
    def _not_said_twice(cls, value: dict[str, ArgValue]) -> dict[str, ArgValue]:
        own = {
            "port": "port",
            "served-model-name": "served_model_name",
            "speculative-config": "speculative",
            "api-key": "api_key",
            "model": "model",
        }
        check_argument_names(value)
        for key, given in value.items():
            plain = key.replace("_", "-")
            if plain in {"served-model-name", "speculative-config", "api-key"} and given is None:
                continue  # its own key cannot say that a unit's is to be taken out
            if plain in own:
                raise ValueError(f"{key} has a key of its own: engine.{own[plain]}")
        return value

    @property
    def model_id(self) -> str:
        """The id that requests name; empty where only the host's unit can tell."""
        return self.served_model_name or ("" if self.from_unit else self.model or "")


class EndpointEngine(SpecModel):
    """A server that already serves; expctl measures it and starts or stops nothing."""

    kind: Literal["endpoint"]
    """A server that already serves."""
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$")]
    """OpenAI base URL, with or without the trailing /v1."""
    served_model_name: Name | None = None
    """Default: the only model that the server lists."""
    api_key: ApiKey = None
    """A reference such as `env:VLLM_API_KEY`, never the key itself."""
    metrics_url: Annotated[str, Field(pattern=r"^(off|https?://\S+)$")] | None = None
    """Default: /metrics beside the base URL; `off` reads none."""

    @property
    def model_id(self) -> str:
        """The id that requests name, or an empty text where the server is asked for it."""
        return self.served_model_name or ""


Word = Annotated[str, Field(max_length=131_071, pattern=r"^[^\x00]*$")]
"""A word of a command line: Linux takes none that is longer, and no NUL."""


class CommandEngine(SpecModel):
    """A program that does its work and ends (training, an extraction): no server, no port, nothing is benchmarked.

    Exit status 0 is success. The program outlives the worker, and is found again by the next one.
    """

    kind: Literal["command"]
    """A program that ends."""
    run: Annotated[
        Annotated[list[Word], Field(min_length=1), Tag("words")] | Annotated[Word, Tag("script")],
        Discriminator(lambda value: "words" if isinstance(value, list) else "script"),
    ]
    """A list is the command line, word by word. A text is a script for `/bin/sh -eu -c`: it ends at the first command that
    fails and at the first variable that is not set."""
    user: Name | None = None
    """Who runs it; default: who runs the worker, and without root on the host that is the only one."""
    cwd: Name | None = None
    """An absolute path. Default: a folder of its own that is made for it, `work/<unit>` in the data folder, or on a host under systemd
    /var/lib/expctl-work/<unit>. That one is removed when a shift ends, once the command has succeeded and all its artifacts were
    fetched, or once it was pruned; never while an experiment that still waits names it."""
    env: Environment = Field(default_factory=dict)
    """Variables of its environment. Values are texts, whatever they look like."""
    gpus: Literal["all", "none"] | list[Annotated[int, Field(ge=0)]] = "none"
    """With GPUs, they are proven free beforehand. `none` hides every GPU from the program (an empty CUDA_VISIBLE_DEVICES)."""
    progress: Annotated[str, Field(max_length=500)] | None = None
    """A regular expression for log lines, with a group `percent`, or groups `done` and `total`, or one group without a name,
    which is the percentage. Its last match is shown. Of a line, the first 4 kB are looked at."""
    artifacts: list[Annotated[str, Field(min_length=1, max_length=4095)]] = Field(default_factory=list, max_length=100)
    """Patterns of files to keep, relative to `cwd`, with `*`, `?`, `[...]` and `**`; a folder stands for all that is in it.
    What lies outside `cwd` is kept only where an absolute path names it, never because a symbolic link leads there."""
    timeout: Seconds = 24 * 3600.0
    """Longest whole run."""

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and (not value.startswith("/") or "\0" in value):
            raise ValueError("write an absolute path; the worker's own folder says nothing to a reader of this file")
        return value

    @field_validator("run", mode="before")
    @classmethod
    def _list_or_script(cls, value: object) -> object:
        if not isinstance(value, list | str | int | float):
            raise ValueError("write a list of words (a command line) or a text (a script for /bin/sh)")  # noqa: TRY004 - pydantic's way
        return value

    @field_validator("run")
    @classmethod
    def _something_to_run(cls, value: list[str] | str) -> list[str] | str:
        if not (value if isinstance(value, str) else value[0]).strip():
            raise ValueError("there is nothing to run")
        return value

    @field_validator("gpus")
    @classmethod
    def _some_gpu_once(cls, value: Literal["all", "none"] | list[int], info: ValidationInfo) -> Literal["all", "none"] | list[int]:
        if isinstance(value, list) and (not value or len(set(value)) != len(value)):
            raise ValueError("name each GPU once, or write: all, none")
        said = info.data.get("env", {}).get("CUDA_VISIBLE_DEVICES")
        if value != "all" and said is not None and said != visible_devices(value):
            raise ValueError(f"engine.env says CUDA_VISIBLE_DEVICES={said}; leave it out there, and name the GPUs here only")
        return value

    @field_validator("progress")
    @classmethod
    def _finds_a_percentage(cls, value: str | None) -> str | None:
        return value if value is None else check_progress(value)

    @field_validator("artifacts")
    @classmethod
    def _stay_where_they_are(cls, value: list[str]) -> list[str]:
        for pattern in value:
            if ".." in pattern.split("/") or "\0" in pattern:
                raise ValueError(f"{pattern!r} may not lead out by `..`; name what lies elsewhere by its absolute path")
        return value

    @property
    def model_id(self) -> str:
        """Nothing is served."""
        return ""


def visible_devices(gpus: Literal["none"] | list[int]) -> str:
    """CUDA_VISIBLE_DEVICES for the GPUs that were named."""
    return "" if gpus == "none" else ",".join(str(index) for index in gpus)


def check_progress(pattern: str) -> str:
    """A regular expression that can be compiled and says which of its groups is what."""
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise ValueError(f"this is no regular expression: {error}") from None
    names = set(compiled.groupindex)
    if "percent" not in names and not {"done", "total"} <= names and (names or compiled.groups != 1):
        raise ValueError(
            "it needs a group (?P<percent>...), or groups (?P<done>...) and (?P<total>...), or one group that is the percentage"
        )
    return pattern


Engine = Annotated[VllmEngine | EndpointEngine | CommandEngine | LlamacppEngine | SglangEngine, Field(discriminator="kind")]
