"""What somebody wants done on a host: done by the host's worker, since nobody else reaches the host."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from service.domain.host_config import HostConfig
from service.domain.host_requests import InstallArgs, PreflightArgs, RequestKind, TrustArgs
from service.domain.reasons import RULES, Reason
from service.domain.spec import Spec
from service.store import hostrequests
from service.store.database import Database
from service.store.hosts import Lease
from service.store.tables import HostRequestRow
from workers.checking import Checks
from workers.firstlook import FirstLook
from workers.hosts.base import HostError
from workers.hosts.helper.assemble import assemble, default_config, sudoers_line
from workers.hosts.helper.request import USER
from workers.hosts.helper_client import PATH
from workers.hosts.host_keys import fetch_host_keys, pins_of_destination, trust
from workers.hosts.known_hosts import HostKey
from workers.hosts.registry import make_local_host, route_of
from workers.hosts.ssh_destination import Route
from workers.reaching import Reach

log = structlog.get_logger()

CONFIG_PATH = "/etc/expctl-host.json"
INSTALL = """set -eu
umask 077
path=$1 mode=$2
new=$(mktemp "${path%/*}/.expctl-host.XXXXXX")
trap 'rm -f "$new"' EXIT
cat > "$new"
chmod "$mode" "$new"
chown root:root "$new"
[ "$mode" != 0755 ] || "$new" --version > /dev/null
mv -f "$new" "$path"
trap - EXIT
"""
"""A file in the place of another, in one step; a program only once it has run."""


@dataclass(frozen=True)
class Answer:
    """What came of a request."""

    ok: bool
    data: dict[str, Any]


@dataclass(frozen=True)
class Requests:
    """Answers the requests of one claimed host."""

    database: Database
    lease: Lease
    config: HostConfig
    environ: Mapping[str, str]
    reach: Reach

    def take(self) -> HostRequestRow | None:
        """The next one that waits."""
        with self.database.write() as session:
            return hostrequests.take(session, self.lease)

    def put(self, row: HostRequestRow, answer: Answer) -> None:
        """Write its answer down."""
        log.info("answered", host=self.lease.host, kind=row.kind, ok=answer.ok)
        with self.database.write() as session:
            hostrequests.answer(session, self.lease, row.id or 0, ok=answer.ok, answer=answer.data)

    def answer_all(self, busy: str | None) -> HostRequestRow | None:
        """Answer all that waits. A rehearsal is given back to be done, or refused where the host is busy."""
        while (row := self.take()) is not None:
            if row.kind != RequestKind.REHEARSE:
                self.put(row, self.carry_out(row))
            elif busy is None:
                return row
            else:
                self.put(row, Answer(False, {"error": busy, "remedy": "ask again when it has closed"}))
        return None

    def carry_out(self, row: HostRequestRow) -> Answer:
        """Do what is asked, rehearsals apart: these are shifts."""
        try:
            if row.kind == RequestKind.CHECK:
                checks = Checks(self.lease.host, self.config, self.reach, self.environ).run()
                return Answer(all(check["ok"] is not False for check in checks), {"checks": checks})
            if row.kind == RequestKind.TRUST:
                return self._trust(TrustArgs.model_validate(row.args))
            if row.kind == RequestKind.PREFLIGHT:
                return self._preflight(PreflightArgs.model_validate(row.args))
            return self._install(InstallArgs.model_validate(row.args))
        except HostError as error:
            return refusal(error.reason, error.evidence)

    def _preflight(self, args: PreflightArgs) -> Answer:
        """Look at experiments that may never be queued."""
        data_dir = self.reach.worker.data_dir
        local = self.config.units == "process"
        host = make_local_host(self.lease.host, self.config, data_dir) if local else self.reach.impatient()
        look = FirstLook(host, self.config, self.environ, data_dir)
        found = [(one["name"], look.of(Spec.model_validate(one))) for one in args.experiments]
        told = [{"name": name, "findings": report.as_json()} for name, report in found]
        return Answer(all(report.refusal is None for _, report in found), {"experiments": told})

    def _trust(self, args: TrustArgs) -> Answer:
        route = self._route()
        for stage in route.stages():
            keys = fetch_host_keys(stage)
            shown = _shown(stage, keys)
            wanted = tuple(key for key in keys if key.fingerprint in args.pin)
            if wanted:
                trust(stage, wanted, replace=True)
                shown = _shown(stage, keys)
            if stage.destination == route.destination or not any(key["known"] == "pinned" for key in shown):
                # A machine behind one that is not trusted yet cannot be looked at.
                missing = [pin for pin in args.pin if pin not in {key.fingerprint for key in keys}]
                if missing:
                    return Answer(False, {"keys": shown, "error": f"{stage.destination} does not show {', '.join(missing)}"})
                return Answer(True, {"keys": shown})
        raise HostError(Reason.HOST_UNREACHABLE, f"{self.config.ssh} leads nowhere")

    def _route(self) -> Route:
        return route_of(self.config.ssh or "", self.environ)

    def _install(self, args: InstallArgs) -> Answer:
        text = assemble()
        user = args.user or self._login()
        config = default_config(parked=self.config.park, run_as=self._users())
        sudoers = "" if user == "root" else sudoers_line(user)
        answer: dict[str, Any] = {
            "installed": False,
            "path": PATH,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "sudoers": sudoers,
            "config_path": CONFIG_PATH,
            "config": json.loads(config),
            "config_text": config,
            "commands": _by_hand(self.lease.host, config, sudoers),
            "text": text,
        }
        if not args.apply:
            return Answer(True, answer)
        if self._run(["id", "-u"]).strip() != "0":
            why = f"the worker logs in as {user}, and only root may install it"
            return Answer(False, {**answer, "error": why, "remedy": "let an admin run the commands"})
        for path, mode, content in ((PATH, "0755", text), (CONFIG_PATH, "0644", config)):
            self._run(["/bin/sh", "-c", INSTALL, "expctl-install", path, mode], content)
        return Answer(True, {**answer, "installed": True})

    def _users(self) -> list[str]:
        """Who experiments run as: who is set, and production's own users, for its forks. Not root: that is for an admin to write."""
        asked = ["systemctl", "show", "--value", "--property=User", "--"]
        found = [self.config.run_as or ""]
        with suppress(HostError):  # the helper can be shown before anybody can log in; the check finds what is missing
            found += [self._run([*asked, unit]).strip() for unit in self.config.park]
        return list(dict.fromkeys(user for user in found if USER.fullmatch(user) and user != "root"))

    def _login(self) -> str:
        return self._route().destination.user if self.config.ssh else self._run(["id", "-un"]).strip()

    def _run(self, argv: list[str], text: str = "") -> str:
        done = self.reach.transport().run(argv, stdin=text.encode())
        if not done.ok:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise HostError(Reason.REMOTE_COMMAND_FAILED, f"{argv[0]} ended with {done.exit_status or done.signal}: {said}")
        return done.stdout.decode("utf-8", "replace")


