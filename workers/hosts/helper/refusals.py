"""How the helper says no."""

from __future__ import annotations

from typing import Any

# Values of the service's own list of reasons; a test holds that they are.
PERMISSION_DENIED = "permission_denied"
REMOTE_COMMAND_FAILED = "remote_command_failed"
UNIT_SYNTAX = "unit_syntax"
STALE_UNIT_DEFINITION = "stale_unit_definition"
CLAIM_LOST = "claim_lost"
CONNECTION_LOST = "connection_lost"
HOST_REBOOTED = "host_rebooted"
PRODUCTION_STARTED_BY_HAND = "production_started_by_hand"
UNKILLABLE_PROCESS = "unkillable_process"
HELPER_MISSING = "helper_missing"
DISK_FULL = "disk_full"
INTERNAL_ERROR = "internal_error"


class Refused(Exception):
    """The helper will not or cannot. `details` are added to the answer."""

    def __init__(self, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.reason = reason
        self.details = details


class Misuse(Exception):
    """The request is none: a mistake of whoever wrote the caller, not a state of the host."""
