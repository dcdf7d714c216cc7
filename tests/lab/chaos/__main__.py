"""Every fault at every place, several hosts at a time; prints the table. Exit status 1 where a number in it is not zero."""

from __future__ import annotations

import argparse
import itertools
import os
import queue
import random
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.lab.chaos.faults import FAULTS
from tests.lab.chaos.lane import Lane, open_lane
from tests.lab.chaos.places import PLACES, Place
from tests.lab.chaos.table import Strike, Table, Verdict
from tests.lab.conftest import making
from tests.lab.host import Lab

Todo = queue.Queue[tuple[str, Place, float]]


def combinations(seed: int, rounds: int) -> Iterator[tuple[str, Place, float]]:
    """Each fault at each place, in an order of the seed's, with how far inside the place."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(rounds):
        every = [(fault, place) for fault in FAULTS for place in PLACES]
        chance.shuffle(every)
        yield from ((fault, place, chance.uniform(0.1, 0.9)) for fault, place in every)


def work(lab: Lab, folder: Path, todo: Todo, table: Table) -> None:
    """Strike until nothing is left to do. A lane that was left in a bad state is made anew."""
    folder.mkdir()
    for number in itertools.count():
        if todo.empty():
            return
        with making(lab, folder, []) as new_host:
            host = new_host(f"gpu{folder.name}")
            host.install_production()
            with open_lane(folder / str(number), host) as lane:
                while strike(lane, todo, table):
                    pass


def strike(lane: Lane, todo: Todo, table: Table) -> bool:
    """Once. Whether the lane is good for another one."""
    try:
        fault, place, fraction = todo.get_nowait()
    except queue.Empty:
        return False
    try:
        done = lane.strike(fault, place, fraction)
    except Exception as error:  # noqa: BLE001 - whatever it was, it counts, and the others go on
        traceback.print_exc()
        done = Strike(fault, place, 0.0, Verdict(lost=(f"the run itself broke off: {error!r}"[:300],)))
    table.strikes.append(done)
    print(f"{len(table.strikes)}: {fault} {place}: {done.seconds:.0f} s", "" if done.verdict.good else done.verdict, flush=True)
    if not done.verdict.good:
        print(lane.installation.said(), file=sys.stderr)
    return done.verdict.good


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lanes", type=int, default=3, help="hosts that are struck at a time")
    parser.add_argument("--rounds", type=int, default=1, help="how often each combination")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=100_000, help="stop after so many strikes")
    asked = parser.parse_args()
    todo: Todo = queue.Queue()
    for one in itertools.islice(combinations(asked.seed, asked.rounds), asked.most):
        todo.put(one)
    wanted = todo.qsize()
    table = Table()
    with tempfile.TemporaryDirectory(prefix="expctl-chaos-") as scratch:
        place = Path(os.environ.get("EXPCTL_LAB_DIR", "/var/tmp/expctl-lab"))  # noqa: S108 - kept between runs
        lab = Lab(place, Path(scratch))
        assert lab.base.exists()
        lanes = [threading.Thread(target=work, args=(lab, Path(scratch) / str(one), todo, table)) for one in range(asked.lanes)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
    print(table.text(list(FAULTS), PLACES))
    return 0 if len(table.strikes) == wanted and all(one.verdict.good for one in table.strikes) else 1


if __name__ == "__main__":
    sys.exit(main())