def refusal(reason: str, evidence: str) -> Answer:
    """An answer that says what went wrong, and what to do."""
    rule = RULES[Reason(reason)]
    return Answer(False, {"error": f"{rule.sentence}: {evidence}", "reason": reason, "remedy": rule.remedy})


def _shown(stage: Route, keys: tuple[HostKey, ...]) -> list[dict[str, str]]:
    pins = pins_of_destination(stage)
    known = {pin.key for pin in pins.trusted + pins.elsewhere}
    return [
        {
            "type": key.kind,
            "fingerprint": key.fingerprint,
            "host": stage.destination.key_name,
            "known": "pinned" if key in known else "changed" if key.kind in pins.kinds else "unknown",
        }
        for key in keys
    ]


def _by_hand(host: str, config: str, sudoers: str) -> list[str]:
    """For an admin of the host, line by line; the first one runs where the command line is."""
    lines = [
        f"expctl host install {host} --file > expctl-host    # here; copy it to the host, and the rest there, as root:",
        f"install -o root -g root -m 0755 expctl-host {PATH}",
        f"printf '%s' {shlex.quote(config)} > {CONFIG_PATH} && chmod 0644 {CONFIG_PATH}",
    ]
    if sudoers:
        place = "/etc/sudoers.d/expctl"
        lines.append(f"printf '%s\\n' {shlex.quote(sudoers)} > {place} && chmod 0440 {place} && visudo -c")
    return lines
