"""vLLM: its command line, and where its OpenAI API and its counters are."""

from __future__ import annotations

from collections.abc import Mapping

from service.domain.engine_spec import VllmEngine as VllmSpec
from service.domain.errors import UsageError
from workers.basecommand import BaseCommand
from workers.engines.base import HostDefaults, Launch, LoadLog, Readiness
from workers.engines.environment import UNBUFFERED, engine_environment
from workers.engines.merging import Merged, Wanted, merge
from workers.engines.readiness import probe
from workers.engines.started import StartedEngine
from workers.engines.vllm_arguments import argument, speculative_json
from workers.engines.vllm_log import VllmLoadLog


class VllmEngine(StartedEngine[VllmSpec]):
    """A vLLM server that is started for the experiment."""

    kind: str = "vllm"

    def __init__(self, spec: VllmSpec, defaults: HostDefaults, environ: Mapping[str, str], base: BaseCommand | None = None) -> None:
        super().__init__(spec, defaults, environ)
        self._base = base

    def launch(self) -> Launch:
        """Command line, environment and port. The API key travels in the environment, where `ps` does not show it."""
        return self._rendered() if self._spec.from_unit is None else self._forked()

    def _rendered(self) -> Launch:
        """From the experiment's own keys alone."""
        spec = self._spec
        executable = spec.executable or self._defaults.executables.get("vllm", "vllm")
        argv = [executable, "serve", spec.model or ""]
        if spec.served_model_name is not None:
            argv += ["--served-model-name", spec.served_model_name]
        argv += ["--port", str(self._port)]
        for name, value in spec.args.items():
            argv += argument(name, value)
        if spec.speculative is not None:
            argv += ["--speculative-config", speculative_json(spec.speculative)]
        return Launch(argv=tuple(argv), env=self._env(), cwd=spec.cwd, port=self._port, user=spec.user)

    def _forked(self) -> Launch:
        """From the command line of an existing unit."""
        merged, spec = self._merged(), self._spec
        return Launch(
            argv=merged.argv,
            env=self._env(),
            cwd=spec.cwd,
            port=merged.port,
            user=spec.user,
            fork=merged.words,
            changes=tuple((change.flag, change.before, change.after) for change in merged.changes),
            warnings=merged.warnings,
        )

    def _merged(self) -> Merged:
        spec = self._spec
        if self._base is None:
            raise UsageError(
                f"the command line of {spec.from_unit} is not known here",
                "it stands in the unit's files on the host",
                "the worker of that host reads it when the experiment starts",
            )
        wanted = Wanted(
            args=spec.args,
            model=spec.model,
            served_model_name=spec.served_model_name,
            port=None if spec.keep_port else self._port,
            executable=spec.executable,
            speculative=None if spec.speculative is None else speculative_json(spec.speculative),
            own_api_key=spec.api_key is not None,
            env=self._env(),
        )
        return merge(self._base, wanted)

    def load_log(self) -> LoadLog:
        """A fresh reader for vLLM's log."""
        return VllmLoadLog()

    def served_model(self, probe: Readiness) -> str:
        """The id that was asked for; where a unit's command line does not tell it, the only one that the server lists."""
        return self._model_id() or (probe.models[0] if probe.models else "")

    def probe(self, address: str) -> Readiness:
        """Model listed, one token generated, version read."""
        return probe(self.api_base(address), self._model_id(), self.headers())

    def _model_id(self) -> str:
        return self._spec.model_id or self._merged().model_id

    def _env(self) -> dict[str, str]:
        env = engine_environment(self._spec.env, self._spec.gpus, self._environ, UNBUFFERED)
        key = self._key()
        return env if key is None else {**env, "VLLM_API_KEY": key}
