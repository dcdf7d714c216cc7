"""From a spec to its engine: the one place that knows every kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from service.domain.engine_spec import CommandEngine as CommandSpec
from service.domain.engine_spec import EndpointEngine as EndpointSpec
from service.domain.engine_spec import VllmEngine as VllmSpec
from service.domain.llamacpp_spec import LlamacppEngine as LlamacppSpec
from service.domain.sglang_spec import SglangEngine as SglangSpec
from service.domain.spec import Spec
from workers.basecommand import BaseCommand
from workers.engines.base import Engine, HostDefaults
from workers.engines.command import CommandEngine
from workers.engines.endpoint import EndpointEngine
from workers.engines.llamacpp import LlamacppEngine
from workers.engines.sglang import SglangEngine
from workers.engines.vllm import VllmEngine


def make_engine(spec: Spec, defaults: HostDefaults, environ: Mapping[str, str], base: BaseCommand | None = None) -> Engine:
    """The engine that an experiment names. `environ` is where references such as env:VLLM_API_KEY are looked up.

    `base` is the command line of the unit that the experiment forks; without it, such an engine cannot say how to start it.
    """
    match spec.engine:
        case VllmSpec():
            return VllmEngine(spec.engine, defaults, environ, base)
        case LlamacppSpec():
            return LlamacppEngine(spec.engine, defaults, environ)
        case SglangSpec():
            return SglangEngine(spec.engine, defaults, environ)
        case EndpointSpec():
            return EndpointEngine(spec.engine, environ, defaults.endpoints)
        case CommandSpec():
            return CommandEngine(spec.engine, environ)
        case _:
            assert_never(spec.engine)
