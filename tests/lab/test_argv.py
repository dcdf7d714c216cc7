"""Any argv survives: through the helper, a unit's file, systemd and exec, into /proc, byte for byte."""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Iterator, Sequence

import pytest

from tests.lab.fleet import PRODUCTION
from tests.lab.host import LabHost
from workers.execline import literal
from workers.hosts.base import Fork, HostError, ProductionHost, UnitDefinition, UnitPhase
from workers.hosts.helper.compose import CONTROL

pytestmark = pytest.mark.lab

SLEEPER = ("/usr/bin/python3", "-I", "-S", "-c", "import signal; signal.pause()")
BATCHES, WORDS = 5, 60
SIGNS = [
    *map(chr, range(1, 128)), *"%%%$$$\"\"\"'''\\\\\\;;  {}[]=-@:#",
    *"\x80\x85\xa0äß€語\u2028\ufeff\ufffd\U0001f600\U0010fffd",
]  # fmt: skip
PIECES = ["%n", "%%", "%h", "%", "$HOME", "${HOME}", "$$", "$", "\\n", "\\x41", "\\", "\\\n", "--x=", ";", "\\;", '"', "'", "\r\n", "\t"]
KNOWN = [
    json.dumps({"method": "ngram", "num_speculative_tokens": 5, "text": 'ä "b" \\ c'}), '{"a": "$HOME %n"}', "100%", "%%", "$", "$$",
    "${MODEL}", "", " ", "\n", "\\", "'", '"', ";", "a;b", "{", "-", "@x", "#x", "a\\\nb", "ü", "\x7f", "\x1b[0m", "x" * 5000,
]  # fmt: skip


def batches() -> Iterator[list[str]]:
    """Hundreds of words, always the same."""
    draw = random.Random(11)  # noqa: S311 - test data
    yield KNOWN
    for _ in range(BATCHES):
        signs = ["".join(draw.choices(SIGNS, k=draw.randint(0, 12))) for _ in range(WORDS // 2)]
        yield signs + ["".join(draw.choices(PIECES, k=draw.randint(1, 5))) for _ in range(WORDS // 2)]


def running(host: LabHost, pid: int | None) -> list[bytes]:
    """The arguments of a process as the kernel has them."""
    return base64.b64decode(host.run("base64", f"/proc/{pid}/cmdline").stdout).split(b"\0")[:-1]


def variables(host: LabHost, pid: int | None) -> dict[str, str]:
    """Its environment at the start."""
    text = base64.b64decode(host.run("base64", f"/proc/{pid}/environ").stdout).decode()
    return {name: value for name, _, value in (entry.partition("=") for entry in text.split("\0"))}


def as_bytes(argv: Sequence[str]) -> list[bytes]:
    return [word.encode() for word in argv]


@pytest.mark.parametrize("forked", [False, True], ids=["rendered", "forked"])
def test_any_argv_survives(helped_host: LabHost, units: ProductionHost, *, forked: bool) -> None:
    numbers = itertools.count(1)
    for words in batches():
        argv = (*SLEEPER, *words)
        fork = Fork(PRODUCTION, tuple(map(literal, argv))) if forked else None
        name = f"expctl-{next(numbers)}-argv"
        env = {f"WORD_{index}": word for index, word in enumerate(words) if not CONTROL.search(word.replace("\t", "").replace("\n", ""))}
        user = None if forked else "vllm"
        state = units.start_unit(UnitDefinition(name, argv, fork=fork, env=env, user=user, conflicts=(PRODUCTION,)))
        assert state.phase == UnitPhase.ACTIVE
        assert running(helped_host, state.main_pid) == as_bytes(argv)
        assert env.items() <= variables(helped_host, state.main_pid).items()
        units.stop_unit(name, grace_s=1)


def test_what_no_unit_can_carry_is_refused(units: ProductionHost) -> None:
    for word in ("a\0b", "\udcff", "\ud800", "\ufffe"):  # a NUL, a byte that is no UTF-8, half a character, a noncharacter
        with pytest.raises(HostError, match=r"NUL|Unicode|noncharacter"):
            units.start_unit(UnitDefinition("expctl-1-odd", (*SLEEPER, word), user="vllm"))
    assert units.unit("expctl-1-odd").phase == UnitPhase.NOT_FOUND
