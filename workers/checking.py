"""Does a host have all that a night needs? Each need is proven, and what is missing comes with its remedy."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from service.domain.host_config import HostConfig
from service.domain.reasons import RULES, Reason
from workers.hosts.base import Host, HostError, ProductionHost, UnitPhase
from workers.hosts.drift import drift_of
from workers.hosts.helper.assemble import assemble
from workers.hosts.helper_client import PROTOCOL, Helper
from workers.hosts.systemd import state_of
from workers.reaching import Reach, headers_of
from workers.serving import hindrance, survey

Check = dict[str, Any]

FREE_MIB = 5 * 1024
SKEW_S = 5.0
LISTEN_S = 8.0
LISTEN = """
import socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("0.0.0.0", int(sys.argv[1])))
server.listen(1)
server.settimeout(float(sys.argv[3]))
try:
    connection, _ = server.accept()
    connection.sendall(sys.argv[2].encode())
    connection.close()
except OSError as error:
    print(error)
"""
"""Stands where an engine would, for as long as the proof takes."""


@dataclass
class Checks:
    """All checks of one host. A check that another one makes pointless is left out."""

    name: str
    config: HostConfig
    reach: Reach
    environ: Mapping[str, str]
    found: list[Check] = field(default_factory=list)

    def run(self) -> list[Check]:
        """Every check, in the order in which they are worth mending."""
        if self.config.units == "process":
            self._add("this machine", True, "units are plain processes of the worker's own user")
            return self._gpus_and_ports()
        if not self._try("connection", self._connection):
            return self.found
        self._try("clock", self._clock)
        if not self._try("host helper", self._helper_answers):
            return self.found
        if not self._try("claim", self._nobody_else):
            # What follows would listen on the port that somebody else's engine is about to take.
            return self.found
        fit = [self._try(f"production unit {unit}", partial(self._unit, unit)) for unit in self.config.park]
        self._try("who runs experiments", self._users)
        if fit and all(fit):
            self._try("production serves", self._serves)
        self._gpus_and_ports()
        self._try("engine address", self._engine_address)
        self._try("disk and shared memory", self._room)
        return self.found

    def _gpus_and_ports(self) -> list[Check]:
        self._try("GPUs", self._gpus)
        self._try("experiment port", self._port)
        return self.found

    def _add(self, name: str, ok: bool | None, found: str, remedy: str = "") -> None:
        self.found.append({"name": name, "ok": ok, "found": found, "remedy": "" if ok else remedy})

    def _try(self, name: str, check: Callable[[], tuple[bool | None, str, str]]) -> bool:
        """Whether to go on."""
        try:
            ok, found, remedy = check()
        except HostError as error:
            rule = RULES[Reason(error.reason)]
            self._add(name, False, f"{rule.sentence}: {error.evidence}", rule.remedy.replace("NAME", self.name))
            return False
        self._add(name, ok, found, remedy)
        return ok is not False

    def _helper(self) -> Helper:
        return Helper(self.reach.transport(), self.reach.claim())

    def _connection(self) -> tuple[bool, str, str]:
        began = time.monotonic()
        done = self.reach.transport().run(["id", "-un"])
        took = (time.monotonic() - began) * 1000
        if not done.ok:
            return False, f"`id` ended with {done.exit_status}", "look at the account's shell and start-up files"
        where = self.config.ssh or "this machine"
        return True, f"{where}, as {done.stdout.decode('utf-8', 'replace').strip()}, {took:.0f} ms", ""

    def _clock(self) -> tuple[bool, str, str]:
        before = time.time()
        done = self.reach.transport().run(["date", "+%s.%N"])
        there = float(done.stdout.decode("ascii", "replace").strip() or "nan")
        off = there - (before + time.time()) / 2
        return abs(off) < SKEW_S, f"{off:+.1f} s from ours", "let both machines keep time by NTP: windows and logs are read by the clock"

    def _helper_answers(self) -> tuple[bool, str, str]:
        try:
            said = self._helper().ask("hello")
        except HostError as error:
            if error.reason != Reason.SUDO_PASSWORD_REQUIRED:
                raise
            todo = f"an admin has to do what `expctl host install {self.name}` prints, the line of sudoers included"
            return False, f"sudo asks for a password, as it does where the helper is not installed yet: {error.evidence}", todo
        if said.get("protocol") != PROTOCOL:
            return False, f"protocol {said.get('protocol')}, this version speaks {PROTOCOL}", f"run `expctl host install {self.name}`"
        own = hashlib.sha256(assemble().encode()).hexdigest()
        if said.get("sha256") != own:
            return False, "it is another version than this worker's", f"run `expctl host install {self.name}`"
        missing = [unit for unit in self.config.park if unit not in said["config"]["parked"]]
        if missing:
            return False, f"its config does not allow to park {', '.join(missing)}", f"run `expctl host install {self.name}`"
        return True, f"version {said.get('version')}, systemd {said.get('systemd')}, Python {said.get('python')}", ""

    def _nobody_else(self) -> tuple[bool, str, str]:
        helper = self._helper()
        said = helper.ask("hello")
        holder = said.get("holder")
        if holder and holder["service"] != self.reach.claim().service:
            living = any(state_of(status).phase == UnitPhase.ACTIVE for status in helper.ask("units")["units"])
            if said["armed"] or living:
                todo = "two installations cannot share a host: remove it from one of them"
                return False, f"held by {holder['owner']} of installation {holder['service']} since {holder['since']}", todo
        return True, "nobody else uses this host", ""

    def _unit(self, name: str) -> tuple[bool | None, str, str]:
        source = self._host().source(name)
        against = hindrance(source, self.config.park)
        if against is not None:
            return False, against.why, against.remedy
        state = source.properties.get("ActiveState", "unknown")
        enabled = source.properties.get("UnitFileState") or "unknown"
        if state != "active":
            return None, f"{state}, {enabled}", "what does not run is not parked, and not started afterwards"
        drift = drift_of(source)
        if drift is not None:
            return None, f"{state}, {enabled}; {drift.text}", "restart it yourself if the change is meant; it is parked all the same"
        return True, f"{state}, {enabled}", ""

    def _users(self) -> tuple[bool | None, str, str]:
        """Forks run as production does, other experiments as `run_as`; the helper's config must allow each."""
        said, host = self._helper().ask("hello"), self._host()
        of_forks = [host.source(unit).properties.get("User") or "root" for unit in self.config.park]
        users = {*of_forks, *([host.run_as] if host.run_as else [])}
        allowed = {*said["config"]["run_as"], *(["root"] if said["config"]["allow_root"] else [])}
        missing = sorted(users - allowed)
        if not missing or said["caller"]["root"]:
            return True, ", ".join(sorted(users or allowed)) or "root", ""
        todo = "allow_root in /etc/expctl-host.json allows it" if missing == ["root"] else f"run `expctl host install {self.name}`"
        found = f"its config does not let experiments run as {', '.join(missing)}"
        if set(missing) <= set(of_forks[1:]) - {of_forks[0], host.run_as}:
            # What is parked beside the engine, such as a gateway, is seldom forked.
            return None, f"{found}; what is parked as them cannot be forked", todo
        return False, found, todo

    def _serves(self) -> tuple[bool | None, str, str]:
        units = survey(self._host(), self.config, self.reach.address, headers_of(self.config, self.environ))
        silent = [unit for unit in units if unit.base_url is not None and not unit.proven]
        if silent:
            todo = "set `--production-address`, or `--production-api-key env:NAME` where it wants a key"
            variable = (self.config.production_api_key or "").removeprefix("env:")
            if variable and not self.environ.get(variable):
                todo = f"start the worker with {variable} in its environment: `--production-api-key` names it, and it is not set there"
            return False, "; ".join(f"{unit.name}: {unit.detail}" for unit in silent), todo
        told = "; ".join(f"{unit.name}: {unit.detail}" for unit in units) or "nothing runs"
        # Of a unit without an API that could be asked, running is all that is proven.
        return (True if any(unit.proven for unit in units) else None), told, "set `--production-address` where it has an API"

    def _gpus(self) -> tuple[bool | None, str, str]:
        reading = self._any_host().gpus()
        if reading.no_gpus:
            return None, "none on this host", "experiments that need GPUs will fail here"
        if not reading.known:
            return False, f"{reading.tool}: {reading.why}", "make the tool answer: unknown is never taken for free"
        names = sorted({gpu.name for gpu in reading.gpus})
        return True, f"{len(reading.gpus)} x {', '.join(names)}, driver {reading.driver or 'unknown'}", ""

    def _port(self) -> tuple[bool, str, str]:
        port = self.config.experiment_port
        owner = self._any_host().port_owner(port)
        if owner is not None and not (owner.unit or "").startswith("expctl-"):
            who = f"pid {owner.pid} ({owner.command})" if owner.pid else "a process of another user"
            return False, f"{port} is owned by {who}", f"stop it, or choose another: `expctl host add {self.name} --experiment-port N`"
        return True, f"{port} is free" if owner is None else f"{port} is owned by {owner.unit}", ""

    def _engine_address(self) -> tuple[bool | None, str, str]:
        """A connection from here must reach a program that listens there."""
        port = self.config.experiment_port
        if self._any_host().port_owner(port) is not None:
            return None, f"port {port} is in use just now", "check again when nothing runs"
        nonce = secrets.token_hex(8)
        said: list[str] = []
        listener = threading.Thread(target=self._listen, args=(port, nonce, said), daemon=True)
        listener.start()
        got = _heard(self.reach.address, port, nonce)
        listener.join(LISTEN_S + 5)
        if got == nonce:
            return True, f"{self.reach.address}:{port} is reached from here", ""
        todo = "set `--engine-address` to what reaches the host from the worker, or open the port in the firewall"
        return False, f"{self.reach.address}:{port} is not reached from here: {got}{''.join(said)}", todo

    def _listen(self, port: int, nonce: str, said: list[str]) -> None:
        try:
            argv = ["python3", "-I", "-c", LISTEN, str(port), nonce, str(LISTEN_S)]
            done = self.reach.transport().run(argv, deadline_s=LISTEN_S + 4)
            said.append(f" ({(done.stderr or done.stdout).decode('utf-8', 'replace').strip()[-200:]})" if not done.ok else "")
        except HostError as error:
            said.append(f" ({error.evidence})")

    def _room(self) -> tuple[bool, str, str]:
        facts = self._helper().ask("facts")["facts"]
        full = [f"{disk['mount']} {disk['free_mib']} MiB" for disk in facts["disks"] if disk["free_mib"] < FREE_MIB]
        used, total = facts.get("shm_used_mib"), facts.get("shm_total_mib")
        if full:
            return False, f"little is free: {', '.join(full)}", "free some space: engines write caches, and a full disk ends a load late"
        if used is not None and total and used > total / 2:
            return False, f"shared memory: {used} of {total} MiB are used", "remove what dead engines left there; NCCL needs it"
        return True, f"room at {', '.join(disk['mount'] for disk in facts['disks'])}; /dev/shm {used} of {total} MiB", ""

    def _host(self) -> ProductionHost:
        return self.reach.impatient()

    def _any_host(self) -> Host:
        return self.reach.host(_nothing, 0.0) if self.config.units == "process" else self.reach.impatient()


def _nothing() -> None:
    """There is nobody to ask whether to go on."""


def _heard(address: str, port: int, nonce: str) -> str:
    """What a program at that address says, or why nothing is heard."""
    host = urlsplit(address).hostname or ""
    deadline, last = time.monotonic() + LISTEN_S - 1, "nobody listened"
    while time.monotonic() < deadline:
        try:
            with contextlib.closing(socket.create_connection((host, port), timeout=2.0)) as wire:
                wire.settimeout(2.0)
                return wire.recv(len(nonce)).decode("ascii", "replace") or "another program closed the connection"
        except ConnectionRefusedError as error:
            last = str(error)
            time.sleep(0.2)  # the listener is still being started over there
        except OSError as error:
            last = str(error)
    return last
