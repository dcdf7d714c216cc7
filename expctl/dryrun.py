"""What a submission would do, without doing it: the command line that would run, as the engine's own room builds it."""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

from expctl.client import Client
from expctl.globals import options
from service.domain.engine_spec import visible_devices
from service.domain.errors import ExpctlError, SpecError
from service.domain.masking import LooksMask, secrets_of
from service.domain.spec import Spec
from workers.engines.base import HostDefaults, Launch
from workers.engines.registry import make_engine
from workers.preflight.examine import static


def plan(spec: dict[str, Any]) -> dict[str, Any]:
    """Name, host, command line, number of loads, and of requests in each, of one experiment; and what is wrong with it.

    That is as far as it can be said without the host.
    """
    made = Spec.model_validate(spec)
    config, known = _host(made.host)
    defaults = HostDefaults(experiment_port=int(config.get("experiment_port", 8001)), executables=dict(config.get("executables", {})))
    from_unit = getattr(made.engine, "from_unit", None)
    engine = None if from_unit else make_engine(made, defaults, _Environment(os.environ))
    launch = engine.launch() if engine else None
    argv = _mask(made)(list(launch.argv)) if launch else None
    prompts = 5 if made.bench.prompts == "five" else len(made.bench.prompts)
    return {
        "name": made.name,
        "host": made.host,
        "host_known": known,
        "command": " ".join([*_variables(made), shlex.join(argv)]) if argv else _in_words(made, from_unit),
        "argv": argv,
        "env": _environment(made, launch),
        "findings": static(made, engine).as_json(),
        "requests": prompts * made.bench.repeat * len(made.bench.concurrency),
        "loads": made.repeat_load,
        "recheck_baseline": made.recheck_baseline,
    }


def objections(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """What is wrong with an experiment, as far as that can be said here."""
    made = Spec.model_validate(spec)
    forked = getattr(made.engine, "from_unit", None) is not None
    return static(made, None if forked else make_engine(made, HostDefaults(8001, {}), _Environment(os.environ))).as_json()


def _in_words(spec: Spec, from_unit: str | None) -> str:
    """Where no command line can be shown here."""
    if from_unit is None:
        return f"nothing is started; {getattr(spec.engine, 'base_url', '')} is measured"
    return f"the command line of {from_unit}, as it is on {spec.host} when the experiment starts, with these changes: " + (
        ", ".join(_changes(spec)) or "only the port"
    )


def _env(spec: Spec) -> dict[str, str]:
    return dict(getattr(spec.engine, "env", {}))


def _mask(spec: Spec) -> LooksMask:
    return LooksMask(secrets_of(_env(spec)))


def _variables(spec: Spec) -> list[str]:
    """What the experiment itself sets, as a shell has it before a command; `env:NAME` stays a reference.

    From the spec and not from the launch, where references are resolved to what whoever asks has in their own environment.
    """
    gpus = getattr(spec.engine, "gpus", None)
    wanted = ({"CUDA_VISIBLE_DEVICES": visible_devices(gpus)} if isinstance(gpus, list) else {}) | _env(spec)
    return [f"{name}={shlex.quote(value)}" for name, value in _mask(spec)(wanted).items()]


def _environment(spec: Spec, launch: Launch | None) -> dict[str, str]:
    """What is added to the environment that it starts in: of a unit that is forked the experiment's own part, else all of it.

    References stay references, as in `_variables`.
    """
    given, own = dict(launch.env) if launch else {}, _env(spec)
    reference = str(getattr(spec.engine, "api_key", None) or "")
    key = _Environment(os.environ).get(reference.removeprefix("env:")) if reference else None
    shown = {name: reference if key is not None and value == key else value for name, value in given.items()}
    gpus = getattr(spec.engine, "gpus", None)
    chosen = {"CUDA_VISIBLE_DEVICES": visible_devices(gpus)} if isinstance(gpus, list) else {}
    masked: dict[str, str] = _mask(spec)(chosen | shown | own)
    return masked


def _changes(spec: Spec) -> list[str]:
    engine = _mask(spec)(spec.engine.model_dump(mode="json", exclude_defaults=True))
    return [f"{key} {json.dumps(value)}" for key, value in engine.items() if key not in {"kind", "from_unit"}]


class _Environment(dict[str, str]):
    """Secrets are resolved where the worker runs; a dry run needs none of them."""

    def get(self, key: str, default: Any = None) -> Any:
        """The variable, or a placeholder."""
        return super().get(key, default or "***")

    def __missing__(self, key: str) -> str:
        return "***"

    def __contains__(self, key: object) -> bool:
        return True


def _host(name: str) -> tuple[dict[str, Any], bool | None]:
    """The host's settings, and whether it is known; None where no service answers that could tell."""
    try:
        with Client(options.server) as client:
            hosts = {host["name"]: host["config"] for host in client.hosts()}
    except ExpctlError:
        return {}, None
    if name not in hosts:
        raise SpecError(f"host {name} is not known", f"known: {', '.join(sorted(hosts))}", "write one of these as `host:` in the file")
    return hosts[name], True
