"""llama-server's log of a load. It listens from the start, and prints a dot for each hundredth of the weights."""

from __future__ import annotations

import re
from dataclasses import replace

from service.domain.reasons import Reason
from workers.engines.base import LoadPhase
from workers.engines.common_causes import COMMON_CAUSES
from workers.engines.load_log import DialectLog
from workers.engines.log_line import Line
from workers.engines.rules import Dialect, FactRule, PhaseRule, Rank, Reading, causes, decimal, phases, whole

_STAMP = r"\d{1,4}\.\d\d\.\d{3}\.\d{3} "
_PREFIX = re.compile(rf"^{_STAMP}(?P<level>[DIWE]) ")
"""Of newer builds: minutes, seconds, milliseconds and microseconds since the start, and a level. Who speaks comes after it."""
_LEVELS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR"}
_SIGNATURE = re.compile(
    r"llama_model_loader:|load_tensors:|llama_(?:context|kv_cache\w*|init\w*|new_context\w*|model_load\w*|params_fit\w*)\b"
    r"|llama_server|llama-server|ggml_(?:cuda|vulkan|metal|backend)\w*:"
    rf"|^(?:{_STAMP}[DIWE] )?(?:srv|slot|cmn|que) +[\w()]+:"
    r"|^(?:main|build|start|init): .{0,80}(?:llama|server is listening|loading model|binding port|HTTP server)"
    r"|^error: (?:invalid|unknown) argument|^error while handling argument|gguf_init|\bGGUF\b|common_(?:init|params|chat)\w*:"
)

_PHASES: tuple[PhaseRule, ...] = (
    *phases(
        LoadPhase.ENGINE_INIT,
        r"^build: \d+ \(",
        r"^main: (?:binding port|starting|HTTP server is listening)",
        r"^srv +llama_server: initializing",
        r"^ggml_cuda_init: found",
    ),
    *phases(
        LoadPhase.WEIGHTS_LOADING,
        r"load_tensors: ",
        r"llama_model_loader: ",
        r"^(?:main|srv +load_model): loading model",
        r"^print_info: ",
    ),
    *phases(
        LoadPhase.KV_CACHE_INIT,
        r"^srv +load_model: initializing, n_slots",
        r"llama_kv_cache\w{0,20}: ",
        r"llama_context: ",
        r"llama_new_context_with_model: ",
    ),
    *phases(LoadPhase.WARMUP, r"warming up the model"),
    *phases(LoadPhase.API_STARTUP, r"^main: model loaded", r"init: initializing slots", r"model loaded$"),
)

_FACTS: tuple[FactRule, ...] = (
    FactRule(
        re.compile(r"(?:CUDA|ROCm|Vulkan|Metal)\d? model buffer size = {1,12}([\d.]{1,12}) MiB"), ("weights_mib",), decimal, adds=True
    ),
    FactRule(re.compile(r"llama_(?:context|new_context_with_model): n_ctx {1,20}= {1,4}(\d{1,12})"), ("kv_cache_tokens",), whole),
    FactRule(re.compile(r"n_ctx_(?:per_seq|seq) {1,20}[=(] ?(\d{1,12})"), ("max_model_len",), whole),
    FactRule(re.compile(r"print_info: arch {1,20}= {1,4}(\w{1,60})"), ("architecture",), str),
    FactRule(re.compile(r"offloaded (\d{1,5})/(\d{1,5}) layers to GPU"), ("gpu_layers", "layers"), whole),
    FactRule(re.compile(r"listening(?: on http://[^:\s]{1,80}:|, hostname: \S{1,80}, port: )(\d{1,5})"), ("port",), whole),
    FactRule(re.compile(r"couldn't bind HTTP server socket,.{0,200}?port: (\d{1,5})"), ("port",), whole),
)

