"""API keys: written in files by reference, resolved at the last moment, shown nowhere."""

from __future__ import annotations

from collections.abc import Mapping

from service.domain.errors import UsageError

OURS = "EXPCTL_"
"""The service's own secrets (its database, its broker, a token) are nobody's API key."""


def resolve_api_key(reference: str | None, environ: Mapping[str, str]) -> str | None:
    """The key that `env:NAME` refers to; None where there is no reference."""
    if reference is None:
        return None
    name = reference.removeprefix("env:")
    if name.startswith(OURS):
        todo = "put the engine's key into a variable of its own, and name that"
        raise UsageError(f"the API key {reference} is refused", f"{name} belongs to the service itself and may be its own secret", todo)
    key = environ.get(name, "")
    if not key:
        raise UsageError(
            f"the API key {reference} cannot be resolved",
            f"the environment variable {name} is not set where the worker runs",
            f"set {name} in the worker's environment and start the worker again, or leave out engine.api_key",
        )
    return key


def bearer(key: str | None) -> dict[str, str]:
    """The header that carries a key."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}
