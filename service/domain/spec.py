"""The experiment file as strict models: what may be written in it, and what each key means.

`service.domain.specfile` turns YAML into these; `service.domain.hashing` says which parts force a reload.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from service.domain.engine_spec import CommandEngine, EndpointEngine, Engine
from service.domain.spec_base import Name, Seconds, SpecModel

NOT_BEFORE = r"^(\d{4}-\d{2}-\d{2}[T ])?([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?(Z|[+-]\d{2}:\d{2})?$"

MOST_LOADS = 20
"""Of one configuration in one submission: at half an hour each, a night and a day."""

NOTIFIER = r"^((slack|webhook):)?[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"


class Load(SpecModel):
    """Limits of a load, seconds."""

    timeout: Seconds = 3 * 3600.0
    """Longest whole load."""
    stall: Seconds = 30 * 60.0
    """Longest time without any sign of progress."""


class Prompt(SpecModel):
    """One prompt of a benchmark: chat messages, or a plain prompt for the completions route."""

    id: Name
    """Its name in results."""
    messages: list[dict[str, Any]] | None = None
    """Chat messages, as the chat completions route takes them."""
    prompt: str | None = None
    """A text, for the completions route. Either this or `messages`."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """For this prompt, instead of `bench.max_tokens`."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Prompt:
        if (self.messages is None) == (self.prompt is None):
            raise ValueError("a prompt has either messages or prompt")
        if self.messages is not None and not self.messages:
            raise ValueError("messages is empty")
        return self


FIVE_IDS = ("code", "maths", "structured", "explanation", "reasoning")
"""The built-in prompts, in the order they are shown."""


class Bench(SpecModel):
    """What is measured once the engine serves."""

    prompts: Literal["five"] | list[Prompt] = "five"
    """`five`: the built-in set. A file's path is replaced by its content before it is submitted."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    """Longest answer, reasoning included."""
    concurrency: list[Annotated[int, Field(ge=1, le=4096)]] = Field(default_factory=lambda: [1, 8])
    """A bench phase per value: prompts x repeat requests, closed loop, in a fixed shuffled order."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 5
    """How often each prompt is sent, at each concurrency."""
    warmup: Annotated[int, Field(ge=0, le=1000)] = 2
    """Requests beforehand that do not count, with prompts of their own. More are added while they still get faster."""
    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    """0: always the likeliest token."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further keys of each request, such as `{top_p: 0.9}`."""

    @field_validator("concurrency")
    @classmethod
    def _levels(cls, value: list[int]) -> list[int]:
        if not value or len(set(value)) != len(value):
            raise ValueError("name each level of concurrency once")
        return value

    @field_validator("prompts")
    @classmethod
    def _ids_once(cls, value: Literal["five"] | list[Prompt]) -> Literal["five"] | list[Prompt]:
        if value != "five" and (not value or len({p.id for p in value}) != len(value)):
            raise ValueError("the set of prompts is empty or has an id twice")
        return value

    @field_validator("extra_body")
    @classmethod
    def _leaves_ours_alone(cls, value: dict[str, Any]) -> dict[str, Any]:
        ours = {"model", "messages", "prompt", "stream", "stream_options", "max_tokens", "temperature"} & set(value)
        if ours:
            raise ValueError(f"{', '.join(sorted(ours))} is set by the benchmark itself")
        return value


_OF_A_SERVER = frozenset({"load", "bench", "repeat_load", "recheck_baseline"})


class Spec(SpecModel):
    """One experiment: one server configuration on one host, and how it is measured."""

    name: Name
    """Free text; other experiments may refer to it."""
    host: Name = "local"
    """Where it runs: a host as it was added with `expctl host add`. `expctl up` adds `local`, the machine it runs on."""
    engine: Engine
    """What is run or measured: its `kind` says which keys there are."""
    load: Load = Load()
    """Limits of the load."""
    bench: Bench = Bench()
    """What is measured."""
    repeat_load: Annotated[int, Field(ge=1, le=MOST_LOADS)] = 1
    """How often this configuration is loaded and measured, an experiment each: loads differ by more than requests of one load do."""
    recheck_baseline: bool = False
    """Load and measure the baseline once more, after this (A-B-A): shows whether the host has drifted meanwhile."""
    baseline: int | Name | None = None
    """Id or name of the experiment to compare with."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Higher runs first."""
    after: list[int | Name] = Field(default_factory=list, max_length=50)
    """Ids or names that must have succeeded before; bound when it is submitted."""
    not_before: Annotated[str, Field(pattern=NOT_BEFORE)] | None = None
    """`22:00` (the next one in the host's time zone) or a date and time such as 2026-12-01T22:00."""
    notify: list[Annotated[str, Field(max_length=80, pattern=NOTIFIER)]] = Field(default_factory=list, max_length=20)
    """Who is told of it: `slack:infra` (kind and name of a notifier), or its name. Empty: whoever cares for its host, or the default."""

    @field_validator("load", "bench", mode="before")
    @classmethod
    def _only_where_a_server_is_measured(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(info.data.get("engine"), CommandEngine):
            instead = "its time limit is engine.timeout" if info.field_name == "load" else "its results are engine.artifacts"
            what = f"a command serves nothing that could be loaded or measured; leave {info.field_name} out, {instead}"
            raise ValueError(what)  # noqa: TRY004 - pydantic's way
        return value

    @field_validator("repeat_load", "recheck_baseline")
    @classmethod
    def _only_where_something_is_loaded(cls, value: int | bool, info: ValidationInfo) -> int | bool:
        engine = info.data.get("engine")
        asked = value != (1 if info.field_name == "repeat_load" else False)
        if asked and isinstance(engine, CommandEngine | EndpointEngine):
            of_command = "a command serves nothing that could be loaded again; write a document for each run of it"
            of_endpoint = "an endpoint is not loaded, it serves already; leave it out, and raise bench.repeat to be surer"
            raise ValueError(of_command if isinstance(engine, CommandEngine) else of_endpoint)
        return value

    @model_serializer(mode="wrap")
    def _without_what_does_not_apply(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is written is read back, so what says how a server is loaded and measured, which nobody gave, is left out of a command."""
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if key not in _OF_A_SERVER} if self.is_command else written

    @property
    def is_command(self) -> bool:
        """Whether this is a program that ends, instead of a server that is measured."""
        return isinstance(self.engine, CommandEngine)
