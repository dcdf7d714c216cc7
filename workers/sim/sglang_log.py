"""Log lines as SGLang prints them, and a load in them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from workers.sim.load import OUT_OF_MEMORY, TOTAL_GIB, Loader, LoadFailed
from workers.sim.log import EngineLog
from workers.sim.state import CONTEXT_MIB, LOADED_MIB, holdings, used_mib

VERSION = "0.5.6"


class SglangLog(EngineLog):
    """Every record begins with the time, and with the rank where a scheduler speaks."""

    def say(self, message: str, rank: str = "") -> None:
        """A record."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        self.plain(f"[{stamp}{f' {rank}' if rank else ''}] {message}")

    def _record(self, part: str, level: str, source: str, message: str) -> None:
        del part, level, source  # its records show none of them
        self.say(message)


@dataclass
class SglangLoader(Loader):
    """Plays one load of SGLang."""

    async def run(self) -> None:
        """From the arguments to just before the server listens. LoadFailed where a fault says so."""
        self.began = time.monotonic()
        config, log = self.config, self._say
        args = ", ".join(f"{name}={value!r}" for name, value in {**config.given, "api_key": "***" if config.api_keys else None}.items())
        log(f"server_args=ServerArgs({args})")
        log(f"SGLang version: {VERSION}")
        await self._until(0.05)
        log("Init torch distributed begin.", "TP0")
        self._check_free_memory()
        self._hold(CONTEXT_MIB)
        log("Init torch distributed ends. mem usage=0.60 GB", "TP0")
        await self._until(0.12)
        await self._weights()
        await self._memory()
        await self._graphs()
        length, tokens = config.max_model_len, self.profile.kv_cache_tokens
        log(f"max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_running_requests=2048, context_len={length}", "TP0")
        await self._until(1.0)

    def _say(self, message: str, rank: str = "") -> None:
        if not isinstance(self.log, SglangLog):
            raise TypeError("SGLang's load needs SGLang's log")
        self.log.say(message, rank)

    def _check_free_memory(self) -> None:
        held = holdings(self.knobs.state_dir)
        if any(used_mib(held, gpu) > CONTEXT_MIB for gpu in self.gpus):
            self._fail(
                "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
                f"pre_model_load_memory={TOTAL_GIB:.2f}, local_gpu_memory={TOTAL_GIB / 4:.2f}"
            )

    async def _weights(self) -> None:
        self._say(f"Load weight begin. avail mem={TOTAL_GIB:.2f} GB", "TP0")
        took = await self._shards(OUT_OF_MEMORY)
        weights = self.profile.weights_gib
        self._say(
            f"Load weight end. elapsed={took:.2f} s, type={self.profile.architecture}, dtype=torch.bfloat16, "
            f"avail mem={TOTAL_GIB - weights:.2f} GB, mem usage={weights:.2f} GB.",
            "TP0",
        )

    async def _memory(self) -> None:
        await self._until(0.70)
        if self.knobs.fault("kv_cache_too_small"):
            self._fail("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")
        size = self.profile.kv_cache_gib / 2
        self._say(f"KV Cache is allocated. #tokens: {self.profile.kv_cache_tokens}, K size: {size:.2f} GB, V size: {size:.2f} GB", "TP0")
        self._say("Memory pool end. avail mem=8.93 GB", "TP0")
        self._hold(LOADED_MIB)

    async def _graphs(self) -> None:
        if self.config.eager:
            return
        start = time.monotonic()
        self._say("Capture cuda graph begin. This can take up to several minutes. avail mem=8.93 GB", "TP0")
        for part in range(1, 6):
            await self._until(0.75 + 0.2 * part / 5)
            self.log.raw(
                f"\rCapturing batches (bs={160 - 32 * part} avail_mem=8.21 GB): {20 * part:3d}%|{'█' * (2 * part):<10}| {part}/5 ["
            )
            self.log.raw(f"00:0{part}<00:0{5 - part},  1.00it/s]")
        self.log.raw("\n")
        self._say(f"Capture cuda graph end. Time elapsed: {time.monotonic() - start:.2f} s. mem usage=0.72 GB. avail mem=8.21 GB.", "TP0")

    def _fail(self, cause: str) -> None:
        self._say(f"Scheduler hit an exception: Traceback (most recent call last):\n{cause}\n", "TP0")
        self._say("Received sigquit from a child process. It usually means the child failed.")
        raise LoadFailed(cause)
