"""Each stream fault at each place in the stream: the verdict of expctl's load client, and of `vllm bench serve` beside it.

`python benchmarks/fault_matrix.py [--vllm PYTHON]`: PYTHON is that of an environment with vLLM; its own request function for the
chat route runs there, the one that `vllm bench serve` calls for each request. Exits 1 if a verdict of ours is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from service.domain.spec import Bench, Prompt
from tests.streamfaults import CELLS, HANG_S, PLACES, Cell, FaultServer, fault_server
from workers.bench.request import Job, ask, open_connection
from workers.bench.target import Target

AT_ONCE = 16
RIGHT, LIES, REFUSES, UNSEEN = "·", "OK!", "no!", " "
"""Right; a broken stream passes for a success; a good one for a failure; there is no such cell."""

THEIR_CLIENT = f"""
import asyncio, json, sys
import aiohttp
from vllm.benchmarks.lib.endpoint_request_func import RequestFuncInput, async_request_openai_chat_completions as ask

async def one(session, gate, path, url):
    asked = RequestFuncInput(prompt="x", api_url=url, prompt_len=1, output_len=8, model="m")
    async with gate:
        try:
            answer = await asyncio.wait_for(ask(asked, session), {HANG_S})
        except asyncio.TimeoutError:
            return path, False
    return path, answer.success

async def main():
    cells = json.load(open(sys.argv[1]))
    gate = asyncio.Semaphore({AT_ONCE})
    async with aiohttp.ClientSession() as session:
        found = await asyncio.gather(*(one(session, gate, path, url) for path, url in cells.items()))
    print(json.dumps(dict(found)))

asyncio.run(main())
"""


async def ours(server: FaultServer) -> dict[str, bool]:
    """Which cells our client calls ok."""
    prompt, bench, gate = Prompt(id="p", messages=[{"role": "user", "content": "x"}]), Bench(max_tokens=8), asyncio.Semaphore(AT_ONCE)

    async def one(cell: Cell) -> tuple[str, bool]:
        target = Target(server.url(cell), "m", timeout_s=HANG_S)
        async with gate:
            timed = await ask(target, Job(0, "p", 0, target.request(prompt, bench)), await open_connection(target))
        # A failure for the wrong reason is a wrong verdict too.
        right = (timed.result.reason or None) == cell.reason
        return cell.path, timed.result.ok if right else cell.reason is not None

    return dict(await asyncio.gather(*(one(cell) for cell in CELLS)))


def theirs(server: FaultServer, python: str) -> dict[str, bool] | str:
    """Which cells vLLM's client calls a success; or why it could not be asked."""
    with tempfile.TemporaryDirectory() as folder:
        cells = Path(folder) / "cells.json"
        cells.write_text(json.dumps({cell.path: f"{server.url(cell)}/chat/completions" for cell in CELLS}))
        command = [python, "-c", THEIR_CLIENT, str(cells)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - a Python that whoever runs this names
    try:
        found: dict[str, bool] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return found


def table(verdicts: dict[str, bool]) -> str:
    """Rows are faults, columns places."""
    cells = {(cell.fault, cell.place): cell for cell in CELLS}
    places = (*PLACES, "whole")
    lines = [" " * 33 + "".join(f"{place:>10}" for place in places)]
    for fault in dict.fromkeys(cell.fault for cell in CELLS):
        signs = [_sign(cells.get((fault, place)), verdicts) for place in places]
        lines.append(f"{fault:<33}" + "".join(f"{sign:>10}" for sign in signs))
    return "\n".join(lines)


def _sign(cell: Cell | None, verdicts: dict[str, bool]) -> str:
    if cell is None:
        return UNSEEN
    if verdicts[cell.path] == (cell.reason is None):
        return RIGHT
    return LIES if verdicts[cell.path] else REFUSES


def wrong(verdicts: dict[str, bool]) -> int:
    """How many verdicts differ from the truth."""
    return sum(verdicts[cell.path] != (cell.reason is None) for cell in CELLS)


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vllm", metavar="PYTHON", help="a Python that has vLLM")
    python = parser.parse_args().vllm
    with fault_server() as server:
        found = asyncio.run(ours(server))
        other = theirs(server, python) if python else "not asked: give --vllm PYTHON"
    print(f"What the server had sent last when the fault came. {RIGHT} right, {LIES} a broken stream counted, {REFUSES} a good one not\n")
    print(f"expctl: {wrong(found)} of {len(CELLS)} verdicts wrong\n\n{table(found)}\n")
    if isinstance(other, str):
        print(f"vllm bench serve: {other}")
    else:
        lies = sum(other[cell.path] for cell in CELLS if cell.reason is not None)
        print(f"vllm bench serve: {wrong(other)} of {len(CELLS)} verdicts wrong; {lies} broken streams count as successes\n")
        print(table(other))
    return 1 if wrong(found) else 0


if __name__ == "__main__":
    sys.exit(main())
