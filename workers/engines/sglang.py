"""SGLang: its command line, and where its OpenAI API and its counters are. Proven on a simulator that speaks its dialect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

import httpx

from service.domain.sglang_spec import SglangEngine as SglangSpec
from service.domain.spec_base import ArgValue
from workers.engines.base import Launch, LoadLog, Readiness
from workers.engines.environment import UNBUFFERED, engine_environment
from workers.engines.readiness import LOOK_S, probe
from workers.engines.sglang_arguments import speculation, words
from workers.engines.sglang_log import SglangLoadLog
from workers.engines.started import StartedEngine
from workers.engines.trust import trusted

_UNLESS_SAID: dict[str, ArgValue] = {"host": "0.0.0.0", "enable-metrics": True}  # noqa: S104 - by itself it listens on the loopback alone
"""The load client may sit on another machine, and without --enable-metrics nothing is counted that one could see."""
INFO_ROUTES = ("/server_info", "/get_server_info")
"""Where it tells its version: newer, older."""


class SglangEngine(StartedEngine[SglangSpec]):
    """An SGLang server that is started for the experiment."""

    kind: str = "sglang"

    def launch(self) -> Launch:
        """Command line, environment and port."""
        spec = self._spec
        argv = [*self._program(), "--model-path", spec.model, "--served-model-name", spec.model_id, "--port", str(self._port)]
        for name, value in {**_UNLESS_SAID, **spec.args}.items():
            argv += words(name, value)
        if spec.speculative is not None:
            argv += speculation(spec.speculative)
        key = self._key()
        # It reads no key from its environment.
        argv += [] if key is None else [f"--api-key={key}"]
        return Launch(argv=tuple(argv), env=self._env(), cwd=spec.cwd, port=self._port, user=spec.user)

    def _program(self) -> list[str]:
        executable = self._spec.executable or self._defaults.executables.get("sglang", "python3")
        return [executable, "-m", "sglang.launch_server"] if PurePath(executable).name.startswith("python") else [executable]

    def load_log(self) -> LoadLog:
        """A fresh reader for SGLang's log."""
        return SglangLoadLog()

    def probe(self, address: str) -> Readiness:
        """Model listed, one token generated, version read."""
        found = probe(self.api_base(address), self._spec.model_id, self.headers())
        return replace(found, engine_version=self._version(address) or found.engine_version) if found.ready else found

    def _version(self, address: str) -> str | None:
        with httpx.Client(headers=self.headers(), timeout=LOOK_S, trust_env=False, verify=trusted()) as client:
            for route in INFO_ROUTES:
                try:
                    answer = client.get(f"{address.rstrip('/')}{route}")
                    told = answer.json().get("version") if answer.status_code == httpx.codes.OK else None
                except (httpx.HTTPError, ValueError, AttributeError):
                    continue
                if isinstance(told, str):
                    return told
        return None

    def _env(self) -> dict[str, str]:
        return engine_environment(self._spec.env, self._spec.gpus, self._environ, UNBUFFERED)
