"""People's hands: the command line and the HTTP client.

`from expctl import Client` is what programs use; `errors` has what it raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expctl.client import Client
    from service.domain import errors

__all__ = ["Client", "errors"]


def __getattr__(name: str) -> Any:
    """Loaded when they are first asked for: `expctl --help` needs neither."""
    if name == "Client":
        from expctl.client import Client  # noqa: PLC0415 - see above

        return Client
    if name == "errors":
        from service.domain import errors  # noqa: PLC0415 - see above

        return errors
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
