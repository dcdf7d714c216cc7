"""What the command line asks of hosts: their settings, and requests whose answer it waits for."""

from __future__ import annotations

import time
from typing import Any

from expctl.addresses import segment
from expctl.client import PATIENCE_S, Client, Json
from expctl.output import say

POLL_S = 0.3
UNTAKEN_S = 5.0
"""A worker looks every four seconds at the latest, so whoever has not taken a request up by then is not there, or is busy."""


class NotLooked(Exception):
    """Nobody has looked at the experiments on their host; the text says why."""


class TimeIsUp(Exception):
    """The answer did not come in time."""


class HostClient(Client):
    """The service's routes of hosts."""

    def host(self, name: str) -> Json:
        """One host with its shift and its window."""
        return self._object("GET", f"/v1/hosts/{segment(name)}")

    def save_host(self, settings: Json) -> Json:
        """Add a host, or change those of its settings that are given."""
        return self._object("POST", "/v1/hosts", json=settings)

    def allow_opening(self, name: str, *, allowed: bool = True) -> Json:
        """Allow one shift outside the window, or take that back."""
        return self._object("POST" if allowed else "DELETE", f"/v1/hosts/{segment(name)}/open")

    def give_back(self, name: str) -> Json:
        """Have production brought back at once."""
        return self._object("POST", f"/v1/hosts/{segment(name)}/give-back")

    def answer_of(self, name: str, kind: str, args: Json | None, timeout_s: float) -> Json:
        """Ask the host's worker for something and wait until it has answered. TimeIsUp where it does not.

        What no worker has taken up by then is withdrawn: it would be done at a time when nobody expects it.
        """
        asked = self._object("POST", f"/v1/hosts/{segment(name)}/{kind}", json=args)
        try:
            return self._finished(name, asked, time.monotonic() + timeout_s)
        except (TimeIsUp, KeyboardInterrupt):
            self._let_go(name, asked["id"])
            raise

    def look_at(self, name: str, experiments: list[Json], within_s: float) -> list[Json]:
        """Have experiments looked at on their host: a name and findings for each. NotLooked where nobody does so in time."""
        asked = self._object("POST", f"/v1/hosts/{segment(name)}/preflight", json={"experiments": experiments})
        began = time.monotonic()
        while True:
            found = self._object("GET", self._address(name, asked["id"]))
            waited = time.monotonic() - began
            if found["status"] == "finished":
                if "experiments" not in found["answer"]:
                    raise NotLooked(str(found["answer"].get("error") or "the worker gave no answer"))
                return list(found["answer"]["experiments"])
            if found["status"] == "queued" and waited >= UNTAKEN_S:
                self._object("DELETE", f"/v1/hosts/{segment(name)}/preflight/{asked['id']}")
                raise NotLooked(self._why_untaken(name).replace("; waiting for it", ""))
            if waited >= within_s:
                raise NotLooked(f"the worker of {name} has not answered within {within_s:g} s")
            time.sleep(POLL_S)

    def _finished(self, name: str, asked: Json, deadline: float) -> Json:
        started = time.monotonic()
        told = False
        self.patience_s = PATIENCE_S
        while True:
            found = self._object("GET", self._address(name, asked["id"]))
            if found["status"] == "finished":
                return found
            if not told and found["status"] == "queued" and time.monotonic() >= min(started + UNTAKEN_S, deadline - POLL_S):
                told = True
                say(self._why_untaken(name))
            if time.monotonic() >= deadline:
                raise TimeIsUp
            time.sleep(max(0.0, min(POLL_S, deadline - time.monotonic())))

    def _why_untaken(self, name: str) -> str:
        if self.host(name)["busy"]:
            return f"the worker of {name} is busy; waiting for it"
        return f"no worker for {name} has been seen; start `expctl worker --host {name}`"

    def _let_go(self, name: str, number: Any) -> None:
        address = self._address(name, number)
        self.patience_s = 0.0
        if self._object("GET", address)["status"] == "queued":
            self._object("DELETE", address)
            say("nobody took it up, so it is withdrawn")
        else:
            say(f"the worker of {name} is at it and goes on; its answer will stand at {self.server}{address}")

    def _address(self, name: str, number: Any) -> str:
        return f"/v1/hosts/{segment(name)}/requests/{number}"
