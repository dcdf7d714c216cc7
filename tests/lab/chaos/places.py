"""Where on its way an experiment can be hit: as a step begins, and in the middle of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

STEPS = ("clear", "launch", "load", "warm", "measure", "collect")
SHIFT = ("parking", "restoring")


class Watched(Protocol):
    """What tells how far an experiment and its host's shift are."""

    def arrived(self, one: int, at: str, seconds: float) -> None:
        """Wait until the experiment has begun that step, or the shift that phase."""

    def usual_s(self, at: str) -> float:
        """How long that takes when nothing happens."""

    def pause(self, seconds: float) -> None:
        """Let that much time pass."""


@dataclass(frozen=True)
class Place:
    """A step of the experiment, or a phase of its shift. `inside`: not as it begins, but somewhere in it."""

    at: str
    inside: bool

    def __str__(self) -> str:
        return f"in {self.at}" if self.inside else f"at {self.at}"

    def reach(self, watched: Watched, one: int, fraction: float, seconds: float = 60.0) -> None:
        """Return there. `fraction`: how far inside, of the time that it usually takes."""
        watched.arrived(one, self.at, seconds)
        if self.inside:
            watched.pause(fraction * watched.usual_s(self.at))


PLACES = tuple(Place(at, inside) for at in (SHIFT[0], *STEPS, SHIFT[1]) for inside in (False, True))
