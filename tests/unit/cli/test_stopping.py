"""How a process is asked to go, and that it goes in time whatever hangs."""

from __future__ import annotations

import subprocess
import sys

HEARS = """
import os, signal, threading
from expctl.serve import asked_to_stop
also = threading.Event()
stop = asked_to_stop(also)
assert not stop.is_set()
for _ in range(100_000):
    os.kill(os.getpid(), signal.SIGTERM)  # while this very thread may hold the lock of an event
    also.wait(0)
    if stop.is_set():
        break
assert also.wait(10) and stop.wait(10)
"""

HANGS = """
import threading
from expctl import serve
serve.LEAVE_S = 0.2
stop = threading.Event()
with serve._leaving_in_time(stop):
    stop.set()
    threading.Event().wait({seconds})
print("left by itself")
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


def test_term_sets_every_event_however_often_it_comes() -> None:
    done = run(HEARS)
    assert done.returncode == 0, done.stderr


def test_whatever_hangs_the_process_is_gone_in_time() -> None:
    done = run(HANGS.format(seconds=50))
    assert done.returncode == 1
    assert "could not hand over in time" in done.stdout
    assert "left by itself" not in done.stdout


def test_who_leaves_in_time_is_let_go() -> None:
    done = run(HANGS.format(seconds=0.01))
    assert (done.returncode, done.stdout) == (0, "left by itself\n")
