"""Each stream fault at each place in the stream, over real HTTP: no verdict may be wrong."""

from __future__ import annotations

import asyncio

import pytest

from service.domain.measurement import RequestResult
from service.domain.spec import Bench, Prompt
from tests.streamfaults import CELLS, HANG_S, TEXT, Cell, FaultServer, fault_server
from workers.bench.request import Job, ask, open_connection
from workers.bench.summary import summarise
from workers.bench.target import Target

AT_ONCE = 24


async def _measure(server: FaultServer) -> dict[str, RequestResult]:
    prompt, bench = Prompt(id="p", messages=[{"role": "user", "content": "x"}]), Bench(max_tokens=8)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(cell: Cell) -> tuple[str, RequestResult]:
        target = Target(server.url(cell), "m", timeout_s=HANG_S)
        async with gate:
            timed = await ask(target, Job(0, "p", 0, target.request(prompt, bench)), await open_connection(target))
        return cell.path, timed.result

    return dict(await asyncio.gather(*(one(cell) for cell in CELLS)))


@pytest.fixture(scope="module")
def measured() -> dict[str, RequestResult]:
    with fault_server() as server:
        return asyncio.run(_measure(server))


@pytest.mark.parametrize("cell", CELLS, ids=[cell.path for cell in CELLS])
def test_the_verdict_is_right(measured: dict[str, RequestResult], cell: Cell) -> None:
    result = measured[cell.path]
    assert (result.ok, result.reason) == (cell.reason is None, cell.reason), result.error_message
    summary = summarise([result], 1.0)
    assert summary.valid is result.ok
    if result.ok:
        assert (result.text, result.reasoning_text) == (TEXT, "hm")
        assert result.completion_tokens == cell.tokens
        assert tuple(result.warnings) == (*cell.warnings, *(["came_in_one_piece"] if "came_in_one_piece" in result.warnings else []))
    else:
        assert (result.tps, result.tpot_s) == (None, None)
        assert (summary.tps.mean, summary.ttft_ms.mean, summary.output_tokens) == (None, None, None)


def test_every_place_has_every_fault() -> None:
    assert len({cell.path for cell in CELLS}) == len(CELLS) > 140
