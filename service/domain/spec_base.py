"""What every model of the experiment file shares: strictness, and the types of single values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.domain.durations import parse_duration

Seconds = Annotated[float, BeforeValidator(parse_duration), Field(gt=0, le=30 * 86400)]
Port = Annotated[int, Field(ge=1, le=65535)]
NAME = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=NAME)]
"""One line of text with something to see in it: it goes into terminals, file names and command lines."""
ArgValue = str | int | float | bool | None | list[Any] | dict[str, Any]


class SpecModel(BaseModel):
    """Strict: an unknown key or a wrong type is an error; numbers are not read from text."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class OpenModel(SpecModel):
    """Strict about the keys that it knows; any other is kept as it is, for the engine to judge."""

    model_config = ConfigDict(extra="allow")

    @property
    def further(self) -> dict[str, Any]:
        """The keys that are passed on as they are."""
        return dict(self.model_extra or {})
