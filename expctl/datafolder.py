"""The data folder that a command line or the environment names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.domain.errors import UsageError

if TYPE_CHECKING:
    from service.settings import Settings

TODO = "give a folder of yours to --data or EXPCTL_DATA_DIR"


def named(text: str) -> Path:
    """A folder's path; an empty one would be taken for the folder one stands in."""
    if not text.strip():
        raise UsageError("the name of the folder is empty", "", "name a folder, or leave the option out")
    return Path(text)


Data = Annotated[
    Path | None, typer.Option(parser=named, metavar="DIR", help="data folder; default EXPCTL_DATA_DIR, else the user's data folder")
]


def settings_of(data: Path | None, *, make: bool = False) -> Settings:
    """The settings with the data folder of this command line; `make`: it exists afterwards, and can be written."""
    from pydantic import ValidationError  # noqa: PLC0415 - heavy

    from expctl.serve import settings_for  # noqa: PLC0415 - as above
    from service.domain.refusals import refusal  # noqa: PLC0415 - as above

    if data is None and os.environ.get("EXPCTL_DATA_DIR", "unset") == "":
        raise UsageError("EXPCTL_DATA_DIR is empty", "", "set it to a folder, or unset it")
    try:
        settings = settings_for(data)
    except ValidationError as error:
        first = error.errors()[0]
        variable = f"EXPCTL_{'_'.join(map(str, first['loc'])).upper()}"
        raise UsageError(f"{variable}: {refusal(dict(first))}", "", "correct the variable, or unset it") from None
    if make:
        _make(settings.data_dir)
    return settings


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the data folder {folder} cannot be made", error.strerror or str(error), TODO) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"the data folder {folder} cannot be written", "its owner or its mode does not allow it", TODO)
