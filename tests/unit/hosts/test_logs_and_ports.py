"""Logs by cursor, and who owns a port."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workers.hosts.base import LogChunk, UnitDefinition
from workers.hosts.local import LocalHost
from workers.hosts.logs import read_chunk
from workers.hosts.process import environment_value

MakeUnit = Callable[..., UnitDefinition]
WaitUntil = Callable[..., None]
UNIT = "expctl-1-test"


def chunk(path: Path, cursor: str | None = None, limit: int = 1000, *, ended: bool = False, start: int = 0) -> LogChunk:
    return read_chunk(path, "inv", start, cursor, limit, ended=lambda: ended)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_whole_lines_and_on_from_the_cursor(log: Path) -> None:
    log.write_bytes(b"one\ntwo\nthr")
    first = chunk(log)
    assert (first.lines, first.cursor, first.at_end) == (("one", "two"), "inv:8", True)
    log.write_bytes(b"one\ntwo\nthree\n")
    second = chunk(log, first.cursor)
    assert second.lines == ("three",)
    assert chunk(log, second.cursor).lines == ()


def test_bounded_pieces_join_to_the_whole(log: Path) -> None:
    wanted = tuple(f"line {number} ä" for number in range(200))
    log.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    got: tuple[str, ...] = ()
    cursor, pieces = None, 0
    while True:
        piece = chunk(log, cursor, limit=64)
        got, cursor, pieces = got + piece.lines, piece.cursor, pieces + 1
        if piece.at_end:
            break
    assert got == wanted
    assert pieces > 20


def test_a_line_longer_than_the_limit_comes_in_pieces_of_whole_characters(log: Path) -> None:
    log.write_text("ä" * 100 + "\nend\n", encoding="utf-8")
    got: list[str] = []
    cursor = None
    for _ in range(100):
        piece = chunk(log, cursor, limit=33)
        got += piece.lines
        cursor = piece.cursor
        if piece.at_end and not piece.lines:
            break
    assert "".join(got) == "ä" * 100 + "end"


def test_a_partial_last_line_waits_for_its_end(log: Path) -> None:
    log.write_bytes(b"done\n\rbar 10%|\rbar 20%|")
    assert chunk(log).lines == ("done",)
    assert chunk(log, ended=True).lines == ("done", "\rbar 10%|\rbar 20%|")


def test_carriage_returns_empty_lines_nul_and_bad_bytes(log: Path) -> None:
    log.write_bytes(b"\rbar\n\na\0b\n\xff\xfe\n")
    assert chunk(log).lines == ("\rbar", "", "a�b", "��")


@pytest.mark.parametrize("cursor", ["other:3", "inv:x", "nonsense", "", ":5", "inv:-4"])
def test_a_cursor_that_is_not_of_this_invocation_reads_from_its_start(log: Path, cursor: str) -> None:
    log.write_bytes(b"old\nnew\n")
    assert chunk(log, cursor, start=4).lines == ("new",)


def test_a_truncated_log_is_read_from_its_start(log: Path) -> None:
    log.write_bytes(b"short\n")
    assert chunk(log, "inv:5000", start=4000).lines == ("short",)


def test_a_log_that_is_not_there(log: Path) -> None:
    assert chunk(log).lines == ()
    assert chunk(log).at_end


def test_each_invocation_begins_its_own_log(host: LocalHost, python: MakeUnit, wait_until: WaitUntil) -> None:
    host.start_unit(python("print('first')"))
    wait_until(lambda: host.read_log(UNIT, None).lines == ("first",))
    cursor = host.read_log(UNIT, None).cursor
    wait_until(lambda: host.unit(UNIT).exit_status == 0)
    host.start_unit(python("import sys; sys.stdout.write('second'); sys.stderr.write(' and last')"))
    wait_until(lambda: host.read_log(UNIT, None).lines == ("second and last",))
    assert host.read_log(UNIT, cursor).lines == ("second and last",)


def test_nobody_owns_a_free_port(host: LocalHost) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert host.port_owner(bound.getsockname()[1]) is None  # bound, but not listening


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_stranger_owns_a_port(host: LocalHost, family: socket.AddressFamily) -> None:
    with socket.socket(family) as listener:
        listener.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        listener.listen()
        owner = host.port_owner(listener.getsockname()[1])
    assert owner is not None
    assert owner.pid is not None
    assert owner.unit is None
    assert sys.executable.rpartition("/")[2][:6] in owner.command


LISTENS = """
import os, signal, socket
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen()
if os.fork() == 0:
    print('port', listener.getsockname()[1], flush=True)
signal.pause()
"""


def test_a_port_of_a_unit_is_known_as_its_own(host: LocalHost, python: MakeUnit, wait_until: WaitUntil) -> None:
    state = host.start_unit(python(LISTENS))
    wait_until(lambda: host.read_log(UNIT, None).lines)
    port = int(host.read_log(UNIT, None).lines[0].split()[1])
    owner = host.port_owner(port)
    assert (owner.unit, owner.shared) == (UNIT, False)
    assert environment_value(owner.pid, "EXPCTL_UNIT") == f"{UNIT}:{state.invocation_id}"
    with socket.socket(socket.AF_INET6) as second:
        second.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        second.bind(("::1", port))
        second.listen()
        both = host.port_owner(port)
    assert both.unit is None
    assert both.shared
    host.stop_unit(UNIT)
    assert host.port_owner(port) is None
