"""`python -m workers.sim.sglang_serve --model-path MODEL [flags]`: the simulated engine, speaking as SGLang."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from workers.sim.api import Api
from workers.sim.flags import ServeConfig
from workers.sim.http import Responder
from workers.sim.knobs import Knobs
from workers.sim.log import API, EngineLog
from workers.sim.metrics import IntervalStats, Metrics
from workers.sim.profile import Profile
from workers.sim.serve import Server, live
from workers.sim.sglang_flags import parse
from workers.sim.sglang_log import VERSION, SglangLoader, SglangLog


def main(argv: Sequence[str]) -> int:
    """Run the command line; the exit status."""
    words = list(argv[1:] if argv[:1] == ["serve"] else argv)
    return live(f"SGLang {VERSION}", lambda: parse(words), SglangLog(), SglangServer)


@dataclass
class SglangMetrics(Metrics):
    """Counters of SGLang, and its gauges of speculation, which are ready-made."""

    def _lines(self) -> Iterator[str]:
        labels = f'engine_type="unified",model_name="{self.model_name}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        count = self.counters
        yield f"process_start_time_seconds {self.started_at:.2f}"
        series: list[tuple[str, str, float]] = [
            ("sglang:prompt_tokens_total", "counter", count.prompt_tokens),
            ("sglang:generation_tokens_total", "counter", count.generation_tokens),
            ("sglang:num_requests_total", "counter", sum(count.finished.values())),
            ("sglang:num_running_reqs", "gauge", self.running),
            ("sglang:num_queue_reqs", "gauge", 0),
            ("sglang:token_usage", "gauge", self.kv_usage),
        ]
        # Registered whether it speculates or not; then they stay at 0.
        series += [("sglang:spec_accept_length", "gauge", self.accept_length), ("sglang:spec_accept_rate", "gauge", self.accept_rate)]
        for name, kind, value in series:
            yield f"# TYPE {name.removesuffix('_total')} {kind}"
            yield f"{name}{{{labels}}} {float(value)}"

    @property
    def accept_length(self) -> float:
        """Tokens of a verifying step, the target's own included; 0 before there was one."""
        return 1 + self.counters.accepted_tokens / self.counters.drafts if self.counters.drafts else 0.0

    @property
    def accept_rate(self) -> float:
        """Accepted of the drafted tokens."""
        return self.counters.accepted_tokens / self.counters.draft_tokens if self.counters.draft_tokens else 0.0


class SglangApi(Api):
    """SGLang's routes beside OpenAI's."""

    routes = (*Api.routes, "/health_generate", "/server_info", "/get_server_info", "/get_model_info")

    async def answer_get(self, path: str, responder: Responder) -> None:
        """What a route tells."""
        if path in {"/server_info", "/get_server_info"}:
            await responder.send_json(200, self._server_info())
        elif path == "/get_model_info":
            await responder.send_json(200, {"model_path": self.config.model, "is_generation": True})
        elif path == "/version":
            await responder.send_json(404, {"detail": "Not Found"})
        else:
            await super().answer_get(path, responder)

    def _server_info(self) -> dict[str, Any]:
        shown = {name: value for name, value in self.config.given.items() if name != "api_key"}
        state: dict[str, Any] = {"last_gen_throughput": 0.0}
        metrics = self.engine.metrics
        if isinstance(metrics, SglangMetrics) and metrics.draft_length:
            state["avg_spec_accept_length"] = metrics.accept_length
        return {**shown, "internal_states": [state], "version": VERSION, "simulated": True}


class SglangServer(Server):
    """One life of the simulated engine as SGLang."""

    def __init__(self, config: ServeConfig, profile: Profile, knobs: Knobs, log: EngineLog, gpus: list[int]) -> None:
        metrics = SglangMetrics(config.served_names[0], config.drafts, config.max_model_len)
        super().__init__(config, profile, knobs, log, gpus, metrics)
        self.loader = SglangLoader(config, profile, knobs, log, gpus)

    def api(self) -> Api:
        """The routes."""
        return SglangApi(self.config, self.engine, self.knobs, self.log)

    def say_that_it_serves(self) -> None:
        """It listens, and says so before its warm-up is over."""
        super().say_that_it_serves()
        self.log.raw(f"INFO:     Uvicorn running on http://{self.config.host}:{self.config.port} (Press CTRL+C to quit)\n")
        self.log.info(API, "http_server.py", "The server is fired up and ready to roll!")

    def stats(self, stats: IntervalStats) -> list[tuple[str, str]]:
        """One line for a batch of decoding, where anything was generated."""
        count, then = self.metrics.counters, stats.before
        generated, seconds = count.generation_tokens - then.generation_tokens, max(time.monotonic() - stats.since, 1e-6)
        stats.before, stats.since = count.copy(), time.monotonic()
        if not generated:
            return []
        metrics = self.metrics
        accepted = (
            f"accept len: {metrics.accept_length:.2f}, accept rate: {metrics.accept_rate:.2f}, "
            if isinstance(metrics, SglangMetrics) and metrics.draft_length
            else ""
        )
        batch = f"Decode batch, #running-req: {metrics.running}, #token: {generated}, token usage: {metrics.kv_usage:.2f}, {accepted}"
        return [("", f"{batch}cuda graph: True, gen throughput (token/s): {generated / seconds:.2f}, #queue-req: 0")]

    def say_goodbye(self) -> None:
        """Before it leaves."""
        self.log.info(API, "http_server.py", "SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.log.info(API, "http_server.py", "Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
        self.log.raw("INFO:     Shutting down\nINFO:     Waiting for application shutdown.\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
