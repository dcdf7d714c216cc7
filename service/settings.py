"""One class of settings, read from EXPCTL_* once at the edge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from platformdirs import user_data_path
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Everything that can be set from outside."""

    model_config = SettingsConfigDict(env_prefix="EXPCTL_", extra="ignore")

    data_dir: Path = Field(default_factory=lambda: user_data_path("expctl"))
    """Database, engine logs and unit records of the embedded service."""
    database_url: str = ""
    """`postgresql://USER:PASSWORD@HOST/NAME`, or `sqlite:////PATH`. Empty: SQLite in the data folder."""
    broker_url: str = ""
    """Redis, for wake-ups: `redis://:PASSWORD@HOST:6379/0`. Empty: none, workers look into the database by themselves."""
    base_url: str = ""
    """Where people reach the service: the beginning of the links in messages. Empty: no links."""
    notify_allow: str = ""
    """Hosts that messages may go to, separated by commas; `*.example.org` and `10.0.0.0/8` are understood."""
    endpoint_allow: str = ""
    """Servers that experiments of `kind: endpoint` may measure, written in the same way; a host's own address is always among them.
    Empty: all but link-local and metadata addresses, which are never asked."""
    lease_s: float = Field(default=60.0, ge=1.0, le=3600.0)
    """How long a worker that has fallen silent keeps its host, seconds. It beats four times as often."""
    writes_per_minute: float = Field(default=600.0, ge=0.0)
    """How often a token may change things, in each process of the API; a quarter of it at once. 0: no limit."""
    streams: int = Field(default=20, ge=0)
    """How many streams of events or logs a token may have open, in each process of the API. 0: no limit."""
    log: Literal["logfmt", "json"] = "logfmt"
    """How the processes write their logs."""
    server: str = "http://127.0.0.1:8700"
    """Where the command line finds the API."""

    @property
    def resolved_database_url(self) -> str:
        """The database to use."""
        return self.database_url or f"sqlite:///{self.data_dir / 'expctl.db'}"


def current_user() -> str:
    """Who acts, for the audit trail: the login name of this process."""
    return os.environ.get("USER") or os.environ.get("LOGNAME") or f"uid{os.getuid()}"
