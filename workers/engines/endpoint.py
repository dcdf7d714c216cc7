"""An OpenAI-compatible server that already serves: it is measured, and neither started nor stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from urllib.parse import urlsplit

from service.domain.endpoint_rule import EndpointRule
from service.domain.engine_spec import EndpointEngine as EndpointSpec
from service.domain.speculation import EngineCounters
from workers.engines.apikey import bearer, resolve_api_key
from workers.engines.asking import refused
from workers.engines.base import LoadLog, LoadProgress, Readiness
from workers.engines.prometheus import read_counters
from workers.engines.readiness import probe


class NoLog:
    """The log of a server that is not ours: there is none."""

    @property
    def progress(self) -> LoadProgress:
        """Nothing."""
        return LoadProgress()

    def feed(self, lines: Iterable[str]) -> LoadProgress:  # noqa: ARG002 - the seam's signature
        """Nothing."""
        return LoadProgress()


class EndpointEngine:
    """A server at `base_url`; the address of the host plays no part."""

    kind: str = "endpoint"
    owns_process: bool = False

    def __init__(self, spec: EndpointSpec, environ: Mapping[str, str], rule: EndpointRule | None = None) -> None:
        self._spec, self._rule = spec, rule or EndpointRule()
        self._environ = environ

    def launch(self) -> None:
        """Nothing is started."""
        return

    def load_log(self) -> LoadLog:
        """A reader of nothing."""
        return NoLog()

    def api_base(self, address: str) -> str:  # noqa: ARG002 - the seam's signature
        """`base_url`, which may be written with or without /v1."""
        base = self._spec.base_url.rstrip("/")
        return base if base.endswith("/v1") else f"{base}/v1"

    def served_model(self, probe: Readiness) -> str:
        """The id in the spec, else the only one that the server lists."""
        return self._spec.model_id or (probe.models[0] if probe.models else "")

    def probe(self, address: str) -> Readiness:
        """Model listed, one token generated, version read where there is one; not asked where that is not allowed."""
        asked = [self.api_base(address), self._metrics_url(address)]
        refusals = (refused(self._rule, url) for url in asked if url != "off")
        refusal = next((one for one in refusals if one is not None), None)
        return refusal or probe(self.api_base(address), self._spec.model_id, self.headers())

    def counters(self, address: str) -> Callable[[], EngineCounters | None]:
        """A reader of `metrics_url`, by default /metrics beside the base URL; `off` reads none."""
        url = self._metrics_url(address)
        if url == "off":
            return lambda: None
        # The key was given for the base URL; another server has no business with it.
        return partial(read_counters, url, self.headers() if _origin(url) == _origin(self._spec.base_url) else {})

    def _metrics_url(self, address: str) -> str:
        return self._spec.metrics_url or f"{self.api_base(address).removesuffix('/v1')}/metrics"

    def headers(self) -> dict[str, str]:
        """The API key as a header."""
        return bearer(resolve_api_key(self._spec.api_key, self._environ))


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.lower()
