from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.domain.reasons import Reason
from tests.unit.hosts.helper.box import CLAIM, PARKED, UNIT, Box, Inside
from workers.hosts.helper import assemble as assembling
from workers.hosts.helper import refusals
from workers.hosts.helper.assemble import assemble, default_config, sudoers_line
from workers.hosts.helper.refusals import Misuse


def test_is_one_file_of_python_3_8_and_of_its_standard_library() -> None:
    text = assemble()
    assert text.startswith("#!/usr/bin/python3 -I\n")
    tree = ast.parse(text, feature_version=(3, 8))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name).partition(".")[0] for name in imported} <= {*sys.stdlib_module_names}
    # The annotations of newer Pythons are fine as long as nobody evaluates them.
    assert "from __future__ import annotations" in text
    assert not re.search(r"removeprefix|removesuffix|readlink\(\)|zip\(.*strict|noqa|type: ignore|workers\.", text)


def test_is_the_same_every_time() -> None:
    assert assemble() == assemble()


def test_every_module_is_a_part() -> None:
    here = Path(assembling.__file__).parent
    assert {path.stem for path in here.glob("*.py")} == {*assembling.PARTS, "__init__", "assemble"}


def test_two_parts_with_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembling, "PARTS", ("refusals", "refusals"))
    with pytest.raises(ValueError, match="is defined in refusals and in refusals"):
        assemble()


def test_runs_isolated_and_says_its_version(tmp_path: Path) -> None:
    file = tmp_path / "expctl-host"
    file.write_text(assemble())
    ran = subprocess.run([sys.executable, "-I", str(file), "--version"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "expctl-host 1\n", "")


@pytest.mark.parametrize("words", [[], ["nonsense"], ["hello", "hello"], ["--version", "hello"]])
def test_a_call_that_is_none_is_a_usage_mistake(tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "expctl-host"
    file.write_text(assemble())
    ran = subprocess.run([sys.executable, "-I", str(file), *words], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "usage" in ran.stderr


def test_every_reason_is_one_that_the_service_knows() -> None:
    values = {value for name, value in vars(refusals).items() if name.isupper()}
    assert values <= {reason.value for reason in Reason}
    assert len(values) == 12


REQUESTS: list[tuple[str, Any]] = [
    ("status", {"unit": UNIT}),
    ("status", {"unit": "sshd.service"}),
    ("units", {}),
    ("source", {"unit": PARKED}),
    ("write-unit", {"claim": CLAIM, "unit": UNIT, "argv": ["/bin/true", "%$"], "env": {"A": 'b"'}}),
    ("stop", {"claim": CLAIM, "unit": UNIT}),
    ("stop", {"claim": CLAIM, "unit": PARKED}),
    ("disarm", {"claim": CLAIM}),
]


@pytest.mark.parametrize(("verb", "request_"), REQUESTS)
def test_does_what_its_modules_do(box: Box, inside: Inside, verb: str, request_: Any) -> None:
    status, answer = box.ask(verb, request_)
    if answer.pop("ok"):
        told = inside.good(verb, request_)
    else:
        told = inside.bad(verb, request_)
        assert status == 1
    assert answer == {**told, **({"path": str(box.root / f"run/systemd/system/{UNIT}")} if "path" in told else {})}


def test_the_line_for_sudoers_is_exactly_one() -> None:
    assert sudoers_line("expctl") == "expctl ALL=(root) NOPASSWD: /usr/local/sbin/expctl-host"


@pytest.mark.parametrize("user", ["a b", "a\nb ALL=(ALL) ALL", "", "%wheel", "ALL,x", "#0", "1000"])
def test_who_is_no_user_gets_no_line(user: str) -> None:
    with pytest.raises(ValueError, match="not the name of a user"):
        sudoers_line(user)


def test_the_default_config_is_one_that_the_helper_takes(box: Box) -> None:
    box.write("etc/expctl-host.json", default_config([PARKED], run_as=["nobody"]))
    assert box.good("hello")["config"] == {"parked": [PARKED], "fork": [], "run_as": ["nobody"], "allow_root": False}
    with pytest.raises(Misuse):
        default_config(["rm -rf.service"])
