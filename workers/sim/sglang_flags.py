"""The command line of SGLang's server, as far as experiments use it, in the terms of the simulation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from workers.sim.flags import ServeConfig


def _words(names: str) -> list[str]:
    return names.split()


USAGE = "usage: launch_server.py [-h] --model-path MODEL_PATH [options]\n"
INTEGERS = _words(
    "port tp-size dp-size pp-size ep-size context-length max-running-requests max-total-tokens chunked-prefill-size"
    " max-prefill-tokens cuda-graph-max-bs decode-log-interval random-seed page-size speculative-num-steps"
    " speculative-eagle-topk speculative-num-draft-tokens stream-interval"
)
NUMBERS = ("mem-fraction-static", "schedule-conservativeness", "watchdog-timeout")
TEXTS = _words(
    "model-path tokenizer-path host served-model-name api-key dtype quantization kv-cache-dtype load-format"
    " attention-backend sampling-backend grammar-backend reasoning-parser tool-call-parser schedule-policy log-level"
    " speculative-algorithm speculative-draft-model-path"
)
SWITCHES = _words(
    "trust-remote-code enable-metrics disable-cuda-graph disable-radix-cache disable-custom-all-reduce enable-torch-compile"
    " enable-mixed-chunk enable-dp-attention disable-overlap-schedule log-requests skip-server-warmup"
)
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{USAGE}launch_server.py: error: {message}\n")
        raise SystemExit(2)


def parse(argv: Sequence[str]) -> ServeConfig:
    """A checked configuration. SystemExit(2) for a bad command line."""
    parser = _Parser(prog="launch_server.py", allow_abbrev=False, argument_default=argparse.SUPPRESS, add_help=False)
    for names, kind in ((INTEGERS, int), (NUMBERS, float), (TEXTS, str)):
        for name in names:
            choices = ALGORITHMS if name == "speculative-algorithm" else None
            parser.add_argument(f"--{name}", type=kind, required=name == "model-path", choices=choices)
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    given = vars(parser.parse_args(list(argv)))
    model = given["model_path"]
    return ServeConfig(
        model=model,
        served_names=(given.get("served_model_name", model),),
        host=given.get("host", "127.0.0.1"),
        port=given.get("port", 30000),
        gpu_count=given.get("tp_size", 1) * given.get("pp_size", 1),
        max_model_len=given.get("context_length", 131_072),
        gpu_memory_utilization=given.get("mem_fraction_static", 0.88),
        api_keys=(given["api_key"],) if given.get("api_key") else (),
        speculative=_speculative(given),
        prefix_caching=not given.get("disable_radix_cache", False),
        eager=given.get("disable_cuda_graph", False),
        log_stats=given.get("enable_metrics", False),
        access_log=True,
        force_usage=False,
        bars=True,
        given=given,
    )


def _speculative(given: dict[str, Any]) -> dict[str, Any] | None:
    """The root of the tree counts among the draft tokens."""
    algorithm = given.get("speculative_algorithm")
    if algorithm is None:
        return None
    drafts = given.get("speculative_num_draft_tokens", 4)
    return {"method": algorithm, "num_speculative_tokens": max(drafts - 1, 1)}
