"""How fast `expctl diagnose` reads a long journal, and in how much memory.

usage: python benchmarks/diagnose_speed.py [--gib 1.0]

Writes logs of several makes into a temporary folder, reads each as the verb does, and prints MB/s of processor time and the peak of
the process's memory: whole loads one after the other, traffic of a busy server, JSON of journalctl, and lines without any sense.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from workers.diagnosis.diagnose import diagnose_journal
from workers.diagnosis.stream import read_stream

DATA = Path(__file__).parents[1] / "tests" / "data" / "vllm-0.32"


def whole_loads(_: random.Random) -> bytes:
    """A recorded load with traffic and an end."""
    return (DATA / "good_ngram_with_traffic.log").read_bytes()


def traffic(rng: random.Random) -> bytes:
    """A load, then requests and the reports of every ten seconds."""
    lines = []
    for second in range(600):
        peers = [f"10.0.0.{rng.randrange(255)}:{rng.randrange(65536)}" for _ in range(8)]
        lines += [f'INFO:     {peer} - "POST /v1/chat/completions HTTP/1.1" 200 OK' for peer in peers]
        if second % 10 == 0:
            stamp = f"11-30 03:{second // 60:02}:{second % 60:02}"
            speed = f"Avg generation throughput: {rng.uniform(50, 900):.1f} tokens/s, Running: {rng.randrange(1, 9)} reqs, Waiting: 0 reqs"
            lines.append(f"(APIServer pid=19605) INFO {stamp} [loggers.py:335] Engine 000: Avg prompt throughput: 22.8 tokens/s, {speed}")
            metrics = "SpecDecoding metrics: Mean acceptance length: 2.80, Accepted: 27 tokens, Drafted: 75 tokens"
            lines.append(f"(APIServer pid=19605) INFO {stamp} [metrics.py:96] {metrics}")
    return ("\n".join(lines) + "\n").encode()


def as_json(rng: random.Random) -> bytes:
    """The same as traffic, as journalctl -o json prints it."""
    lines = traffic(rng).decode().splitlines()
    entries = (
        {"__CURSOR": "s=0;i=1", "__REALTIME_TIMESTAMP": str(1761125600000000 + index), "_PID": "2001", "_SYSTEMD_UNIT": "vllm.service",
         "SYSLOG_IDENTIFIER": "vllm", "_TRANSPORT": "stdout", "_BOOT_ID": "0" * 32, "_HOSTNAME": "host", "MESSAGE": line}
        for index, line in enumerate(lines)
    )  # fmt: skip
    return "".join(json.dumps(entry) + "\n" for entry in entries).encode()


def debug(rng: random.Random) -> bytes:
    """Lines that no rule knows, of a talkative library."""
    words = ["tensor", "shape", "rank", "block", "request", "queue", "step", "scheduled", "token", "cache", "hash", "free", "swap"]
    lines = (f"DEBUG 11-30 03:36:34 [scheduler.py:{rng.randrange(999)}] {' '.join(rng.choices(words, k=14))}" for _ in range(5000))
    return ("\n".join(lines) + "\n").encode()


MAKES: dict[str, Callable[[random.Random], bytes]] = {
    "whole loads": whole_loads,
    "traffic": traffic,
    "journalctl -o json": as_json,
    "debug": debug,
}


def main() -> None:
    """Measure each make and print one line for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=0.1, help="size of each log")
    size = int(parser.parse_args().gib * 2**30)
    rng = random.Random(7)
    print(f"{'log':<20} {'MB':>7} {'s (CPU)':>8} {'MB/s':>7} {'peak MiB':>9}")
    for name, make in MAKES.items():
        piece = make(rng)
        with tempfile.TemporaryFile() as stream:
            for _ in range(size // len(piece) + 1):
                stream.write(piece)
            total = stream.tell()
            stream.seek(0)
            begin = time.process_time()
            diagnose_journal(read_stream(stream))
            spent = time.process_time() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{name:<20} {total / 1e6:>7.0f} {spent:>8.2f} {total / 1e6 / spent:>7.1f} {peak:>9.0f}")


if __name__ == "__main__":
    main()
