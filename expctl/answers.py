"""The API's answers as the client gives them: plain dictionaries, as JSON has them, whose fields can also be read as attributes.

`found["status"]` and `found.status` are the same, but for times: as attributes they are datetimes. A test holds the names to the
API's own models. No model library is loaded for them, so that the command line starts fast.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
A = TypeVar("A", bound="Answer")
Json = dict[str, Any]


class Answer(Json):
    """One object of the API."""


class Field(Generic[T]):
    """A field of an answer, read as an attribute."""

    def __init__(self, read: Callable[[Any], T] | None = None) -> None:
        self._read = read
        self.name = ""

    def __set_name__(self, owner: type[Answer], name: str) -> None:
        self.name = name.removesuffix("_")

    @overload
    def __get__(self, answer: None, owner: type[Answer]) -> Field[T]: ...
    @overload
    def __get__(self, answer: Answer, owner: type[Answer]) -> T: ...
    def __get__(self, answer: Answer | None, owner: type[Answer]) -> Field[T] | T:
        if answer is None:
            return self
        value: Any = answer[self.name]
        read: Any = value if self._read is None else self._read(value)
        found: T = read
        return found


def names(kind: type[Answer]) -> set[str]:
    """The fields that an answer is known to have."""
    return {field.name for owner in kind.__mro__ for field in vars(owner).values() if isinstance(field, Field)}


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _each(kind: type[A]) -> Callable[[Any], list[A]]:
    return lambda found: [kind(one) for one in found]


def _maybe(kind: type[A]) -> Callable[[Any], A | None]:
    return lambda found: None if found is None else kind(found)


class Step(Answer):
    """One step of an experiment."""

    name = Field[str]()
    attempt = Field[int]()
    started_at = Field(_moment)
    finished_at = Field(_moment)
    unit = Field["str | None"]()
    invocation_id = Field["str | None"]()
    evidence = Field[Json]()


class Experiment(Answer):
    """One experiment. `status`: held, queued, running, stopping, finished; once finished, `outcome` says how and `reason` why."""

    id = Field[int]()
    group_id = Field["str | None"]()
    name = Field[str]()
    host = Field[str]()
    created_by = Field[str]()
    status = Field[str]()
    step = Field["str | None"]()
    outcome = Field["str | None"]()
    reason = Field["str | None"]()
    reason_class = Field["str | None"]()
    status_text = Field[str]()
    where_text = Field[str]()
    detail = Field[str]()
    evidence = Field[str]()
    remedy = Field["str | None"]()
    spec = Field[Json]()
    spec_hash = Field[str]()
    engine_hash = Field[str]()
    bench_hash = Field[str]()
    created_at = Field(_moment)
    started_at = Field(_moment)
    finished_at = Field(_moment)
    eta = Field(_moment)
    eta_p90 = Field(_moment)
    starts_at = Field(_moment)
    eta_text = Field[str]()
    attempt = Field[int]()
    priority = Field[int]()
    not_before = Field(_moment)
    retry_of = Field["int | None"]()
    after = Field["list[int]"]()
    baseline_id = Field["int | None"]()
    load = Field[int]()
    loads = Field[int]()
    load_of = Field["int | None"]()
    recheck_of = Field["int | None"]()
    load_text = Field[str]()
    progress = Field[Json]()
    facts = Field[Json]()
    events_url = Field[str]()

    @property
    def finished(self) -> bool:
        """Whether it has ended, in whatever way."""
        return bool(self["status"] == "finished")

    @property
    def succeeded(self) -> bool:
        """Whether it has ended and may be believed."""
        return bool(self["outcome"] == "succeeded")


class ExperimentDetail(Experiment):
    """One experiment with its steps."""

    steps = Field(_each(Step))


class Host(Answer):
    """One host."""

    name = Field[str]()
    transport = Field[str]()
    simulated = Field[bool]()
    busy = Field[bool]()
    worker = Field["str | None"]()
    worker_silent = Field[bool]()
    blocked = Field["str | None"]()
    paused = Field[bool]()
    config = Field[Json]()
    shift_text = Field[str]()
    night_text = Field[str]()
    needs_person = Field[bool]()


class Event(Answer):
    """Something that happened."""

    id = Field[int]()
    at = Field(_moment)
    type = Field[str]()
    actor = Field[str]()
    host = Field["str | None"]()
    experiment_id = Field["int | None"]()
    data = Field[Json]()


class Results(Answer):
    """What an experiment measured: its phases with every request."""

    experiment = Field(Experiment)
    phases = Field["list[Json]"]()
    first_request = Field["Json | None"]()


class Effect(Answer):
    """How much faster: `tps_ratio` is tokens/s of the candidate over the baseline's, with its 95 % interval."""

    tps_ratio = Field[float]()
    ci95 = Field["list[float] | None"]()
    smallest_detectable = Field["float | None"]()
    between_load_sd = Field[Json]()


class PhaseComparison(Answer):
    """One concurrency level of a comparison. Pairs are [baseline, candidate]."""

    concurrency = Field[int]()
    verdict = Field[str]()
    effect = Field(_maybe(Effect))
    drift = Field["Json | None"]()
    prompts = Field["list[Json]"]()
    output_tps = Field["list[float | None]"]()
    loads = Field["list[int]"]()
    percentiles = Field["dict[str, Json]"]()
    speculation = Field["dict[str, Json | None]"]()
    acceptance_not_comparable = Field["str | None"]()


class Comparison(Answer):
    """Whether it helped. `verdict`: better, worse, no_difference_shown, not_comparable, invalid; that of the first level."""

    schema_ = Field[str]()
    baseline = Field[int]()
    candidate = Field[int]()
    comparable = Field[bool]()
    why_not = Field["list[str]"]()
    verdict = Field[str]()
    bench_phases = Field(_each(PhaseComparison))
    spec_differences = Field["dict[str, list[Any]]"]()
    equal_fields = Field[int]()
    spec_equal = Field["Json | None"]()
    warnings = Field["list[str]"]()
    experiments = Field["dict[str, list[int]]"]()
    advice = Field["list[str]"]()
