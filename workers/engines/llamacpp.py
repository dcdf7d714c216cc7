"""llama.cpp: the command line of its llama-server, and where its OpenAI API and its counters are."""

from __future__ import annotations

from dataclasses import replace

import httpx

from service.domain.llamacpp_spec import LlamacppEngine as LlamacppSpec
from service.domain.spec_base import ArgValue
from workers.engines.base import Launch, LoadLog, Readiness
from workers.engines.environment import engine_environment
from workers.engines.llamacpp_arguments import speculation, words
from workers.engines.llamacpp_log import LlamacppLoadLog
from workers.engines.readiness import LOOK_S, probe
from workers.engines.started import StartedEngine
from workers.engines.trust import trusted

_UNLESS_SAID: dict[str, ArgValue] = {"host": "0.0.0.0", "metrics": True}  # noqa: S104 - by itself it listens on the loopback alone
"""The load client may sit on another machine, and without --metrics nothing is counted that one could see."""


class LlamacppEngine(StartedEngine[LlamacppSpec]):
    """A llama-server that is started for the experiment."""

    kind: str = "llamacpp"

    def launch(self) -> Launch:
        """Command line, environment and port. The API key travels in the environment, where `ps` does not show it."""
        spec = self._spec
        executable = spec.executable or self._defaults.executables.get("llamacpp", "llama-server")
        argv = [executable, "--model", spec.model, "--alias", spec.model_id, "--port", str(self._port)]
        for name, value in {**_UNLESS_SAID, **spec.args}.items():
            # There is no --no-metrics.
            argv += [] if name == "metrics" and value is False else words(name, value)
        if spec.speculative is not None:
            argv += speculation(spec.speculative)
        return Launch(argv=tuple(argv), env=self._env(), cwd=spec.cwd, port=self._port, user=spec.user)

    def load_log(self) -> LoadLog:
        """A fresh reader for llama-server's log."""
        return LlamacppLoadLog()

    def probe(self, address: str) -> Readiness:
        """Model listed, one token generated. It listens while it loads, and answers 503 until it has loaded."""
        found = probe(self.api_base(address), self._spec.model_id, self.headers())
        return replace(found, engine_version=self._build(address)) if found.ready else found

    def _build(self, address: str) -> str | None:
        """The build as it names itself, such as b11434-1a2b3c4."""
        url = f"{address.rstrip('/')}/props"
        try:
            answer = httpx.get(url, headers=self.headers(), timeout=LOOK_S, trust_env=False, verify=trusted())
            return str(answer.json()["build_info"])
        except (httpx.HTTPError, ValueError, TypeError, KeyError):
            return None

    def _env(self) -> dict[str, str]:
        env = engine_environment(self._spec.env, self._spec.gpus, self._environ)
        key = self._key()
        return env if key is None else {**env, "LLAMA_API_KEY": key}
