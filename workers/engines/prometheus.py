"""An engine's counters from its Prometheus page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from service.domain.speculation import EngineCounters
from workers.engines.llamacpp_counters import llamacpp_counters
from workers.engines.page import Page, parse_page
from workers.engines.sglang_counters import sglang_counters
from workers.engines.vllm_counters import vllm_counters, vllm_v0_counters

READERS: tuple[Callable[[Page], EngineCounters | None], ...] = (vllm_v0_counters, vllm_counters, sglang_counters, llamacpp_counters)
"""One an engine; each says None to a page that is not its own."""


def counters_of(page: Page) -> EngineCounters | None:
    """The counters of whichever known engine wrote this page."""
    return next((counters for counters in (reader(page) for reader in READERS) if counters is not None), None)


def read_counters(url: str, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0) -> EngineCounters | None:
    """One reading. None where nothing answers, the answer is not 200, or no known engine's series are in it."""
    import httpx  # noqa: PLC0415 - slow to import, and not needed to parse a page

    from workers.engines.trust import looking  # noqa: PLC0415 - as above

    try:
        with looking(headers or {}, timeout_s) as client:
            answer = client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return counters_of(parse_page(answer.text)) if answer.status_code == httpx.codes.OK else None
