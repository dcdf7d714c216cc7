"""What a load client adds to the times it reports, and what it costs: ours, the floor, and the peers that are installed.

`python benchmarks/load_client.py [--runs 5] [--streams 8 64 256] [--vllm BIN] [--guidellm BIN] [--aiperf BIN] [--tokenizer DIR]`

A server in a process of its own sends the first token 200 ms after a request's arrival and then one every 20 ms, 100 in all, and
writes down when it really did. Error = what the tool reports, minus what the server did, means over three requests a stream. CPU and
wall are of the tool's whole process with its children. The tools take turns, and the table shows medians over the runs. A tokenizer
is needed by the peers only, to make their prompts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOKENS, FIRST_S, STEP_S, A_STREAM = 100, 0.2, 0.02, 3
IDEAL_S = A_STREAM * (FIRST_S + (TOKENS - 1) * STEP_S)
LONGEST_S = 180.0


@dataclass(frozen=True)
class Found:
    """One run of one tool; milliseconds and seconds."""

    ttft_error_ms: float
    tpot_error_ms: float
    cpu_s: float
    wall_s: float


@dataclass(frozen=True)
class Load:
    """What a tool is to do, and a folder for its files."""

    port: int
    streams: int
    folder: Path
    tokenizer: str

    @property
    def url(self) -> str:
        """The server, without /v1."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> int:
        """All of them."""
        return self.streams * A_STREAM


Means = tuple[float, float]
"""TTFT and TPOT as a tool reports them, milliseconds."""


@dataclass(frozen=True)
class Tool:
    """How to start it, and where its means stand."""

    name: str
    command: Callable[[Load], list[str]]
    means: Callable[[Load, str], Means]


def floor() -> Tool:
    """Raw asyncio."""

    def means(_: Load, out: str) -> Means:
        found = json.loads(out)
        return found["ttft_ms"], found["tpot_ms"]

    return Tool("raw asyncio, the floor", lambda load: [sys.executable, str(HERE / "floor_client.py"), *map(str, (load.port, load.streams, load.requests))], means)  # fmt: skip # noqa: E501


def expctl() -> Tool:
    """The shipped command."""

    def command(load: Load) -> list[str]:
        prompts = load.folder / "prompts.jsonl"
        prompts.write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
        words = [sys.executable, "-m", "expctl", "bench", "--base-url", load.url, "--model", "m", "--prompts", str(prompts), "--json", "-q"]
        more = {"--concurrency": load.streams, "--repeat": load.requests, "--warmup": 0, "--engine-metrics": "off", "--max-tokens": TOKENS}
        return [*words, *(str(word) for pair in more.items() for word in pair)]

    def means(_: Load, out: str) -> Means:
        summary = json.loads(out)["phases"][0]["summary"]
        return summary["ttft_ms"]["mean"], summary["tpot_ms"]["mean"]

    return Tool("expctl bench", command, means)


def vllm(program: str) -> Tool:
    """`vllm bench serve`."""

    def command(load: Load) -> list[str]:
        words = [program, "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--base-url", load.url]
        words += ["--model", "m", "--tokenizer", load.tokenizer, "--dataset-name", "random", "--random-input-len", "8", "--ignore-eos"]
        words += ["--random-output-len", str(TOKENS), "--num-prompts", str(load.requests), "--max-concurrency", str(load.streams)]
        return [*words, "--save-result", "--result-dir", str(load.folder), "--result-filename", "vllm.json"]

    def means(load: Load, _: str) -> Means:
        found = json.loads((load.folder / "vllm.json").read_text())
        return found["mean_ttft_ms"], found["mean_tpot_ms"]

    return Tool("vllm bench serve", command, means)


def guidellm(program: str) -> Tool:
    """Its inter-token latency is what others call TPOT."""

    def command(load: Load) -> list[str]:
        words = [program, "run", "--backend", f"kind=openai_http,target={load.url},model=m", "--disable-console"]
        words += ["--profile", f"kind=concurrent,streams={load.streams}", "--constraint", f"kind=max_requests,count={load.requests}"]
        words += ["--data", f"kind=synthetic_text,prompt_tokens=8,output_tokens={TOKENS}"]
        words += ["--tokenizer", f"kind=huggingface_auto,model={load.tokenizer}"]
        return [*words, "--output", f"kind=json,path={load.folder}/guidellm.json"]

    def means(load: Load, _: str) -> Means:
        metrics = json.loads((load.folder / "guidellm.json").read_text())["benchmarks"][0]["metrics"]
        return metrics["time_to_first_token_ms"]["successful"]["mean"], metrics["inter_token_latency_ms"]["successful"]["mean"]

    return Tool("guidellm", command, means)


