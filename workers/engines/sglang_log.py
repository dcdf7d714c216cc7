"""SGLang's log of a load."""

from __future__ import annotations

import re

from service.domain.reasons import Reason
from workers.engines.base import LoadPhase
from workers.engines.common_causes import COMMON_CAUSES
from workers.engines.load_log import DialectLog
from workers.engines.rules import Dialect, FactRule, PhaseRule, Rank, causes, decimal, phases, whole
from workers.engines.vllm_phases import ANSWERED, BAR

_SIGNATURE = re.compile(
    r"server_args=ServerArgs\(|Load weight (?:begin|end)\.|fired up and ready to roll|max_total_num_tokens=|Capturing batches \(|sglang"
    r"|Init torch distributed (?:begin|ends)|Memory pool end\.|KV Cache is allocated\.|(?:Prefill|Decode) batch[.,\[ ]"
    r"|Capture (?:draft )?cuda graph|Scheduler hit an exception|launch_server|mem-fraction-static"
)

_PHASES: tuple[PhaseRule, ...] = (
    *phases(LoadPhase.ENGINE_INIT, r"server_args=ServerArgs\(", r"Init torch distributed (?:begin|ends)", r"^Launching? .{0,40}server"),
    *phases(LoadPhase.WEIGHTS_LOADING, r"Load weight begin\.", stage="model"),
    *phases(
        LoadPhase.WEIGHTS_LOADING,
        rf"(?:Loading|Multi-thread loading) [^:%]{{1,120}}: +{BAR}",
        r"Load weight end\.",
    ),
    *phases(LoadPhase.KV_CACHE_INIT, r"KV Cache is allocated\.", r"Memory pool end\."),
    *phases(
        LoadPhase.CUDA_GRAPH_CAPTURE,
        rf"Capturing (?:batches|num tokens)(?: \([^)]{{0,120}}\))?: +{BAR}",
        rf"^ {{0,4}}{BAR}",
        r"Capture (?:draft |draft extend |target verify |piecewise |decode )?(?:cuda|CUDA|npu) graph (?:begin|end)\.",
    ),
    *phases(LoadPhase.WARMUP, r"max_total_num_tokens=\d+", r"[Ww]armup"),
    *phases(LoadPhase.API_STARTUP, r"Started server process", r"Waiting for application startup", r"Application startup complete"),
)

_GB = r"([\d.]{1,12}) ?GB"
_FACTS: tuple[FactRule, ...] = (
    FactRule(re.compile(rf"Load weight end\..{{0,300}}?mem usage={_GB}"), ("weights_gib",), decimal, adds=True),
    FactRule(re.compile(r"Load weight end\..{0,40}?elapsed=([\d.]{1,12}) s"), ("weights_loading_seconds",), decimal, adds=True),
    FactRule(re.compile(r"Load weight end\..{0,80}?type=(\w{1,80})"), ("architecture",), str),
    FactRule(re.compile(r"KV Cache is allocated\..{0,80}?#tokens: (\d{1,12})"), ("kv_cache_tokens",), whole),
    FactRule(re.compile(r"max_total_num_tokens=(\d{1,12})"), ("kv_cache_tokens",), whole),
    FactRule(re.compile(r"context_len=(\d{1,12})"), ("max_model_len",), whole),
    FactRule(re.compile(r"Capture cuda graph end\. Time elapsed: ([\d.]{1,12}) s"), ("graph_capture_seconds",), decimal),
    FactRule(re.compile(r"attention_backend='(\w{1,40})'"), ("attention_backend",), str),
    FactRule(re.compile(r"server_args=ServerArgs\(.{0,3000}?\bport=(\d{1,5})"), ("port",), whole),
    FactRule(re.compile(r"speculative_algorithm='(\w{1,40})'"), ("speculative_algorithm",), str),
)

_CAUSES = (
    *causes(
        Reason.KV_CACHE_TOO_SMALL,
        Rank.ROOT,
        r"Not enough memory\. Please try (?:to increase|increasing) --mem-fraction-static",
    ),
    *causes(
        Reason.GPU_MEMORY_NOT_FREE_AT_START,
        Rank.ROOT,
        r"The memory capacity is unbalanced\. Some GPUs may be occupied by other processes",
    ),
    *COMMON_CAUSES,
    *causes(
        Reason.ENGINE_UNRESPONSIVE,
        Rank.GENERIC,
        r"[Ww]atchdog timeout \(",
        r"Health check failed\. Server couldn't get a response",
        loading_only=False,
    ),
    *causes(
        Reason.ENGINE_DEAD,
        Rank.WRAPPER,
        r"Received sigquit from a child process",
        r"Rank \d+ scheduler is dead",
        r"Scheduler hit an exception",
        r"Scheduler or DataParallelController \d+ terminated with",
        r"Initialization failed\. ",
        r"Child process unexpectedly failed with ",
        loading_only=False,
    ),
)

SGLANG = Dialect(
    name="sglang",
    signature=_SIGNATURE,
    version=re.compile(r"\b[Ss][Gg][Ll]ang (?:version:? |v)(\d[\w.+-]*)"),
    serving=re.compile(rf"The server is fired up and ready to roll|{ANSWERED}"),
    stopping=re.compile(r"^INFO: +Shutting down|Gracefully exiting|SIGTERM received"),
    phases=_PHASES,
    facts=_FACTS,
    causes=_CAUSES,
)


class SglangLoadLog(DialectLog):
    """Reads a load of SGLang line by line and keeps only what it concluded."""

    def __init__(self) -> None:
        super().__init__(SGLANG)
