"""The base of every record that crosses a process or a file: strict about its keys, frozen once made."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record; an unknown key is an error, never silently dropped."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null", protected_namespaces=())
