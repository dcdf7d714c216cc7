"""One experiment, looked at before it is started: its command line, its paths, its port, its GPUs, its disks.

Everything that may be asked twice without harm, in few commands: one look, the port, the GPUs, and the program's help once a version.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.domain.errors import UsageError
from service.domain.reasons import Reason
from service.domain.spec import Spec
from workers.engines.base import Engine, Launch
from workers.hosts.base import Host, HostError
from workers.preflight.arguments import FLAGS, SPECULATION, check_flags, check_speculation, line_of, number, speculation_of, split_server
from workers.preflight.findings import Finding, Report, doubtful, good, masked, unchecked, wrong
from workers.preflight.helps import HelpCache
from workers.preflight.places import Asked, Seen, asked_of, check_disks, check_places
from workers.preflight.sizes import MEMORY, Chosen, check_gpus, check_weights

ANOTHER_VIEW = re.compile(
    r"^(RootDirectory|RootImage|BindPaths|BindReadOnlyPaths|PrivateTmp|TemporaryFileSystem|InaccessiblePaths|ProtectHome)=(?!no|false|0|off|$)",
    re.MULTILINE,
)
"""Settings of a unit with which its program may see other files under a path than we do."""


@dataclass(frozen=True)
class Preflight:
    """Where experiments are looked at: a host, and what is known of it."""

    host: Host
    production: tuple[str, ...] = ()
    """Units that will be parked: what they hold is free by then."""
    trusted: frozenset[str] = frozenset()
    """Programs that the host's settings name. The login runs them; one of the submitter's choice only its own user does."""
    data_dir: Path | None = None
    """Where the worker keeps logs and artifacts."""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def helps(self) -> HelpCache:
        """What engines have said of their arguments."""
        return HelpCache(None if self.data_dir is None else self.data_dir / "help")

    def of(self, spec: Spec, engine: Engine) -> Report:
        """Everything that can be said before the start. What cannot be looked at is said, too; nothing is raised for it."""
        try:
            launch = engine.launch()
        except UsageError as error:
            return masked([wrong("experiment", Reason.BAD_ARGUMENTS, str(error), error.what, error.todo)], (), {}, self.secrets)
        if launch is None:
            return Report()
        found = [*_Look(self, spec, launch).findings()]
        return masked(found, launch.argv or launch.fork or (), launch.env, self.secrets)


def refused(error: HostError | UsageError) -> Report:
    """Where it cannot even be said what would be started."""
    if isinstance(error, UsageError):
        return Report((wrong("experiment", Reason.BAD_ARGUMENTS, str(error), error.what, error.todo),))
    return Report((unchecked("host", error.evidence),))


def static(spec: Spec, engine: Engine | None) -> Report:
    """What can be said without the host. `engine` None: its command line is known there only."""
    launch = engine.launch() if engine is not None else None
    config, why = speculation_of(line_of(launch.argv)) if launch is not None else (_own_speculation(spec), "")
    found: list[Finding] = []
    if config is None:
        found.append(wrong(SPECULATION, Reason.BAD_ARGUMENTS, why))
    elif config and spec.engine.kind == "vllm":
        ranks = None if launch is None else number(line_of(launch.argv), "tensor-parallel-size")
        found += [one for one in check_speculation(config, ranks, None) if one.verdict != "unchecked"]
    return masked(found, launch.argv if launch else (), launch.env if launch else getattr(spec.engine, "env", {}))


def _own_speculation(spec: Spec) -> dict[str, Any]:
    given = getattr(spec.engine, "speculative", None)
    return {} if given is None else dict(given.model_dump(mode="json", exclude_none=True))


@dataclass(frozen=True)
class _Look:
    """One experiment's turn."""

    at: Preflight
    spec: Spec
    launch: Launch

    def findings(self) -> Iterator[Finding]:
        asked = self._asked()
        seen: Seen = {}
        try:
            user, view = self._who()
            seen = self._seen(asked, user)
            same = user is None or seen["user"] == user
            hidden = view or ("" if same else f"and {user}, who runs the engine, may see it otherwise than {seen['user']}, who looked")
            yield from check_places(self._visible(asked, view), seen, hidden)
            yield from self._arguments(seen, asked, user, same=same)
        except HostError as error:
            yield unchecked("host", f"paths and arguments: {error.evidence}")
        yield from self._port()
        yield from self._gpus(seen.get("models", {}).get(asked.model))
        yield from check_disks(asked, seen, self._own_disk())

    def _asked(self) -> Asked:
        return asked_of(self.launch, line_of(self.launch.argv), self._model())

    def _model(self) -> str | None:
        """As the command line has it, since a fork's is not in the experiment."""
        parts = split_server(self.launch.argv)
        if parts is None:
            return getattr(self.spec.engine, "model", None)
        line = line_of(self.launch.argv)
        return line.value("model") or (parts[1][line.positionals[0]] if line.positionals else None)

    def _who(self) -> tuple[str | None, str]:
        """Who runs the engine, and why it may see other files than others do."""
        from_unit = getattr(self.spec.engine, "from_unit", None)
        if from_unit is None:
            return self.launch.user or self.at.host.run_as, ""
        source = self.at.host.source(from_unit)
        text = "\n".join(body for _, body in source.files)
        moved = ANOTHER_VIEW.search(text)
        user = self.launch.user or source.properties.get("User") or "root"
        return user, f"and {from_unit} has {moved[1]}= set, so that the engine may see other files" if moved else ""

    def _seen(self, asked: Asked, user: str | None) -> Seen:
        return self.at.host.look(asked.question(user))

    @staticmethod
    def _visible(asked: Asked, view: str) -> Asked:
        """Where the engine sees other files than the look does, the look proves nothing."""
        if not view:
            return asked
        return Asked(notes=(*asked.notes, unchecked("paths", f"model and files are not looked for, {view.removeprefix('and ')}")))

    def _arguments(self, seen: Seen, asked: Asked, user: str | None, *, same: bool) -> Iterator[Finding]:
        if self.spec.engine.kind != "vllm":
            if not self.spec.is_command:
                yield unchecked(FLAGS, f"what {self.spec.engine.kind} takes is known to its program only")
            return
        parts = split_server(self.launch.argv)
        if parts is None:
            yield unchecked(FLAGS, "the command line is known on the host only, or is none of vLLM's")
            return
        program = seen["programs"].get(asked.program, {})
        line = line_of(self.launch.argv)
        config, why = speculation_of(line)
        if config is None:
            yield wrong(SPECULATION, Reason.BAD_ARGUMENTS, why)
        elif config:
            yield from check_speculation(config, number(line, "tensor-parallel-size"), program.get("dists", ()))
        if program.get("kind") == "file" and program.get("executable"):
            yield from self._flags(parts, program, user, same=same)
        else:
            yield unchecked(FLAGS, "the program could not be asked")

    def _flags(self, parts: tuple[tuple[str, ...], tuple[str, ...]], program: Seen, user: str | None, *, same: bool) -> Iterator[Finding]:
        own = getattr(self.spec.engine, "executable", None)
        if not same and own is not None and own not in self.at.trusted:
            yield unchecked(FLAGS, f"{own} is not run by the login, since only {user} runs what an experiment brings along")
            return
        known = self.at.helps.of(self.at.host, parts[0], str(program["mark"]), user)
        if known.options:
            yield from check_flags(parts[1], known.options, str(program["path"]))
        else:
            simulation = "the engine is a simulation, which lists none" if program.get("simulation") else ""
            yield unchecked(FLAGS, simulation or known.why or "its help could not be read")

    def _port(self) -> Iterator[Finding]:
        port = self.launch.port
        if not port:
            return
        try:
            owner = self.at.host.port_owner(port)
        except HostError as error:
            yield unchecked("port", f"whether {port} is free: {error.evidence}")
            return
        parked = owner is not None and owner.service in self.at.production and not owner.shared
        if owner is None or (owner.unit or "").startswith("expctl-") or parked:
            yield good(
                "port", f"{port} is free" if owner is None else f"{port} is held by {owner.unit or owner.service}, which is ended before"
            )
            return
        who = f"pid {owner.pid} ({owner.command})" if owner.pid else "a process of another user"
        text, remedy = f"port {port} is owned by {who}", "stop it, or choose another engine.port"
        if owner.service is not None:
            yield wrong("port", Reason.PORT_IN_USE, f"{text} of {owner.service}", who, remedy)
        else:
            # What an engine of ours has left behind is ended before the start; that is told apart then.
            yield doubtful("port", text, remedy)

    def _gpus(self, model: Mapping[str, Any] | None) -> Iterator[Finding]:
        chosen: Chosen = getattr(self.spec.engine, "gpus", "none")
        if chosen == "none":
            return
        try:
            reading = self.at.host.gpus()
        except HostError as error:
            yield unchecked(MEMORY, f"whether the weights fit: {error.evidence}")
            return
        yield from check_gpus(reading, chosen)
        if self.spec.engine.kind == "vllm":
            yield from check_weights(line_of(self.launch.argv), model, reading, chosen)

    def _own_disk(self) -> dict[str, int]:
        folder = self.at.data_dir
        return {} if folder is None else {str(folder): shutil.disk_usage(folder).free // 2**20}
