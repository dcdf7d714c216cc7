"""What engines that are started for an experiment have in common: an OpenAI API, counters beside it, and a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, TypeVar

from service.domain.engine_spec import VllmEngine as VllmSpec
from service.domain.server_spec import ServerSpec
from service.domain.speculation import EngineCounters
from workers.engines.apikey import bearer, resolve_api_key
from workers.engines.base import HostDefaults, Readiness
from workers.engines.prometheus import read_counters

Keys = TypeVar("Keys", bound=VllmSpec | ServerSpec)


class StartedEngine(Generic[Keys]):
    """A server that is started for the experiment, bound to its spec. A kind adds the command line, the log and the probe."""

    owns_process: bool = True

    def __init__(self, spec: Keys, defaults: HostDefaults, environ: Mapping[str, str]) -> None:
        self._spec = spec
        self._defaults = defaults
        self._environ = environ

    @property
    def _port(self) -> int:
        return self._spec.port or self._defaults.experiment_port

    def _key(self) -> str | None:
        return resolve_api_key(self._spec.api_key, self._environ)

    def api_base(self, address: str) -> str:
        """The OpenAI base URL."""
        return f"{address.rstrip('/')}/v1"

    def served_model(self, probe: Readiness) -> str:  # noqa: ARG002 - the seam's signature
        """The id that it was started with."""
        return self._spec.model_id

    def counters(self, address: str) -> Callable[[], EngineCounters | None]:
        """A reader of /metrics."""
        return partial(read_counters, f"{address.rstrip('/')}/metrics", self.headers())

    def headers(self) -> dict[str, str]:
        """The API key as a header."""
        return bearer(self._key())
