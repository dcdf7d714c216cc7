"""What an engine kind knows: the seam between the steps and vLLM, an endpoint, and those to come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from service.domain.endpoint_rule import EndpointRule
from service.domain.reasons import Reason
from service.domain.speculation import EngineCounters


class LoadPhase(StrEnum):
    """Phases of a load, in order."""

    ENGINE_INIT = "engine_init"
    WEIGHTS_LOADING = "weights_loading"
    TORCH_COMPILE = "torch_compile"
    PROFILING_WARMUP = "profiling_warmup"
    KV_CACHE_INIT = "kv_cache_init"
    CUDA_GRAPH_CAPTURE = "cuda_graph_capture"
    WARMUP = "warmup"
    API_STARTUP = "api_startup"


@dataclass(frozen=True)
class LoadProgress:
    """What the log has said so far."""

    phase: LoadPhase | None = None
    done: int | None = None
    total: int | None = None
    percent: float | None = None
    stage: str | None = None
    started_serving: bool = False
    """The log says that the HTTP server is up. Not yet proof of readiness."""
    reason: Reason | None = None
    """The root cause of a failure, where the log names one."""
    evidence: str | None = None
    """The line that says so."""
    component: str | None = None
    """Who died first, such as `Worker_TP1`, where the log tells."""
    engine_version: str | None = None
    facts: dict[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class LoadLog(Protocol):
    """Reads a load's log line by line; keeps little."""

    def feed(self, lines: Iterable[str]) -> LoadProgress:
        """Take in more lines and say where the load is."""

    @property
    def progress(self) -> LoadProgress:
        """Where the load is by the lines seen so far."""


@dataclass(frozen=True)
class HostDefaults:
    """What the host's row gives where the experiment is silent."""

    experiment_port: int
    executables: dict[str, str]
    """Engine kind -> program."""
    endpoints: EndpointRule = field(default_factory=EndpointRule)


@dataclass(frozen=True)
class Launch:
    """How to start the engine. None of it for an engine that already serves."""

    argv: tuple[str, ...]
    """Of a fork: what /proc is expected to show, and empty where that cannot be known beforehand."""
    env: dict[str, str] = field(repr=False)
    cwd: str | None
    port: int
    user: str | None = None
    """Who runs it; None: whoever the host runs things as, of a fork the original's user."""
    fork: tuple[str, ...] | None = None
    """The words of a fork's ExecStart, with `%` and `$` still alive; None where nothing is forked."""
    changes: tuple[tuple[str, str | None, str | None], ...] = ()
    """Of a fork: argument, before, after; None where it is not there."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Readiness:
    """One look at whether the engine serves."""

    ready: bool
    reason: Reason | None = None
    """Set where waiting longer cannot help (such as another model on the port)."""
    detail: str = ""
    engine_version: str | None = None
    models: tuple[str, ...] = ()
    token: str | None = None
    """The one token that came back."""


class Engine(Protocol):
    """One kind of engine, bound to one experiment's spec."""

    kind: str
    owns_process: bool
    """False for an endpoint that already serves."""

    def launch(self) -> Launch | None:
        """Command line, environment and port; None where nothing is started."""

    def load_log(self) -> LoadLog:
        """A fresh reader for this engine's log."""

    def api_base(self, address: str) -> str:
        """The OpenAI base URL (ends in /v1), given the address the load client reaches the host at."""

    def served_model(self, probe: Readiness) -> str:
        """The model id to send in requests."""

    def probe(self, address: str) -> Readiness:
        """Model listed, one token generated, version read; never raises for a server that is not up."""

    def counters(self, address: str) -> Callable[[], EngineCounters | None]:
        """A blocking reader of the engine's counters; None where the engine does not report them."""

    def headers(self) -> dict[str, str]:
        """Headers for requests, the API key resolved; secret."""
