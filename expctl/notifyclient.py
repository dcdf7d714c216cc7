"""What the command line asks of notifiers and deliveries."""

from __future__ import annotations

import time

from expctl.addresses import segment
from expctl.client import Client, Json
from service.domain.errors import UsageError

POLL_S = 0.2


class NotifyClient(Client):
    """The service's routes of messages."""

    def notifiers(self) -> list[Json]:
        """Every notifier."""
        found: list[Json] = self._call("GET", "/v1/notifiers")
        return found

    def add_notifier(self, settings: Json) -> Json:
        """Add one; the answer holds its signing secret."""
        return self._object("POST", "/v1/notifiers", json=settings)

    def remove_notifier(self, name: str) -> Json:
        """Forget one."""
        return self._object("DELETE", _address(name))

    def enable_notifier(self, name: str) -> Json:
        """Tell a disabled one again."""
        return self._object("POST", f"{_address(name)}/enable")

    def rotate_secret(self, name: str, *, finish: bool) -> Json:
        """Make a new signing secret, or let go of the old one."""
        return self._object("POST", f"{_address(name)}/rotate", json={"finish": finish})

    def send_test(self, name: str, timeout_s: float) -> Json:
        """Send a test message and wait for its try; the delivery as it is then, which is pending where nobody has tried it."""
        made = self._object("POST", f"{_address(name)}/test")
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.delivery(int(made["id"]))
            if found["status"] != "pending" or time.monotonic() >= deadline:
                return found
            time.sleep(POLL_S)

    def delivery(self, number: int) -> Json:
        """One delivery with its tries."""
        return self._object("GET", f"/v1/deliveries/{number}")

    def deliveries(self, params: dict[str, str | int]) -> list[Json]:
        """The newest deliveries."""
        items: list[Json] = self._object("GET", "/v1/deliveries", params=params)["items"]
        return items

    def replay(self, number: int) -> Json:
        """Send one again."""
        return self._object("POST", f"/v1/deliveries/{number}/replay")


def _address(name: str) -> str:
    if not name.strip():
        raise UsageError("the name of the notifier is empty", "", "see `expctl notify list`")
    return f"/v1/notifiers/{segment(name)}"
