"""What every model of the experiment file shares: strictness, and the types of single values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.domain.durations import parse_duration

Seconds = Annotated[float, BeforeValidator(parse_duration), Field(gt=0, le=30 * 86400)]
Port = Annotated[int, Field(ge=1, le=65535)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
ArgValue = str | int | float | bool | None | list[Any] | dict[str, Any]


class SpecModel(BaseModel):
    """Strict: an unknown key or a wrong type is an error; numbers are not read from text."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())
