"""What is known of a host: how it is reached, what serves on it by day, and when it may be parked."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from service.domain.spec_base import Name, Port, Seconds
from service.domain.window import Window

UNIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.\\@-]{0,240}\.service")
Hook = list[Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]]


class Hooks(BaseModel):
    """Commands that the worker runs on its own machine, word by word, with the host's name as EXPCTL_HOST."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    before_park: Hook = Field(default_factory=list)
    """Drain the service, silence the pager. Ends with another status than 0: nothing is parked."""
    after_restore: Hook = Field(default_factory=list)
    """Run once production is proven to serve."""
    timeout: Seconds = 300.0


class HostConfig(BaseModel):
    """The settings of a host's row. Unknown keys are refused, so that a typing error does not go unnoticed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ssh: Annotated[str, Field(max_length=255, pattern=r"^[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]*$")] | None = None
    """Destination for ssh, such as user@host:port or an alias of ssh_config. None: this machine itself."""
    units: Literal["process", "systemd"] = "process"
    """Who keeps the units: plain processes under our own supervisor, or systemd through the host helper."""
    park: list[Annotated[str, Field(pattern=rf"^{UNIT_NAME.pattern}$")]] = Field(default_factory=list)
    """Production: the units that are stopped for a shift and brought back after it, in this order."""
    window: str | None = None
    """When production may be parked, such as 20:00-08:00. None: never by itself."""
    time_zone: str = "UTC"
    engine_address: Annotated[str, Field(pattern=r"^https?://[^\s\x00/]+$")] | None = None
    """Where the load client reaches the host, without a port. None: the address of `ssh`, or loopback."""
    production_address: Annotated[str, Field(pattern=r"^https?://[^\s\x00/]+(:\d+)?$")] | None = None
    """Where production answers, port included. None: the engine address, at the port that its command line names."""
    production_api_key: Annotated[str, Field(pattern=r"^env:[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    experiment_port: Port = 8001
    executables: dict[str, Name] = Field(default_factory=dict)
    """Engine kind -> program."""
    nvidia_smi: Name = "nvidia-smi"
    run_as: Name | None = None
    """Who runs rendered units. None: the user of the first parked unit."""
    close_after: Seconds = 600.0
    """How long a shift waits for more to do before it gives production back."""
    dead_man: Annotated[Seconds, Field(ge=60, le=86400)] = 1800.0
    """After how long without a sign of us the host gives production back by itself."""
    restore_timeout: Seconds = 3 * 3600.0
    """How long production may take to serve again before it counts as not restored."""
    hooks: Hooks = Field(default_factory=Hooks)
    simulated: bool = False
    """Its GPUs and engines are made up, and whoever looks at results is told so."""

    @field_validator("window")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        if value is not None:
            Window.parse(value, ZoneInfo("UTC"))
        return value

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"{value!r} is no time zone; write one such as Europe/Berlin or UTC") from None
        return value

    @field_validator("park")
    @classmethod
    def _not_ours_and_once(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value):
            raise ValueError("name each unit once")
        if any(name.startswith("expctl-") for name in value):
            raise ValueError("a unit of ours cannot be production")
        return value

    @model_validator(mode="after")
    def _systemd_where_needed(self) -> HostConfig:
        if (self.ssh or self.park) and self.units == "process":
            raise ValueError("a host that is reached by ssh, or has units to park, keeps its units with systemd: units: systemd")
        return self

    @property
    def opening(self) -> Window | None:
        """The window; None where nothing may be parked without an admin's word."""
        return Window.parse(self.window, ZoneInfo(self.time_zone)) if self.window else None

    @property
    def zone(self) -> ZoneInfo:
        """The zone of the host's clock."""
        return ZoneInfo(self.time_zone)
