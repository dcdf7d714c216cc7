"""`serve`: load, listen, answer, and leave at SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

from workers.sim.api import Api
from workers.sim.engine import SimEngine
from workers.sim.flags import TOP_USAGE, ConfigRefused, ServeConfig, parse_serve
from workers.sim.http import MAX_HEAD, HttpServer, Request
from workers.sim.knobs import Knobs
from workers.sim.load import Loader, LoadFailed
from workers.sim.log import API, CORE, EngineLog
from workers.sim.metrics import IntervalStats, Metrics
from workers.sim.profile import Profile, load_profile
from workers.sim.state import LOADED_MIB, drop_holding, visible_gpus, write_holding

STATS_INTERVAL_S = 10.0
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(3600)"

ServerMaker = Callable[[ServeConfig, Profile, Knobs, EngineLog, list[int]], "Server"]


def main(argv: Sequence[str]) -> int:
    """Run the command line; the exit status."""
    if list(argv) in (["--version"], ["-v"]):
        print("0.32.0")
        return 0
    if not argv or argv[0] != "serve":
        sys.stderr.write(f"{TOP_USAGE}vllm: error: argument subparser: this simulation knows `serve` only\n")
        return 2
    return live("vLLM 0.32.0", lambda: parse_serve(argv[1:], os.environ.get("VLLM_API_KEY")), EngineLog(), Server)


def live(imitated: str, parse: Callable[[], ServeConfig], log: EngineLog, server: ServerMaker) -> int:
    """A life from the knobs in the environment to the end; the exit status. `parse` reads the command line."""
    try:
        knobs = Knobs.from_env()
        profile = load_profile(knobs.profile)
    except ValueError as error:
        log.raw(f"error: {error}\n")
        return 2
    log.plain(f"SIMULATION: an imitation of {imitated} by expctl (profile {profile.name}); no model is loaded, every number is made up")
    try:
        config = parse()
        gpus = choose_gpus(config)
        bound = bind(config)
    except ConfigRefused as refused:
        log.raw(f"Traceback (most recent call last):\n{refused.message}")
        return 1
    except OSError:
        log.raw(traceback.format_exc())
        return 1
    with bound:
        return asyncio.run(server(config, profile, knobs, log, gpus).run(bound))


def choose_gpus(config: ServeConfig) -> list[int]:
    """The visible GPUs that it takes; ConfigRefused where they are too few."""
    visible = visible_gpus()
    if config.gpu_count > len(visible):
        text = f"World size ({config.gpu_count}) is larger than the number of available GPUs ({len(visible)}) in this node."
        raise ConfigRefused("ParallelConfig", text, config.gpu_count)
    return visible[: config.gpu_count]


def bind(config: ServeConfig) -> socket.socket:
    """The port is taken at once, but nobody listens before the load is over: until then connections are refused."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((config.host, config.port))
    except OSError:
        bound.close()
        raise
    return bound


class Server:
    """One life of the simulated engine."""

    def __init__(
        self, config: ServeConfig, profile: Profile, knobs: Knobs, log: EngineLog, gpus: list[int], metrics: Metrics | None = None
    ) -> None:
        self.config = config
        self.knobs = knobs
        self.log = log
        self.gpus = gpus
        self.loader = Loader(config, profile, knobs, log, gpus)
        self.metrics = metrics or Metrics(config.served_names[0], config.drafts, config.max_model_len)
        self.engine = SimEngine(profile, self.metrics, knobs.seed, prefix_caching=config.prefix_caching)

    async def run(self, bound: socket.socket) -> int:
        """Load, serve, and stop at SIGTERM or SIGINT; the exit status."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        life = asyncio.create_task(self._live(bound))
        waiting = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({life, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                life.result()
            self.say_goodbye()
            life.cancel()
            with suppress(asyncio.CancelledError):
                await life
        except LoadFailed:
            return 1
        finally:
            waiting.cancel()
            drop_holding(self.knobs.state_dir, self.log.pid)
        self.log.raw("INFO:     Application shutdown complete.\n")
        return 0

    async def _live(self, bound: socket.socket) -> None:
        await self.loader.run()
        if self.knobs.fault("ignore_term"):
            self._leave_a_deaf_process()
        http = HttpServer(self.api().handle, self._log_access)
        server = await asyncio.start_server(http.connection, sock=bound, limit=MAX_HEAD, backlog=512)
        self.say_that_it_serves()
        try:
            await self._log_stats()
        finally:
            server.close()
            await http.close()

    def api(self) -> Api:
        """The routes."""
        return Api(self.config, self.engine, self.knobs, self.log)

    def say_that_it_serves(self) -> None:
        """It listens."""
        self.log.raw(f"INFO:     Started server process [{self.log.pid}]\nINFO:     Waiting for application startup.\n")
        self.log.raw("INFO:     Application startup complete.\n")

    def stats(self, stats: IntervalStats) -> list[tuple[str, str]]:
        """Source and text of what is logged every ten seconds."""
        return stats.lines() if self.config.log_stats else []

    async def _log_stats(self) -> None:
        stats = IntervalStats(self.metrics)
        while True:
            await asyncio.sleep(STATS_INTERVAL_S)
            for source, text in self.stats(stats):
                self.log.info(API, source, text)

    def _log_access(self, client: str, request: Request, status: int) -> None:
        if self.config.access_log:
            phrase = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}.get(status, "")
            self.log.plain(f'INFO:     {client} - "{request.method} {request.path} HTTP/1.1" {status} {phrase}'.rstrip())

    def say_goodbye(self) -> None:
        """Before it leaves."""
        self.log.info(API, "launcher.py:254", "[shutdown] API server: shutdown triggered")
        self.log.info(API, "launcher.py:270", "[shutdown] API server: stopping engine client mode=abort timeout=0s")
        self.log.info(CORE, "core.py:1635", "[shutdown] EngineCore: start mode=abort timeout=0s")
        self.log.info(CORE, "core.py:1666", "[shutdown] EngineCore: request processing complete; starting resource teardown")
        self.log.info(CORE, "core.py:1499", "[shutdown] EngineCore: exiting busy loop")
        self.log.info(API, "launcher.py:279", "[shutdown] API server: engine client stopped")
        self.log.info(API, "launcher.py:304", "[shutdown] API server: shutting down FastAPI HTTP server")
        self.log.raw("INFO:     Shutting down\nINFO:     Waiting for application shutdown.\n")

    def _leave_a_deaf_process(self) -> None:
        """A child in the same process group that ignores SIGTERM and holds the GPUs, for an hour at most."""
        child = subprocess.Popen(  # noqa: S603 - our own interpreter with a constant
            [sys.executable, "-c", DEAF], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        if child.stdout is not None:
            child.stdout.readline()  # from here on it is deaf
        write_holding(self.knobs.state_dir, child.pid, self.gpus, LOADED_MIB - 2000, "VLLM::Worker_TP1 (simulated)")
        self.log.plain(f"SIMULATION: fault ignore_term: process {child.pid} stays behind at SIGTERM")