def aiperf(program: str) -> Tool:
    """As guidellm."""

    def command(load: Load) -> list[str]:
        words = [program, "profile", "-m", "m", "--url", load.url, "--endpoint-type", "chat", "--streaming", "--ui", "none"]
        words += ["--tokenizer", load.tokenizer, "--concurrency", str(load.streams), "--request-count", str(load.requests)]
        return [
            *words,
            "--isl",
            "8",
            "--osl",
            str(TOKENS),
            "--use-server-token-count",
            "--output-artifact-dir",
            str(load.folder / "aiperf"),
        ]

    def means(load: Load, _: str) -> Means:
        found = json.loads((load.folder / "aiperf" / "profile_export_aiperf.json").read_text())
        return found["time_to_first_token"]["avg"], found["inter_token_latency"]["avg"]

    return Tool("aiperf", command, means)


@contextmanager
def truth() -> Iterator[int]:
    """The server's port."""
    words = [sys.executable, str(HERE / "truth_server.py"), str(TOKENS), str(FIRST_S), str(STEP_S)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own server
        try:
            yield int((process.stdout or sys.stdin).readline())
        finally:
            process.terminate()


def sent(port: int) -> list[tuple[float, float, float]]:
    """What the server sent since it was asked last."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/truth", timeout=30) as answer:
        found: list[tuple[float, float, float]] = json.loads(answer.read())
    return found


def run(tool: Tool, load: Load) -> Found | str:
    """One run; or why there is none."""
    sent(load.port)
    words, env = tool.command(load), {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": str(HERE.parent)}
    before, begun = os.times(), time.perf_counter()
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=LONGEST_S, check=False)  # noqa: S603 - named by whoever runs this
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    wall, after = time.perf_counter() - begun, os.times()
    try:
        ttft, tpot = tool.means(load, done.stdout)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{error}: {(done.stderr.strip().splitlines() or [''])[-1]}"
    # Some ask once or twice before they begin; the measured ones are the last.
    streams = sorted(sent(load.port))[-load.requests :]
    first = 1000 * statistics.fmean(begin - arrived for arrived, begin, _ in streams)
    step = 1000 * statistics.fmean((last - begin) / (TOKENS - 1) for _, begin, last in streams)
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Found(ttft - first, tpot - step, cpu, wall)


def compare(tools: list[Tool], streams: int, runs: int, tokenizer: str) -> None:
    """One table."""
    found: dict[str, list[Found]] = {tool.name: [] for tool in tools}
    why: dict[str, str] = {}
    with truth() as port:
        for _ in range(runs):
            for tool in tools:
                with tempfile.TemporaryDirectory() as folder:
                    one = run(tool, Load(port, streams, Path(folder), tokenizer))
                if isinstance(one, str):
                    why[tool.name] = one
                else:
                    found[tool.name].append(one)
    print(f"\n{streams} streams, median of {runs}; ideal wall {IDEAL_S:.2f} s\n")
    print(f"{'':<24}{'TTFT error ms':>15}{'TPOT error ms':>15}{'cpu s':>8}{'wall s':>8}   TTFT error / ours   cpu / ours")
    ours = _median(found["expctl bench"])
    for name, results in found.items():
        median = _median(results)
        if median is None or ours is None:
            print(f"{name:<24}   {why.get(name, 'no result')[:100]}")
            continue
        ratios = f"{median.ttft_error_ms / ours.ttft_error_ms:>17.1f}   {median.cpu_s / ours.cpu_s:>10.1f}"
        figures = f"{median.ttft_error_ms:>+15.2f}{median.tpot_error_ms:>+15.3f}{median.cpu_s:>8.2f}{median.wall_s:>8.2f}"
        print(f"{name:<24}{figures}   {ratios}")


def _median(results: list[Found]) -> Found | None:
    names = ("ttft_error_ms", "tpot_error_ms", "cpu_s", "wall_s")
    return Found(*(statistics.median(getattr(one, name) for one in results) for name in names)) if results else None


def main() -> int:
    """Print a table for each number of streams."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--tokenizer", default="gpt2", help="a Hugging Face name; a folder does not do for aiperf")
    makers = {"vllm": vllm, "guidellm": guidellm, "aiperf": aiperf}
    for name in makers:
        parser.add_argument(f"--{name}", metavar="BIN")
    asked = parser.parse_args()
    tools = [floor(), expctl(), *(make(program) for name, make in makers.items() if (program := getattr(asked, name)))]
    for streams in asked.streams:
        compare(tools, streams, asked.runs, asked.tokenizer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
