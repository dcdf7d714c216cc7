"""A load as its log shows it, spread over the chosen time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from workers.sim.flags import ServeConfig
from workers.sim.knobs import Knobs
from workers.sim.log import API, CORE, WORKER, EngineLog, graph_bar, shard_bar
from workers.sim.profile import Profile
from workers.sim.state import CONTEXT_MIB, LOADED_MIB, TOTAL_MIB, holdings, used_mib, write_holding

TOTAL_GIB = TOTAL_MIB / 1024
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.19 GiB. GPU 0 has a total capacity of 95.59 GiB of "
    "which 1.04 GiB is free."
)
TAIL = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
ROUTES = (
    "/version, Methods: GET",
    "/health, Methods: GET",
    "/metrics, Methods: GET",
    "/v1/models, Methods: GET",
    "/ping, Methods: GET",
    "/v1/chat/completions, Methods: POST",
    "/v1/completions, Methods: POST",
)


class LoadFailed(Exception):
    """The load ended with an error that is in the log already; exit status 1."""


@dataclass
class Loader:
    """Plays one load."""

    config: ServeConfig
    profile: Profile
    knobs: Knobs
    log: EngineLog
    gpus: list[int]
    began: float = 0.0

    async def run(self) -> None:
        """From the banner to just before the server listens. LoadFailed where a fault says so."""
        self.began = time.monotonic()
        self._banner()
        await self._until(0.05)
        self._engine_starts()
        await self._until(0.12)
        await self._weights()
        await self._compile()
        await self._memory()
        await self._graphs()
        took = time.monotonic() - self.began
        self.log.info(CORE, "core.py:402", f"init engine (profile, create kv cache, warmup model) took {took:.2f} s")
        await self._until(1.0)
        self._routes()

    async def _until(self, share: float) -> None:
        await asyncio.sleep(max(0.0, self.began + share * self.knobs.load_seconds - time.monotonic()))

    async def _forever(self) -> None:
        await asyncio.Event().wait()

    def _hold(self, mib: int) -> None:
        write_holding(self.knobs.state_dir, self.log.pid, self.gpus, mib, "VLLM::Worker_TP0 (simulated)")

    def _banner(self) -> None:
        banner = (
            "",
            "       █     █     █▄   ▄█",
            " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
            f"  █▄█▀ █     █     █     █  model   {self.config.model}",
            "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
            "",
        )
        self.log.info(API, "api_utils.py:347", "\r\n".join(banner))
        self.log.info(API, "api_utils.py:286", f"non-default args: {self.config.given}")
        self.log.info(API, "model.py:733", f"Resolved architecture: {self.profile.architecture}")
        self.log.info(API, "model.py:2152", f"Using max model len {self.config.max_model_len}")
        if self.config.speculative:
            method = str(self.config.speculative.get("method") or "draft_model")
            if method.startswith("ngram"):
                self.log.warning(
                    API, "vllm.py:1605", "Async scheduling not supported with ngram-based speculative decoding and will be disabled."
                )

    def _engine_starts(self) -> None:
        shown = self.config.speculative
        text = "None" if shown is None else f"SpeculativeConfig(method={shown.get('method')!r}, num_spec_tokens={self.config.drafts})"
        self.log.info(
            CORE,
            "core.py:133",
            f"Initializing a V1 LLM engine (v0.32.0) with config: model={self.config.model!r}, speculative_config={text}, "
            f"max_seq_len={self.config.max_model_len}, tensor_parallel_size={len(self.gpus)}, enforce_eager={self.config.eager}",
        )
        self._check_free_memory()
        self._hold(CONTEXT_MIB)
        if shown:
            self.log.warning(WORKER, "__init__.py:211", "min_p and logit_bias parameters won't work with speculative decoding.")
        self.log.info(WORKER, "gpu_model_runner.py:5211", f"Starting to load model {self.config.model}...")

    def _check_free_memory(self) -> None:
        held = holdings(self.knobs.state_dir)
        share = self.config.gpu_memory_utilization
        for gpu in self.gpus:
            free = (TOTAL_MIB - used_mib(held, gpu)) / 1024
            if free < share * TOTAL_GIB:
                self._fail(
                    f"ValueError: Free memory on device cuda:{gpu} ({free:.2f}/{TOTAL_GIB:.2f} GiB) on startup is less than desired GPU "
                    f"memory utilization ({share}, {share * TOTAL_GIB:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory used "
                    "by other processes."
                )

    async def _weights(self) -> None:
        took = await self._shards(f"{OUT_OF_MEMORY} Including non-PyTorch memory, this process has 94.54 GiB memory in use.")
        if self.config.bars:
            total = self.profile.shards
            self.log.raw(shard_bar(total, total, took) + "\n")  # vLLM shows the full bar twice, then an empty line
        self.log.info(WORKER, "default_loader.py:501", f"Loading weights took {took:.2f} seconds")
        loaded = f"Model loading took {self.profile.weights_gib:.2f} GiB memory and {took:.6f} seconds"
        self.log.info(WORKER, "gpu_model_runner.py:5290", loaded)

    async def _shards(self, out_of_memory: str) -> float:
        """Shard after shard into the GPUs; how long it took, in seconds. `out_of_memory` is the cause where a fault says so."""
        total, start = self.profile.shards, time.monotonic()
        hang = self.knobs.fault("hang_at")
        for done in range(total + 1):
            await self._until(0.12 + 0.5 * done / total)
            if self.config.bars:
                self.log.raw(shard_bar(done, total, time.monotonic() - start))
            self._hold(CONTEXT_MIB + int(self.profile.weights_gib * 1024 * done / total))
            if hang and 100 * done >= hang.value * total:
                await self._forever()
            if self.knobs.fault("oom_at_load") and 2 * done >= total:
                self._fail(out_of_memory)
        return time.monotonic() - start

    async def _compile(self) -> None:
        if self.config.eager:
            return
        start = time.monotonic()
        source = "backends.py:1102"
        cache = "~/.cache/vllm/torch_compile_cache/51b0a7c2d9/rank_0_0/backbone"
        self.log.info(WORKER, source, f"Using cache directory: {cache} for vLLM's torch.compile")
        await self._until(0.70)
        self.log.info(WORKER, source, f"Dynamo bytecode transform time: {time.monotonic() - start:.2f} s")
        await self._until(0.78)
        took = time.monotonic() - start
        self.log.info(WORKER, "backends.py:393", f"Compiling a graph for compile range (1, 8192) takes {took:.2f} s")
        self.log.info(WORKER, "monitor.py:53", f"torch.compile took {took:.2f} s in total")

    async def _memory(self) -> None:
        start = time.monotonic()
        await self._until(0.84)
        self.log.info(WORKER, "monitor.py:81", f"Initial profiling/warmup run took {time.monotonic() - start:.2f} s")
        if self.knobs.fault("kv_cache_too_small"):
            length = self.config.max_model_len
            needed = self.profile.kv_cache_gib * length / self.profile.kv_cache_tokens
            available = needed * 0.575
            self.log.info(WORKER, "gpu_worker.py:488", f"Available KV cache memory: {available:.2f} GiB")
            self._fail(
                f"ValueError: To serve at least one request with the model's max seq len ({length}), ({needed:.2f} GiB KV cache is needed, "
                f"which is larger than the available KV cache memory ({available:.2f} GiB). Based on the available memory, the estimated "
                f"maximum model length is {int(length * 0.575) // 16 * 16}. Try increasing `gpu_memory_utilization` or decreasing "
                "`max_model_len` when initializing the engine."
            )
        self.log.info(WORKER, "gpu_worker.py:488", f"Available KV cache memory: {self.profile.kv_cache_gib:.2f} GiB")
        tokens, length = self.profile.kv_cache_tokens, self.config.max_model_len
        size = f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {length:,} tokens per request: {tokens / length:.2f}x"
        self.log.info(CORE, "kv_cache_utils.py:2327", size)
        self._hold(LOADED_MIB)

    async def _graphs(self) -> None:
        if self.config.eager:
            return
        start = time.monotonic()
        for label, total, since, until in (("mixed prefill-decode, PIECEWISE", 51, 0.85, 0.91), ("decode, FULL", 35, 0.91, 0.96)):
            began = time.monotonic()
            for part in range(6):
                await self._until(since + (until - since) * part / 5)
                self.log.raw(graph_bar(label, total * part // 5, total, time.monotonic() - began))
            self.log.raw("\n")
        took = time.monotonic() - start
        self.log.info(WORKER, "gpu_model_runner.py:6512", f"Graph capturing finished in {took:.0f} secs, took 0.44 GiB")

    def _routes(self) -> None:
        self.log.info(API, "entry.py:136", "Supported tasks: ['generate']")
        self.log.info(API, "entry.py:140", f"Starting vLLM server on http://{self.config.host}:{self.config.port}")
        self.log.info(API, "launcher.py:186", "Available routes are:")
        for route in ROUTES:
            self.log.info(API, "launcher.py:195", f"Route: {route}")

    def _fail(self, cause: str) -> None:
        """The root cause as the worker says it, then the wrappers around it."""
        trace = "Traceback (most recent call last):\n"
        wrapped = "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."
        self.log.error(WORKER, "multiproc_executor.py:953", f"WorkerProc failed to start.\n{trace}{cause}")
        self.log.error(CORE, "core.py:1510", f"EngineCore failed to start.\n{trace}{wrapped}")
        self.log.raw(f"Process EngineCore:\n{trace}{wrapped}\n")
        self.log.raw(trace + TAIL)
        raise LoadFailed(cause)
