"""`expctl up` on this machine, for tests whose engines are real and run beside it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from expctl.client import Client

LAB = Path(os.environ.get("EXPCTL_LAB_DIR", "/var/tmp/expctl-lab"))  # noqa: S108 - the lab's place, kept between runs


def free_port() -> int:
    """One that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def expctl(*argv: str, server: str) -> subprocess.CompletedProcess[str]:
    """One call of the command."""
    return subprocess.run(
        [sys.executable, "-m", "expctl", "--server", server, *argv], capture_output=True, text=True, check=False, timeout=900
    )


@contextmanager
def serving(data: Path) -> Iterator[tuple[str, int]]:
    """`expctl up` as a user starts it; gives its address and the port of its engines."""
    port, engine_port = free_port(), free_port()
    argv = [sys.executable, "-m", "expctl", "up", "--port", str(port), "--data", str(data), "--experiment-port", str(engine_port)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        assert "expctl is up" in up.stderr.readline()
        drain = threading.Thread(target=up.stderr.read, daemon=True)
        drain.start()
        yield f"http://127.0.0.1:{port}", engine_port
        up.terminate()
        assert up.wait(30) == 0
        drain.join()


def run_all(server: str, folder: Path, texts: dict[str, str], timeout: str) -> list[int]:
    """Submit experiment files together and wait for their success; their ids."""
    ids = []
    for name, text in texts.items():
        (folder / name).write_text(text)
        made = expctl("submit", str(folder / name), server=server)
        assert made.returncode == 0, made.stderr
        ids.append(int(made.stdout))
    waited = expctl("wait", *map(str, ids), "--timeout", timeout, server=server)
    shown = "".join(expctl("show", str(one), server=server).stdout for one in ids)
    assert waited.returncode == 0, f"{waited.stderr}\n{shown}\n{expctl('logs', str(ids[0]), server=server).stdout[-3000:]}"
    return ids


def results(server: str, one: int) -> dict[str, Any]:
    """What an experiment measured, as JSON."""
    with Client(server) as client:
        return client.results(one)
