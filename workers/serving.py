"""What serves on a host by day: how it is found, and what proves that it serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.domain.host_config import HostConfig
from service.domain.masking import masked_words
from service.domain.reasons import Reason
from workers.engines.base import Readiness
from workers.engines.readiness import probe
from workers.hosts.base import Host, HostError, ProductionHost, UnitPhase, UnitSource
from workers.hosts.commandof import shown_command
from workers.hosts.drift import drift_of

DEFAULT_PORTS = (("sglang", 30000), ("llama-server", 8080), ("vllm", 8000))
"""Program -> port where its command line names none."""
ELSEWHERE = frozenset({"--config", "--uds"})
"""Options that say where a server listens without naming it in the command line."""
TOKEN_S = 60.0


@dataclass(frozen=True)
class Serving:
    """One unit of production, as it was before anything was touched."""

    name: str
    sha256: str
    """Of its files."""
    live_argv: tuple[str, ...]
    """Without its secrets: it is written down."""
    base_url: str | None
    """Its OpenAI API; None where it has none that we know of: then running is all that can be proven."""
    port: int | None
    model: str
    proven: bool
    """A token came back before it was parked."""
    detail: str
    warning: str = ""
    """Why it may come back as something else than what serves; empty where nothing speaks for it."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Serving:
        """As it was written down."""
        return cls(**{**data, "live_argv": tuple(data["live_argv"])})


def survey(host: ProductionHost, config: HostConfig, address: str, headers: Mapping[str, str]) -> list[Serving]:
    """The units of production that run, in the order of the settings. HostError where parking them would not be safe."""
    found = []
    for name in config.park:
        source = host.source(name)
        against = hindrance(source, config.park)
        if against is not None:
            raise HostError(Reason.STALE_UNIT_DEFINITION, f"{against.why}; {against.remedy}")
        if host.unit(name).phase == UnitPhase.ACTIVE:
            found.append(_look(host, config, address, headers, source))
    return found


@dataclass(frozen=True)
class Hindrance:
    """Why a unit may not be parked, and what to do."""

    why: str
    remedy: str


def hindrance(source: UnitSource, park: Sequence[str]) -> Hindrance | None:
    """What speaks against parking a unit, `park` being all that is parked with it: that it would not come back, or not as it is."""
    show, name = source.properties, source.name
    if show.get("LoadState") != "loaded":
        return Hindrance(f"{name} is {show.get('LoadState') or 'unknown'}: there is no such unit", "name one that exists")
    if show.get("Id") not in {None, "", name}:
        return Hindrance(f"{name} is another name of {show['Id']}", f"park it by that: --park {show['Id']}")
    if show.get("NeedDaemonReload") == "yes":
        why = f"{name} was edited and not reloaded: started again, it would not be what serves now"
        return Hindrance(why, "run `systemctl daemon-reload`, and restart it if the change is meant")
    if show.get("TriggeredBy"):
        return Hindrance(f"{name} is started by {show['TriggeredBy']} as soon as somebody asks for it", "take the trigger away")
    for able, setting in (("CanStart", "RefuseManualStart"), ("CanStop", "RefuseManualStop")):
        if show.get(able) == "no":
            return Hindrance(f"{name} has {setting}=yes: nobody could stop it and start it again", f"take {setting}= away")
    return _not_as_it_is(source, park)


def _not_as_it_is(source: UnitSource, park: Sequence[str]) -> Hindrance | None:
    if source.missing:
        return Hindrance(f"{source.name} would not start again without {', '.join(source.missing)}, which is gone", "put it back")
    left = [unit for unit in source.taken_along if unit not in park]
    if left:
        why = f"systemd stops {', '.join(left)} with {source.name}, and would not start it again with it"
        return Hindrance(why, f"park it too, after it: {' '.join(f'--park {unit}' for unit in (source.name, *left))}")
    drift = drift_of(source)
    if drift is not None and drift.proven:
        return Hindrance(f"{source.name}: {drift.text}", "restart it yourself first, or undo the edit")
    return None


def _look(host: Host, config: HostConfig, address: str, headers: Mapping[str, str], source: UnitSource) -> Serving:
    port = _port(config, source)
    base = config.production_address or (f"{address}:{port}" if port else None)
    drift = drift_of(source)
    made = Serving(
        source.name, source.sha256, tuple(masked_words(source.live_argv)), f"{base}/v1" if base else None, port, "",
        proven=False, detail="it runs", warning="" if drift is None else drift.text,
    )  # fmt: skip
    if made.base_url is None:
        return made
    answer = serves(host, made, headers)
    model = answer.models[0] if answer.models else ""
    return replace(made, model=model, proven=answer.ready, detail=answer.detail if answer.ready else f"it did not serve: {answer.detail}")


def _port(config: HostConfig, source: UnitSource) -> int | None:
    """The port on the host itself. None where nothing tells it, or production answers at another: behind a proxy, out of a container."""
    port, address = port_of(shown_command(source)), config.production_address
    return port if address is None or address.endswith(f":{port}") else None


def serves(host: Host, unit: Serving, headers: Mapping[str, str]) -> Readiness:
    """One look: the unit itself owns the port, its model is listed, and one token came back."""
    if unit.base_url is None:
        return Readiness(ready=True, detail="it runs; it has no API that could be asked")
    if unit.port is not None:
        owner = host.port_owner(unit.port)
        if owner is None:
            return Readiness(ready=False, detail=f"nobody listens on port {unit.port}")
        if owner.shared or owner.service not in {None, unit.name}:
            return Readiness(ready=False, detail=f"port {unit.port} is owned by pid {owner.pid} ({owner.command}), not by {unit.name}")
    answer = probe(unit.base_url, unit.model, headers, TOKEN_S)
    if not unit.model and len(answer.models) > 1:
        return probe(unit.base_url, answer.models[0], headers, TOKEN_S)
    return answer


def port_of(argv: Sequence[str]) -> int | None:
    """The port that a command line names last, else the default one of the server that it starts; None where it may be another."""
    words = " ".join(argv).split()  # a shell has the whole command in one word
    named = [_value(words, at) for at, word in enumerate(words) if word.partition("=")[0] == "--port"]
    if named:
        return int(named[-1]) if named[-1].isdecimal() else None
    if any(word.partition("=")[0] in ELSEWHERE for word in words):
        return None
    line = " ".join(words).lower()
    return next((port for program, port in DEFAULT_PORTS if program in line), None)


def _value(words: Sequence[str], at: int) -> str:
    _, equals, value = words[at].partition("=")
    return (value if equals else next(iter(words[at + 1 :]), "")).strip("'\"")
