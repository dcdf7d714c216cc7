from __future__ import annotations

import asyncio
import time

from workers.bench.turns import SLICE_S, turns_of


def busy(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_parsing_leaves_the_loop_to_others_in_between_and_keeps_its_order() -> None:
    async def main() -> tuple[list[str], int]:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        done: list[str] = []
        turns, looks = turns_of(loop), 0

        def look() -> None:
            nonlocal looks
            looks += 1
            if len(done) < 40:
                loop.call_soon(look)

        def work(name: str) -> None:
            busy(SLICE_S / 2)
            done.append(name)
            if len(done) == 40:
                over.set()

        for number in range(40):
            turns.parse(lambda number=number: work(str(number)))
        loop.call_soon(look)
        await over.wait()
        return done, looks

    done, looks = asyncio.run(main())
    assert done == [str(number) for number in range(40)]
    assert looks >= 13, "at most three pieces of half a slice fit into a turn"


def test_one_connection_a_turn_and_only_when_nothing_waits_to_be_parsed() -> None:
    async def main() -> list[str]:
        turns, said = turns_of(asyncio.get_running_loop()), []

        async def opener(name: str) -> None:
            await turns.opening()
            said.append(name)

        async def gone() -> None:
            await turns.opening()

        given_up = asyncio.create_task(gone())
        await asyncio.sleep(0)
        given_up.cancel()
        tasks = [asyncio.create_task(opener(name)) for name in "abc"]
        await asyncio.sleep(0)
        for _ in range(3):
            turns.parse(lambda: said.append("parsed") or busy(2 * SLICE_S))  # type: ignore[func-returns-value]
        await asyncio.gather(*tasks)
        return said

    said = asyncio.run(main())
    assert said == ["parsed"] * 3 + ["a", "b", "c"]


def test_a_loop_has_one_queue() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert turns_of(loop) is turns_of(loop)

    asyncio.run(main())
