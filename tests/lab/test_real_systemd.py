"""Our reading of command lines against systemd's own: `systemd --test` prints what it made of a unit, without starting anything."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from workers.execline import BadLine, join_words, literal_command, split_commands
from workers.expansion import Unresolved, expand_specifiers, expand_variables, name_specifiers
from workers.hosts.unitfile import read_unit

pytestmark = pytest.mark.lab

NOBODY = 65534
LINES = 1000
HEAD = "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\n"
PIECES = [
    "a", "b", "--x", "=", "{", "}", '"', '"', "'", "'", "\\", "\\\\", "\\n", "\\s", "\\x41", "\\xe9", "\\101", "\\400", "\\u00e9",
    "\\U0001f600", "\\U00110000", "\\ud800", "\\q", '\\"', "\\'", "\\x0", "\\000", " ", " ", "  ", "\t", ";", " ; ", " \\; ", "\\;",
    "%%", "%n", "%i", "$A", "$$", "${A}", "é", "\\\n", "\\\n  ", "\\\n# c\n", "\\\n ; c \\\n", "\\ ", "#", "[x]", ",", ":", "\x7f",
    "\x01", "%", "% ",
]  # fmt: skip
PREFIXES = ["-", "-", "-", "-@", "@-", ":-", "-+", "!!-", "-!", "-:"]

Ask = Callable[[Iterable[str]], list[list[list[bytes]]]]


@pytest.fixture
def ask() -> Ask:
    """What systemd makes of ExecStart= lines, each in a drop-in of its own: the argv of each of its commands."""
    if shutil.which("systemd") is None or shutil.which("setpriv") is None:
        pytest.skip("systemd is not installed here (apt-get install systemd)")
    if os.geteuid() != 0:
        pytest.skip("`systemd --test --user` wants another user than the one who runs the tests, so root must run them")

    def asked(lines: Iterable[str]) -> list[list[list[bytes]]]:
        units = Path("/run") / f"expctl-test-{os.getpid()}"
        try:
            return _ask(units, list(lines))
        finally:
            shutil.rmtree(units, ignore_errors=True)

    return asked


def _ask(units: Path, lines: list[str]) -> list[list[list[bytes]]]:
    home, drop_ins = units / "home", units / "x.service.d"
    drop_ins.mkdir(parents=True)
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    (units / "x.service").write_text(HEAD)
    for number, line in enumerate(lines):
        # A drop-in after each tells where its commands end, whatever becomes of it.
        (drop_ins / f"{number:05}.conf").write_text(f"[Service]\n{line}\n")
        (drop_ins / f"{number:05}m.conf").write_text(f"[Service]\nExecStart=/mark{number}\n")
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "systemd", "--test", "--user", "--unit=x.service"]
    env = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "PATH": os.environ["PATH"], "SYSTEMD_UNIT_PATH": str(units), "LANG": "C.UTF-8"}
    found = subprocess.run(command, env=env, capture_output=True, check=False, timeout=120, cwd="/")
    shown = [unquoted(line) for line in re.findall(rb"Command Line: (.*)\n", found.stdout)]
    answers: list[list[list[bytes]]] = [[]]
    for argv in shown:
        if argv == [b"/mark%d" % (len(answers) - 1)]:
            answers.append([])
        else:
            answers[-1].append(argv)
    assert len(answers) == len(lines) + 1, found.stdout[-500:] + found.stderr[-500:]
    return answers[:-1]


def unquoted(line: bytes) -> list[bytes]:
    """The words of a line as systemd prints it: bare, or in double quotes with C escapes."""
    names = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}

    def plain(match: re.Match[bytes]) -> bytes:
        return bytes([int(match[1], 8)]) if match[1] else names.get(match[2], match[2])

    words = re.findall(rb'"((?:\\.|[^"\\])*)"|(\S+)', line)
    return [bare or re.sub(rb"\\(?:([0-7]{3})|(.))", plain, inside) for inside, bare in words]


def ours(line: str) -> list[list[bytes]] | None:
    """The same by our own reading; None where something in it depends on the host, or systemd refuses a part of it."""
    made = []
    for setting in read_unit([("x", f"[Service]\n{line}\n")]).every("ExecStart"):
        try:
            for command in split_commands(setting.value):
                words = command.texts[1:] if "@" in command.prefixes else command.texts
                made.append([word.encode("utf-8", "surrogateescape") for word in expand_specifiers(words, name_specifiers("x.service"))])
        except (BadLine, Unresolved):
            return None
    return made if all(argv[0] for argv in made) else None  # a program that only a specifier named, and it is empty


@pytest.mark.parametrize("seed", range(3))
def test_random_lines(ask: Ask, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    lines = []
    for number in range(LINES):
        body = "".join(draw.choice(PIECES) for _ in range(draw.randint(0, 14)))
        lines.append(f"ExecStart={draw.choice(PREFIXES)}/p{number}{draw.choice(['', ' ', ' '])}{body} END{number}")
    taken = [(line, argv) for line in lines if "\n[" not in line and (argv := ours(line)) is not None]
    assert len(taken) > LINES / 3
    for (line, argv), theirs in zip(taken, ask(line for line, _ in taken), strict=True):
        assert argv == theirs, line


def test_what_we_write_is_what_systemd_reads(ask: Ask) -> None:
    draw = random.Random(7)  # noqa: S311 - test data
    signs = [*map(chr, range(1, 128)), *"\x80\x85é€\ufeff\ufffe\U0001f600\udcff", *"%%$$\"\"''\\\\;{} "]
    argvs = [[f"/p{number}", *("".join(draw.choices(signs, k=draw.randint(0, 9))) for _ in range(4))] for number in range(LINES)]
    answers = ask(f"ExecStart={join_words(literal_command(argv))}" for argv in argvs)
    for argv, answer in zip(argvs, answers, strict=True):
        [theirs] = answer
        # systemd prints them with `%` filled in and `$` still alive.
        words = [word.decode("utf-8", "surrogateescape") for word in theirs]
        assert list(expand_variables(words, {})) == argv


def test_a_swallowed_directive(ask: Ask) -> None:
    [[argv]] = ask(["ExecStart=/opt/vllm serve m --max-model-len 32768 \\\nRestart=on-failure"])
    assert argv[-1] == b"Restart=on-failure"
