"""A sample of the chaos: every fault, and every place, at least once. `make chaos` strikes with each fault at each place."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from tests.lab.chaos.faults import FAULTS
from tests.lab.chaos.lane import Lane, open_lane
from tests.lab.chaos.places import PLACES, Place
from tests.lab.host import NewHost

pytestmark = pytest.mark.lab

SAMPLE = 20
SEED = 5


def sample() -> list[tuple[str, Place, float]]:
    """The same for every run of a seed."""
    chance = random.Random(SEED)  # noqa: S311 - no secret
    faults = itertools.cycle(FAULTS)
    places = [*chance.sample(PLACES, len(PLACES)), *chance.sample(PLACES, SAMPLE - len(PLACES))]
    return [(fault, place, round(chance.uniform(0.1, 0.9), 2)) for fault, place in zip(faults, places, strict=False)]


@pytest.fixture(scope="module")
def lane(new_shared_host: NewHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    host = new_shared_host()
    host.install_production()
    with open_lane(tmp_path_factory.mktemp("service"), host) as made:
        yield made


def test_every_fault_and_every_place_is_in_the_sample() -> None:
    chosen = sample()
    assert {fault for fault, _, _ in chosen} == set(FAULTS)
    assert {place for _, place, _ in chosen} == set(PLACES)


@pytest.mark.parametrize(("fault", "place", "fraction"), sample(), ids=str)
def test_nothing_is_lost_doubled_or_left_parked(lane: Lane, fault: str, place: Place, fraction: float) -> None:
    done = lane.strike(fault, place, fraction)
    assert done.verdict.good, (done, lane.installation.said())
