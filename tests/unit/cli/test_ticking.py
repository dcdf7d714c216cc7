"""What `watch` shows between two events."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from expctl.views import ticking, watching
from expctl.views.ticking import Ticking, counted_down
from service.domain.eta import Remaining, Spread
from service.domain.eta_wording import left_text
from tests.acceptance.service import wait_for
from tests.unit.cli.fake_service import Json, Watched, item


class Hands:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("p50", "p90", "passed", "shown"), [
    (2460, 3300, 0, "41 min left (p90 55 min)"), (2460, 3300, 61, "40 min left (p90 54 min)"), (90, 95, 4, "86 s left (p90 91 s)"),
    (4800, 7200, 3600, "20 min left (p90 1 h)"), (60, 90, 200, "0 s left (p90 0 s)"),
])  # fmt: skip
def test_what_is_left_is_counted_down_in_the_server_s_own_words(p50: float, p90: float, passed: float, shown: str) -> None:
    text = left_text(Remaining(Spread(p50, p90)), ["torch_compile"]) + ", all done about 03:05"
    assert counted_down(text, passed) == f"then compiling, about {shown}, all done about 03:05"


@pytest.mark.parametrize(
    "text", ["", "no history yet", "starts about 02:10, ends about 03:05 (p90 03:20)", "longer than ever before (max 9 min)"]
)
def test_other_words_stay(text: str) -> None:
    assert counted_down(text, 100) == text


def test_only_what_was_asked_for_again_begins_anew() -> None:
    hands = Hands()
    first, second = ({"id": one, "eta_text": "about 40 min left (p90 50 min)"} for one in (1, 2))
    told = Ticking(hands)
    told.tell([first, second])
    hands.now += 600
    told.tell([first, dict(second)])
    assert [one["eta_text"] for one in told.now()] == ["about 30 min left (p90 40 min)", "about 40 min left (p90 50 min)"]


def test_a_terminal_is_redrawn_without_an_event_and_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    hands, out, asked = Hands(), io.StringIO(), []
    monkeypatch.setattr(watching, "TICKS_PER_S", 50)
    monkeypatch.setattr(watching, "console", lambda **_: Console(file=out, force_terminal=True, width=120))
    monkeypatch.setattr(ticking.Ticking.__init__, "__defaults__", (hands,))

    class Slow(Watched):
        def experiment(self, number: int) -> Json:
            asked.append(number)
            return super().experiment(number)

        def stream(self, path: str, params: Json) -> Iterator[tuple[str, Any]]:
            before = len(asked)
            hands.now += 120
            wait_for(lambda: "about 39 min left" in out.getvalue(), every=0.01)
            assert len(asked) == before
            yield from super().stream(path, params)

    running = item(status="running", status_text="Loading", where_text="weights", eta_text="about 41 min left (p90 55 min)")
    done = item(status="finished", outcome="succeeded", status_text="Succeeded", where_text="")
    assert watching._redraw(Slow(running, done), [41], to_stderr=False) == 0  # type: ignore[arg-type]
    assert "Succeeded" in out.getvalue()
