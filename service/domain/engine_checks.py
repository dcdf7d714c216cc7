"""What keys of several kinds of engine have in common, and what is wrong in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from service.domain.spec_base import ArgValue


def check_reference(value: str | None) -> str | None:
    """An API key stands in a file as a reference only."""
    if value is not None and not re.fullmatch(r"env:[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError("write a reference such as env:VLLM_API_KEY, never the key itself")
    return value


def check_environment(value: dict[str, str]) -> dict[str, str]:
    """Names that a shell can set, and values that the operating system can pass on."""
    for key, text in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise ValueError(f"{key!r} is not the name of an environment variable")
        if "\0" in text:
            raise ValueError(f"the value of {key} holds a NUL byte")
    return value


def check_gpus(value: Literal["all"] | list[int]) -> Literal["all"] | list[int]:
    """Some GPU, and each once."""
    if value != "all" and (not value or len(set(value)) != len(value)):
        raise ValueError("name each GPU once, or write: all")
    return value


def check_argument_names(names: Iterable[str]) -> None:
    """Names of arguments without their dashes, each in one way of writing only."""
    listed = set(names)
    for name in listed:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
            raise ValueError(f"{name!r} is not the name of an argument; write it without the leading dashes")
        plain = name.replace("_", "-")
        if plain != name and plain in listed:
            raise ValueError(f"{plain} is there twice; write it once, with dashes")


def check_arguments(args: dict[str, ArgValue], elsewhere: Mapping[str, str]) -> dict[str, ArgValue]:
    """Arguments by their names, none of which has a key of its own: `elsewhere` has the place of each that has."""
    check_argument_names(args)
    for key in args:
        place = elsewhere.get(key.replace("_", "-"))
        if place:
            raise ValueError(f"{key} has a key of its own: {place}")
    return args


ApiKey = Annotated[str | None, AfterValidator(check_reference)]
Environment = Annotated[dict[str, str], AfterValidator(check_environment)]
Gpus = Annotated[Literal["all"] | list[Annotated[int, Field(ge=0)]], AfterValidator(check_gpus)]
