"""Variables of the environment, for `expctl help environment` and for the documents."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

COLOURS = {
    "NO_COLOR, TERM=dumb": "plain text, as `--no-color`",
    "CLICOLOR_FORCE, FORCE_COLOR": "colours in a pipe, too",
}
WIDTH = {"COLUMNS": "how wide to draw where the output is no terminal"}
OF_COMMAND_LINE = {
    "EXPCTL_SERVER": "the service; `--server` goes before it",
    "EXPCTL_TOKEN": "the token; without it, the one in `$XDG_CONFIG_HOME/expctl/token` (mode 600)",
    "XDG_CONFIG_HOME": "default `~/.config`",
    **COLOURS,
    **WIDTH,
}
"""What the command line itself reads. Several with the same meaning stand together."""

_OF_THE_MACHINE = {"data_dir": "the user's data folder: `$XDG_DATA_HOME/expctl`, mostly `~/.local/share/expctl`"}
"""Defaults that differ from machine to machine, in words."""


class Setting(NamedTuple):
    """A setting of the service's processes."""

    variable: str
    default: str
    meaning: str


def settings() -> Iterator[Setting]:
    """Every setting, from the class that reads them."""
    from service.domain.meanings import meanings  # noqa: PLC0415 - only who asks pays for it
    from service.settings import Settings  # noqa: PLC0415 - as above

    texts = meanings(Settings)
    prefix = str(Settings.model_config["env_prefix"])
    for name, field in Settings.model_fields.items():
        default = _OF_THE_MACHINE.get(name) or _default(field)
        yield Setting(f"{prefix}{name}".upper(), default, texts.get(name, "") + _bounds(field))


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
