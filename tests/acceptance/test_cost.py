"""What a command costs before it does anything: people type these all night."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.acceptance.service import Service

on_one_database = pytest.mark.parametrize("services", ["sqlite"], indirect=True)
"""A client does not know what database its service has."""


def cpu_seconds(*argv: str) -> float:
    """User and system time of one run of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "expctl", *argv], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@on_one_database
@pytest.mark.parametrize(("argv", "limit"), [(["--help"], 0.25), (["queue"], 0.45)])
def test_cpu(service: Service, argv: list[str], limit: float) -> None:
    words = argv if argv == ["--help"] else ["--server", service.url, *argv]
    # The best of five: other processes on the machine can only make it look dearer.
    assert min(cpu_seconds(*words) for _ in range(5)) <= limit


def test_help_imports_no_verb_and_no_heavy_library() -> None:
    code = "import sys; from expctl.main import run; run(['--help']); print([m for m in sys.modules if m.split('.')[0] in "
    code += "{'typer', 'httpx', 'pydantic', 'rich', 'sqlmodel', 'fastapi'} or m.startswith('expctl.commands.')], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@on_one_database
def test_the_queue_loads_neither_the_database_nor_the_workers(service: Service) -> None:
    code = f"import sys; from expctl.main import run; run(['--server', '{service.url}', 'queue']); "
    code += "print([m for m in sys.modules if m.split('.')[0] in {'sqlmodel', 'sqlalchemy', 'fastapi', 'workers'}], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip().splitlines()[-1] == "[]"
