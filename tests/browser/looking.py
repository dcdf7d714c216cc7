"""A page in Chromium that keeps account: what the console said, and how much came over the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, Page, Response

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
SERIOUS = {"serious", "critical"}


@dataclass
class Look:
    """One tab."""

    page: Page
    base: str
    said: list[str] = field(default_factory=list)
    """Errors and warnings of the console, and what scripts did not catch."""
    answers: list[Response] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("response", self._answered)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.said.append(f"{message.type}: {message.text}")

    def _answered(self, answer: Response) -> None:
        self.answers.append(answer)

    def open(self, path: str) -> Page:
        """Open a page of the service."""
        self.page.goto(self.base + path, wait_until="load")
        return self.page

    def loaded_bytes(self) -> int:
        """What came over the wire so far, streams left out: they end when the page does."""
        whole = [answer for answer in self.answers if "event-stream" not in answer.headers.get("content-type", "")]
        return sum(answer.request.sizes()["responseBodySize"] for answer in whole)

    def faults(self) -> list[str]:
        """What axe-core finds serious or critical."""
        self.page.evaluate(AXE.read_text())
        found: dict[str, Any] = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [_words(one) for one in found["violations"] if one["impact"] in SERIOUS]

    def until(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until a JavaScript expression is true on the page."""
        self.page.wait_for_function(f"() => {expression}", timeout=seconds * 1000)


def _words(found: dict[str, Any]) -> str:
    first = found["nodes"][0]
    return f"{found['impact']} {found['id']}: {first['html'][:200]} {first.get('failureSummary', '')[:300]} ({len(found['nodes'])} of them)"


Looks = Callable[..., Look]
