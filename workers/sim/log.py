"""Log lines as vLLM 0.32 prints them: records to stdout with the process's prefix, bars and tracebacks to stderr without one."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TextIO

API = "APIServer"
CORE = "EngineCore"
WORKER = "Worker_TP0"


class EngineLog:
    """Writes lines. One process plays all parts, so every prefix carries its own pid: no line names a stranger's process."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def info(self, part: str, source: str, message: str) -> None:
        """An INFO record."""
        self._record(part, "INFO", source, message)

    def warning(self, part: str, source: str, message: str) -> None:
        """A WARNING record."""
        self._record(part, "WARNING", source, message)

    def error(self, part: str, source: str, message: str) -> None:
        """An ERROR record."""
        self._record(part, "ERROR", source, message)

    def plain(self, text: str) -> None:
        """A line of stdout without prefix, such as uvicorn's access log."""
        _write(sys.stdout, text + "\n")

    def raw(self, text: str) -> None:
        """Text for stderr just as it is: bars, tracebacks."""
        _write(sys.stderr, text)

    def _record(self, part: str, level: str, source: str, message: str) -> None:
        stamp = time.strftime("%m-%d %H:%M:%S")
        for line in message.split("\n"):  # every line of a record has the prefix
            self.plain(f"({part} pid={self.pid}) {level} {stamp} [{source}] {line}")


def _write(stream: TextIO, text: str) -> None:
    with suppress(BrokenPipeError, ValueError):
        stream.write(text)
        stream.flush()


def clock(seconds: float) -> str:
    """Minutes and seconds as tqdm writes them."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def shard_bar(done: int, total: int, elapsed: float) -> str:
    """One state of the weights bar: it begins with a carriage return and ends with a newline."""
    percent = 100 * done // total
    if done:
        pace = elapsed / done
        rate = f"{pace:.2f}s/it" if pace >= 1 else f"{1 / max(pace, 1e-6):.2f}it/s"
        left = clock(pace * (total - done))
    else:
        rate, left = "?it/s", "?"
    return f"\rLoading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{total} [{clock(elapsed)}<{left}, {rate}]\n"


def graph_bar(label: str, done: int, total: int, elapsed: float) -> str:
    """One state of the CUDA graph bar: carriage returns only, so that a journal shows the whole capture as one line at its end."""
    percent = 100 * done // total
    blocks = "█" * (10 * done // total)
    rate = f"{done / elapsed:.2f}it/s" if done and elapsed > 0 else "?it/s"
    left = clock(elapsed / done * (total - done)) if done else "?"
    return f"\rCapturing CUDA graphs ({label}): {percent:3d}%|{blocks:<10}| {done}/{total} [{clock(elapsed)}<{left}, {rate}]"
