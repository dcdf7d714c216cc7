"""The shapes of a night: how it is going, what each host did, and what there is to write down of it."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from service.api.schemas import ExperimentOut, HostOut
from service.domain.comparison import Comparison, Verdict
from service.domain.reasons import Reason, ReasonClass
from service.domain.status import Status


class VersusOut(BaseModel):
    """An experiment against its baseline, at the first level that both measured."""

    baseline: int
    verdict: Verdict
    tps_ratio: float | None
    """Of tokens/s, candidate over baseline; null where nothing may be said."""
    ci95: list[float] | None


class EndedOut(BaseModel):
    """What ended, what it measured at its first level, and what that is worth."""

    experiment: ExperimentOut
    tps: float | None
    """Tokens/s: the mean over its requests, or where that is not known of all together."""
    versus: VersusOut | None
    not_compared: str
    """Why it has no verdict although a baseline is meant; empty where none is."""


class NightOut(BaseModel):
    """How the night is going: one screen."""

    since: datetime
    at: datetime
    hosts: list[HostOut]
    counts: dict[Status, int]
    """Open experiments by their status."""
    open: list[ExperimentOut]
    """What runs, then what waits in the order in which it is chosen."""
    outcomes: dict[str, int]
    """What ended since then by its outcome."""
    ended: list[EndedOut]
    """The latest of these, oldest first."""


class SpanOut(BaseModel):
    """One step of one attempt."""

    step: str
    attempt: int
    started_at: datetime
    finished_at: datetime | None


class BarOut(BaseModel):
    """One experiment on its host's lane."""

    id: int
    name: str
    status: Status
    outcome: str | None
    status_text: str
    started_at: datetime
    finished_at: datetime | None
    eta: datetime | None
    steps: list[SpanOut]


class ParkedOut(BaseModel):
    """Production did not serve between these moments."""

    parked_at: datetime
    restored_at: datetime | None


class ForeseenOut(BaseModel):
    """An experiment that waits, and when it would run."""

    id: int
    name: str
    starts_at: datetime
    eta: datetime


class LaneOut(BaseModel):
    """One host."""

    host: str
    simulated: bool
    experiments: list[BarOut]
    parked: list[ParkedOut]
    foreseen: list[ForeseenOut]


class TimelineOut(BaseModel):
    """What each host did between two moments, and what is foreseen."""

    since: datetime
    until: datetime
    at: datetime
    hosts: list[LaneOut]


class NumbersOut(BaseModel):
    """The five numbers of the first level; null is not known."""

    tps: float | None
    output_tps: float | None
    itl_ms_p50: float | None
    ttft_ms_p50: float | None
    mean_acceptance_length: float | None


class ReportedOut(BaseModel):
    """One experiment with all that was found."""

    experiment: ExperimentOut
    numbers: NumbersOut
    comparison: Comparison | None
    not_compared: str


class FailureOut(BaseModel):
    """What failed by one cause."""

    reason: Reason
    reason_class: ReasonClass
    sentence: str
    remedy: str
    ids: list[int]


class ProductionOut(BaseModel):
    """What is known of a host's production after its latest shift."""

    host: str
    text: str
    proven: bool
    """It is proven to serve, or was not touched."""


class ReportOut(BaseModel):
    """What a night brought, in full."""

    since: datetime
    until: datetime
    at: datetime
    label: str
    """The evening's date where the hosts are; empty where nothing ran."""
    hosts: list[str]
    outcomes: dict[str, int]
    ended: list[ReportedOut]
    """Those with an effect first, the largest on top; then by speed; then those that did not succeed."""
    failures: list[FailureOut]
    """The most frequent cause first."""
    gpu_s: float | None
    """Seconds of experiments times the GPUs they had; null where nobody knows how many."""
    gpus_unknown: int
    """Experiments that this leaves out."""
    loads: int
    production: list[ProductionOut]
    waiting: int
    next: list[str]
    """What to try next, each on the ground of a figure."""
