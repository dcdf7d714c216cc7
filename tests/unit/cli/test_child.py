"""When a process that ended is started again."""

from __future__ import annotations

from multiprocessing.process import BaseProcess

import pytest

from expctl.child import BACKOFF_S, WELL_S, Child


class Process(BaseProcess):
    """Lives until it is told that it ended."""

    def __init__(self) -> None:
        self.alive = True
        self.closed = False

    def is_alive(self) -> bool:
        return self.alive

    def close(self) -> None:
        self.closed = True


class Nursery:
    """A child with a clock that stands still unless told, and every process it ever had."""

    def __init__(self) -> None:
        self.now = 100.0
        self.processes: list[Process] = []
        self.child = Child("api", self._launch, clock=lambda: self.now)
        self.child.start()

    def _launch(self) -> BaseProcess:
        self.processes.append(Process())
        return self.processes[-1]

    def pause_after_a_life_of(self, seconds: float) -> float:
        """How long it takes until the next one is started."""
        self.now += seconds
        self.processes[-1].alive = False
        self.child.tend()
        ended, count = self.now, len(self.processes)
        while len(self.processes) == count:
            self.now += 0.25
            self.child.tend()
        return self.now - ended


def test_what_lives_is_left_alone() -> None:
    nursery = Nursery()
    for _ in range(10):
        nursery.now += WELL_S
        nursery.child.tend()
    assert len(nursery.processes) == 1


def test_pauses_grow_and_stay_at_the_longest() -> None:
    nursery = Nursery()
    pauses = [nursery.pause_after_a_life_of(1) for _ in range(7)]
    assert pauses == [*BACKOFF_S, BACKOFF_S[-1], BACKOFF_S[-1]]
    assert [process.closed for process in nursery.processes] == [True] * 7 + [False]


@pytest.mark.parametrize(("life", "pause"), [(WELL_S, BACKOFF_S[3]), (WELL_S + 1, BACKOFF_S[0])])
def test_one_that_was_well_begins_anew(life: float, pause: float) -> None:
    nursery = Nursery()
    for _ in range(3):
        nursery.pause_after_a_life_of(1)
    assert nursery.pause_after_a_life_of(life) == pause
    assert nursery.pause_after_a_life_of(1) == (BACKOFF_S[1] if pause == BACKOFF_S[0] else BACKOFF_S[4])
