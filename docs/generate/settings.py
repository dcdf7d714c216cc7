"""What can be set from outside, from the class of settings."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from typing import Any

from pydantic.fields import FieldInfo

from docs.generate.markdown import table
from service.domain.meanings import meanings
from service.settings import Settings

HEAD = ("variable", "default", "meaning")
PREFIX = str(Settings.model_config["env_prefix"])

_OF_THE_MACHINE = {"data_dir": "the user's data folder: `$XDG_DATA_HOME/expctl`, mostly `~/.local/share/expctl`"}
"""Defaults that differ from machine to machine, in words."""


def settings() -> str:
    """Every setting of the processes."""
    return table(HEAD, _rows())


def variable(name: str) -> str:
    """The variable that a setting is read from."""
    return f"{PREFIX}{name}".upper()


def _rows() -> Iterator[tuple[str, str, str]]:
    texts = meanings(Settings)
    for name, field in Settings.model_fields.items():
        yield f"`{variable(name)}`", _OF_THE_MACHINE.get(name) or _default(field), texts.get(name, "") + _bounds(field)


def _default(field: FieldInfo) -> str:
    made: Any = field.get_default(call_default_factory=True, validated_data={})
    return "" if made == "" else f"`{made:g}`" if isinstance(made, float) else f"`{made}`"


def _bounds(field: FieldInfo) -> str:
    if typing.get_origin(field.annotation) is typing.Literal:
        return f" {' or '.join(f'`{one}`' for one in typing.get_args(field.annotation))}."
    bounds = {key: value for one in field.metadata for key in ("ge", "le") if (value := getattr(one, key, None)) is not None}
    if {"ge", "le"} <= bounds.keys():
        return f" {bounds['ge']:,g} to {bounds['le']:,g}."
    return ""


BLOCKS: dict[str, Callable[[], str]] = {"settings": settings}