_CAUSES = (
    *causes(
        Reason.PORT_IN_USE,
        Rank.ROOT,
        r"couldn't bind (?:to )?(?:HTTP )?server socket",
    ),
    *causes(
        Reason.BAD_ARGUMENTS,
        Rank.ROOT,
        r"^error: (?:invalid argument|unknown argument|while handling argument)",
        r"error while handling argument \"",
        r"^error: the following arguments? ",
        r"draft model .{0,400}is not compatible with the target model",
    ),
    *causes(
        Reason.MODEL_NOT_FOUND,
        Rank.ROOT,
        r"failed to open GGUF file '[^']{1,300}'(?: \(No such file or directory\))?$",
        r"failed to open .{1,300}: No such file or directory",
        r"^(?:common_|llama_)\w{0,60}: .{0,80}HTTP 404",
    ),
    *causes(
        Reason.PERMISSION_DENIED,
        Rank.ROOT,
        r"failed to open (?:GGUF file )?'?[^']{1,300}'?:? \(?Permission denied",
    ),
    *causes(
        Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS,
        Rank.ROOT,
        r"model is corrupted or incomplete",
        r"invalid magic (?:characters?|number)",
        r"failed to read (?:magic|tensor|header|key-value|kv)",
        r"tensor '[^']{1,120}' (?:not found|has wrong shape)",
        r"missing tensor '",
        r"GGUF.{0,60}(?:version .{0,40}(?:not supported|unsupported)|bad )",
    ),
    *causes(Reason.UNSUPPORTED_ARCHITECTURE, Rank.ROOT, r"unknown model architecture: '", r"unknown (?:pre-)?tokenizer"),
    *causes(
        Reason.CUDA_OUT_OF_MEMORY,
        Rank.CONSEQUENCE,
        r"unable to allocate (?:CUDA|ROCm|Vulkan|Metal)\w* buffer",
        r"failed to allocate (?:CUDA|ROCm|Vulkan|Metal)\w* buffer",
        r"failed to allocate (?:compute |buffer for )",
    ),
    *causes(Reason.HOST_OUT_OF_MEMORY, Rank.CONSEQUENCE, r"(?:unable|failed) to allocate CPU\w* buffer"),
    *COMMON_CAUSES,
    *causes(
        Reason.ENGINE_DEAD,
        Rank.WRAPPER,
        r"failed to load model",
        r"exiting due to (?:model loading|HTTP server) error",
        r"error loading model",
        r"failed to (?:initialize|create) (?:the )?context",
        r"GGML_ASSERT\(",
    ),
)

LLAMACPP = Dialect(
    name="llama.cpp",
    signature=_SIGNATURE,
    version=re.compile(r"^build: (\d{1,7}) \("),
    serving=re.compile(
        r"server is listening on http|llama_server: listening on http|all slots are idle|starting the main loop"
        r"|^srv +log_server_r: (?:done )?request: POST /\S{0,80}completions \S{1,80} 200|^slot +print_timing: "
    ),
    stopping=re.compile(r"operator\(\): cleaning up before exit|Received second interrupt|^srv +operator\(\): "),
    phases=_PHASES,
    facts=_FACTS,
    causes=_CAUSES,
)
_DOTS = re.compile(r"^\.{1,120}$")
_ALL_DOTS = 100


class LlamacppLoadLog(DialectLog):
    """Reads a load of llama-server line by line and keeps only what it concluded."""

    def __init__(self) -> None:
        super().__init__(LLAMACPP)

    def take(self, line: Line) -> Reading:
        """Take in one message; a row of dots is a part of the weights."""
        if prefix := _PREFIX.match(line.message):
            line = replace(line, message=line.message[prefix.end() :], level=_LEVELS[prefix["level"]])
        reading = super().take(line)
        if _DOTS.match(line.message) and self._now.phase == LoadPhase.WEIGHTS_LOADING:
            done = min(len(line.message), _ALL_DOTS)
            self._now.done, self._now.total, self._now.percent = done, _ALL_DOTS, float(done)
        return reading
