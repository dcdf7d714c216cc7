"""A night as the database holds it afterwards: two hosts, verdicts of each kind, a failure, and what still runs and waits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session

from service.domain.events import EventType
from service.domain.spec import FIVE_IDS, Spec
from service.store import hosts
from service.store.database import Database
from service.store.tables import (
    BaselineRow,
    BenchPhaseRow,
    EventRow,
    ExperimentRow,
    HostRow,
    RequestRow,
    ShiftRow,
    SpeculationRow,
    StepRow,
)

Json = dict[str, Any]

STEPS = (("clear", 4), ("launch", 2), ("load", 221), ("warm", 52), ("measure", 1980), ("collect", 3))
"""Seconds that each step takes here."""
UNIT = "vllm-qwen3.service"
SLOW, EVEN, FAST = 60.0, 60.5, 86.0
"""Tokens/s of the arms."""
EAGLE: Json = {"method": "eagle3", "model": "/models/eagle3", "num_speculative_tokens": 3}
NGRAM: Json = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}
ACCEPTED = {"eagle3": [0.88, 0.77, 0.67], "ngram": [0.56, 0.31, 0.22, 0.16, 0.13]}


def a_night(database: Database, began: datetime) -> dict[str, int]:
    """Write it down as if it had begun then; gives the ids by short names. About three hours of it have passed."""
    with database.write() as session:
        first = _host(session, "gpu-01", units="systemd", park=[UNIT], window="20:00-08:00", time_zone="UTC")
        second = _host(session, "gpu-02")
        _shift(session, first, began + timedelta(minutes=3))
        writer = _Writer(session, first, began + timedelta(minutes=5))
        ids = {"base": writer.measured("qwen3-32b base", SLOW)}
        session.add(BaselineRow(host_id=first.id or 0, served_model="qwen3", experiment_id=ids["base"]))
        ids["better"] = writer.measured("qwen3-32b eagle3 k=3", FAST, EAGLE)
        ids["same"] = writer.measured("qwen3-32b NCCL_ALGO=Ring", EVEN, env={"NCCL_ALGO": "Ring"})
        ids["failed"] = writer.failed("qwen3-32b max-model-len=262144", args={"max-model-len": 262144})
        ids["worse"] = writer.measured("qwen3-32b ngram k=5", 0.77 * SLOW, NGRAM)
        ids["running"] = writer.running("qwen3-32b eagle3 k=5", EAGLE | {"num_speculative_tokens": 5})
        ids["queued"] = writer.waiting("qwen3-32b eagle3 k=7", EAGLE | {"num_speculative_tokens": 7})
        ids["held"] = _Writer(session, second, began).waiting("llama-70b q4", status="held", held_because='by ann: "after the driver"')
        first.lease_owner, first.lease_token, first.lease_expires = "worker-1:4711", "token", began.timestamp() + 86400.0 * 400
        session.add(first)
    return ids


def _host(session: Session, name: str, **config: Any) -> HostRow:
    return hosts.register(session, name, "local", config)


def _shift(session: Session, host: HostRow, at: datetime) -> None:
    parked = {"units": [{"name": UNIT}], "parked_at": at.timestamp()}
    session.add(ShiftRow(host_id=host.id or 0, opened_at=at - timedelta(minutes=1), phase="parked", parked=parked))


class _Writer:
    """Writes one experiment after another."""

    def __init__(self, session: Session, host: HostRow, at: datetime) -> None:
        self._session, self._host, self._at = session, host, at

    def measured(self, name: str, tps: float, speculative: Json | None = None, **engine: Any) -> int:
        row = self._row(name, speculative, **engine)
        self._start(row)
        for step, seconds in STEPS:
            self._step(row, step, seconds)
        self._measure(row, tps, speculative)
        return self._end(row, outcome="succeeded")

    def failed(self, name: str, **engine: Any) -> int:
        row = self._row(name, None, **engine)
        self._start(row)
        for step, seconds in STEPS[:2]:
            self._step(row, step, seconds)
        self._session.add(StepRow(experiment_id=row.id or 0, attempt=1, name="load", started_at=self._at))
        self._at += timedelta(minutes=6)
        evidence = "ValueError: the model's max seq len (262144) is larger than the maximum number of tokens that fit (75312)"
        return self._end(
            row, outcome="failed", reason="kv_cache_too_small", step="load", detail="16.0 GiB KV cache is needed", evidence=evidence
        )

    def running(self, name: str, speculative: Json | None = None) -> int:
        row = self._row(name, speculative)
        self._start(row)
        for step, seconds in STEPS[:4]:
            self._step(row, step, seconds)
        self._session.add(StepRow(experiment_id=row.id or 0, attempt=1, name="measure", started_at=self._at))
        row.status, row.step = "running", "measure"
        row.progress = {"concurrency": 8, "requests": 25, "done": 7, "tps": 79.4}
        self._session.add(row)
        return row.id or 0

    def waiting(self, name: str, speculative: Json | None = None, status: str = "queued", **values: Any) -> int:
        row = self._row(name, speculative)
        row.status = status
        for key, value in values.items():
            setattr(row, key, value)
        self._session.add(row)
        return row.id or 0

    def _row(self, name: str, speculative: Json | None, **engine: Any) -> ExperimentRow:
        made: Json = {"kind": "vllm", "model": "/models/qwen3", "served_model_name": "qwen3", **engine}
        if speculative:
            made["speculative"] = speculative
        spec = Spec.model_validate({"name": name, "host": self._host.name, "engine": made, "bench": {"concurrency": [1], "repeat": 3}})
        row = ExperimentRow(
            name=name, host_id=self._host.id or 0, created_by="ann", created_at=self._at, spec=spec.model_dump(mode="json", by_alias=True),
            spec_hash=f"{hash_of(name)}0000", engine_kind="vllm", engine_hash=hash_of(name), bench_hash="b", served_model="qwen3",
        )  # fmt: skip
        self._session.add(row)
        self._session.flush()
        return row

    def _start(self, row: ExperimentRow) -> None:
        row.started_at = self._at
        row.facts = {"engine": "vllm", "engine_version": "0.21.0", "served_model": "qwen3", "driver": "570.1", "gpus": [{"uuid": "GPU-1"}]}
        self._event(row, EventType.EXPERIMENT_STARTED, {"attempt": 1})

    def _step(self, row: ExperimentRow, name: str, seconds: float) -> None:
        begun, self._at = self._at, self._at + timedelta(seconds=seconds)
        self._session.add(StepRow(experiment_id=row.id or 0, attempt=1, name=name, started_at=begun, finished_at=self._at))

    def _end(self, row: ExperimentRow, **values: Any) -> int:
        row.status, row.finished_at = "finished", self._at
        for key, value in values.items():
            setattr(row, key, value)
        self._session.add(row)
        self._event(row, EventType.EXPERIMENT_FINISHED, {"outcome": row.outcome, "reason": row.reason})
        self._at += timedelta(seconds=20)
        return row.id or 0

    def _event(self, row: ExperimentRow, kind: EventType, data: Json) -> None:
        self._session.add(EventRow(at=self._at, type=kind, actor="worker:1", host=self._host.name, experiment_id=row.id, data=data))
        self._session.flush()

    def _measure(self, row: ExperimentRow, tps: float, speculative: Json | None) -> None:
        requests = len(FIVE_IDS) * 3
        mean = {"mean": tps, "p50": tps, "p90": tps, "p99": tps}
        latency = {"mean": 1000 / tps, "p50": 1000 / tps, "p90": 1100 / tps, "p99": 1200 / tps}
        ttft = {"mean": 212.0, "p50": 210.0, "p90": 250.0, "p99": 412.0}
        summary = {
            "requests": requests, "failed": 0, "valid": True, "duration_s": 1960.0, "output_tokens": round(1960 * tps * 0.98),
            "output_tps": tps * 0.98, "ttft_ms": ttft, "tpot_ms": latency, "itl_ms": latency, "e2e_ms": latency, "tps": mean,
        }  # fmt: skip
        phase = BenchPhaseRow(
            experiment_id=row.id or 0, attempt=1, kind="measured", concurrency=1, started_at=self._at, finished_at=self._at, summary=summary
        )
        self._session.add(phase)
        self._session.flush()
        for number, prompt in enumerate(FIVE_IDS):
            for repeat in range(3):
                speed = tps * (1 + 0.02 * number) * (1 + 0.002 * (repeat - 1))
                request = RequestRow(
                    bench_phase_id=phase.id or 0, prompt=prompt, repeat=repeat, ok=True, tps=speed, ttft_s=0.2, tpot_s=1 / speed,
                    e2e_s=30.0, prompt_tokens=100, completion_tokens=2048, tokens_from="usage", finish_reason="length", http_status=200,
                )  # fmt: skip
                self._session.add(request)
        shares = ACCEPTED.get((speculative or {}).get("method", ""))
        self._session.add(_speculation(phase.id or 0, shares))


def _speculation(phase_id: int, shares: list[float] | None) -> SpeculationRow:
    if shares is None:
        return SpeculationRow(bench_phase_id=phase_id, status="off", source="prometheus")
    drafts = 1000
    return SpeculationRow(
        bench_phase_id=phase_id, status="on", source="prometheus", drafts=drafts, draft_tokens=drafts * len(shares),
        accepted_tokens=round(drafts * sum(shares)), mean_acceptance_length=1 + sum(shares),
        draft_acceptance_rate=sum(shares) / len(shares), per_position_acceptance=shares,
        effective_tokens_per_step=1 + 0.9 * sum(shares), draft_coverage=0.9,
    )  # fmt: skip


def hash_of(name: str) -> str:
    """Something short that differs with the name and never with the run."""
    return f"{sum(place * ord(sign) for place, sign in enumerate(name, 1)):07x}"
