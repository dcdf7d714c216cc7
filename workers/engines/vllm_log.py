"""vLLM's log of a load, versions 0.8 to 0.33."""

from __future__ import annotations

from workers.engines.load_log import DialectLog
from workers.engines.rules import Dialect
from workers.engines.vllm_causes import CAUSES, STOPPING
from workers.engines.vllm_phases import FACTS, PHASES, SERVING, SIGNATURE, VERSION

VLLM = Dialect(
    name="vllm",
    signature=SIGNATURE,
    version=VERSION,
    serving=SERVING,
    stopping=STOPPING,
    phases=PHASES,
    facts=FACTS,
    causes=CAUSES,
)


class VllmLoadLog(DialectLog):
    """Reads a load of vLLM line by line and keeps only what it concluded."""

    def __init__(self) -> None:
        super().__init__(VLLM)
