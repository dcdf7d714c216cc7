"""vLLM: its command line, and where its OpenAI API and its counters are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from service.domain.engine_spec import Speculative
from service.domain.engine_spec import VllmEngine as VllmSpec
from service.domain.errors import UsageError
from service.domain.spec_base import ArgValue
from service.domain.speculation import EngineCounters
from workers.engines.apikey import bearer, resolve_api_key
from workers.engines.base import HostDefaults, Launch, LoadLog, Readiness
from workers.engines.prometheus import read_counters
from workers.engines.readiness import probe
from workers.engines.vllm_log import VllmLoadLog


class VllmEngine:
    """A vLLM server that is started for the experiment."""

    kind: str = "vllm"
    owns_process: bool = True

    def __init__(self, spec: VllmSpec, defaults: HostDefaults, environ: Mapping[str, str]) -> None:
        self._spec = spec
        self._defaults = defaults
        self._environ = environ

    def launch(self) -> Launch:
        """Command line, environment and port. The API key travels in the environment, where `ps` does not show it."""
        spec = self._spec
        port = spec.port or self._defaults.experiment_port
        executable = spec.executable or self._defaults.executables.get("vllm", "vllm")
        argv = [executable, "serve", spec.model]
        if spec.served_model_name is not None:
            argv += ["--served-model-name", spec.served_model_name]
        argv += ["--port", str(port)]
        for name, value in spec.args.items():
            argv += argument(name, value)
        if spec.speculative is not None:
            argv += ["--speculative-config", speculative_json(spec.speculative)]
        return Launch(argv=tuple(argv), env=self._env(), cwd=spec.cwd, port=port)

    def load_log(self) -> LoadLog:
        """A fresh reader for vLLM's log."""
        return VllmLoadLog()

    def api_base(self, address: str) -> str:
        """The OpenAI base URL."""
        return f"{address.rstrip('/')}/v1"

    def served_model(self, probe: Readiness) -> str:  # noqa: ARG002 - the seam's signature
        """The id that was asked for."""
        return self._spec.model_id

    def probe(self, address: str) -> Readiness:
        """Model listed, one token generated, version read."""
        return probe(self.api_base(address), self._spec.model_id, self.headers())

    def counters(self, address: str) -> Callable[[], EngineCounters | None]:
        """A reader of /metrics."""
        return partial(read_counters, f"{address.rstrip('/')}/metrics", self.headers())

    def headers(self) -> dict[str, str]:
        """The API key as a header."""
        return bearer(resolve_api_key(self._spec.api_key, self._environ))

    def _env(self) -> dict[str, str]:
        spec = self._spec
        # Unbuffered, since a buffered log shows progress late and loses the last words of a crash.
        env = {"PYTHONUNBUFFERED": "1", **spec.env}
        if spec.gpus != "all":
            visible = ",".join(str(index) for index in spec.gpus)
            if env.setdefault("CUDA_VISIBLE_DEVICES", visible) != visible:
                raise UsageError(
                    f"engine.gpus says {visible}, engine.env says CUDA_VISIBLE_DEVICES={env['CUDA_VISIBLE_DEVICES']}",
                    "the GPUs are said twice and differently",
                    "leave CUDA_VISIBLE_DEVICES out of engine.env",
                )
            # CUDA's own order is by speed; only this one is the order that nvidia-smi numbers cards in.
            env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        key = resolve_api_key(spec.api_key, self._environ)
        return env if key is None else {**env, "VLLM_API_KEY": key}


def argument(name: str, value: ArgValue) -> list[str]:
    """One key of `engine.args` as command-line words: true --flag, false --no-flag, null nothing, dict or list JSON."""
    dashes = "-" if len(name) == 1 else "--"
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"{dashes}{name}" if value else f"--no-{name}"]
    text = compact_json(value) if isinstance(value, dict | list) else str(value)
    # A value that begins with a dash would be taken for the next option.
    return [f"{dashes}{name}={text}"] if text.startswith("-") and dashes == "--" else [f"{dashes}{name}", text]


def speculative_json(speculative: Speculative) -> str:
    """`--speculative-config` as written: our own keys where set, every other key as it is, null included."""
    values = speculative.model_dump(mode="json")
    own = type(speculative).model_fields
    return compact_json({key: value for key, value in values.items() if value is not None or key not in own})


def compact_json(value: object) -> str:
    """JSON without blanks, as people write it on a command line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
