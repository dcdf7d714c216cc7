"""Three hashes of a spec: the whole configuration, what forces a reload, and what makes two measurements comparable."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from service.domain.engine_spec import VllmEngine
from service.domain.spec import Bench, Spec

FIVE_VERSION = 1
"""Raised whenever the text of the built-in five prompts changes: measurements of other texts are not comparable."""

MEASUREMENT_VERSION = 1
"""Raised whenever the load client measures something differently."""

LENGTH = 16


def digest(value: Any) -> str:
    """First 16 hexadecimal digits of the SHA-256 of canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def bench_hash(bench: Bench) -> str:
    """Equal for measurements that may be compared: prompts, max_tokens, concurrency, temperature, extra body, client.

    `repeat` and `warmup` are left out: they change how sure one is, not what is measured.
    """
    prompts: Any = f"five@{FIVE_VERSION}" if bench.prompts == "five" else [p.model_dump(exclude_none=True) for p in bench.prompts]
    return digest(
        {
            "prompts": prompts,
            "max_tokens": bench.max_tokens,
            "concurrency": bench.concurrency,
            "temperature": bench.temperature,
            "extra_body": bench.extra_body,
            "measurement": MEASUREMENT_VERSION,
        }
    )


def engine_hash(spec: Spec) -> str:
    """Equal for experiments that one running engine can serve: a difference forces a reload."""
    engine = spec.engine.model_dump(mode="json")
    if isinstance(spec.engine, VllmEngine):
        # Keys that came later count only where they are used: a hash kept from before means the same configuration still.
        engine = {key: value for key, value in engine.items() if value or key not in {"from_unit", "user", "keep_port"}}
    return digest({"host": spec.host, "engine": engine})


def spec_hash(spec: Spec) -> str:
    """Equal for experiments that would do the same: host, engine, load limits and benchmark; not name, baseline or priority."""
    return digest({"engine": engine_hash(spec), "bench": bench_hash(spec.bench), "repeat": spec.bench.repeat, "warmup": spec.bench.warmup})
