"""Tables for narrow screens: figures are never cut, so what does not fit is drawn otherwise."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

UNBOUND = 10_000


class Fitting:
    """The first of several drawings of the same that fits the screen; the last one, where none does."""

    def __init__(self, *drawings: RenderableType) -> None:
        self._drawings = drawings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As rich asks for it."""
        room = options.update(max_width=UNBOUND)
        *others, last = self._drawings
        yield next((one for one in others if console.measure(one, options=room).maximum <= options.max_width), last)
