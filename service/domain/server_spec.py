"""The keys that kinds of engine have in common which are a server that expctl starts from its keys alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, field_validator

from service.domain.engine_checks import ApiKey, Environment, Gpus, check_arguments
from service.domain.spec_base import ArgValue, Name, OpenModel, Port, SpecModel


class ServerSpec(SpecModel):
    """A server. A kind writes anew, in this order, the keys that mean something particular there."""

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Arguments of the kind that have a key of their own -> that key."""

    kind: str
    model: Name
    served_model_name: Name | None = None
    """The id that requests name. Default: the model as it is written."""
    executable: Name | None = None
    user: Name | None = None
    """Who runs it. Default: the user that the host runs experiments as."""
    cwd: Name | None = None
    """The folder that it is started in."""
    port: Port | None = None
    """Default: the host's experiment port."""
    gpus: Gpus = "all"
    """Those that it may use, by index; they are proven free beforehand."""
    api_key: ApiKey = None
    args: dict[str, ArgValue] = Field(default_factory=dict)
    speculative: OpenModel | None = None
    """Drafting ahead; left out, there is none."""
    env: Environment = Field(default_factory=dict)
    """Variables of its environment. Values are texts, whatever they look like; `env:NAME` is taken from the worker's environment."""

    @field_validator("args")
    @classmethod
    def _not_said_twice(cls, value: dict[str, ArgValue]) -> dict[str, ArgValue]:
        return check_arguments(value, cls.elsewhere)

    @property
    def model_id(self) -> str:
        """The id that requests name."""
        return self.served_model_name or self.model
