"""/metrics: for Prometheus, counted by the database when it is asked for, so that every process of the API tells the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from service.api.auth import READ
from service.domain.status import Status
from service.store.database import Database
from service.store.figures import Figures, HostFigures, figures
from service.store.tally import Histogram, Tally

router = APIRouter(tags=["health"], dependencies=[READ])

SEEN_S = 60.0
"""A worker that was not seen for longer is not there: it shows itself four times as often, or `lease_s` says otherwise."""

Row = tuple[Sequence[str], float]


class Collector:
    """What the library asks for the figures."""

    def __init__(self, store: Database, lease_s: float = SEEN_S) -> None:
        self._store = store
        self._seen_s = max(SEEN_S, lease_s)
        self._tally = Tally()
        self._turn = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Every metric, of one moment."""
        with self._turn, self._store.read() as session:
            found = figures(session)
            self._tally.count(session)
            made = [
                *_experiments(found),
                *self._hosts(found.hosts),
                *self._steward(found),
                *_sums(self._tally),
                *_deliveries(found, self._tally),
            ]
        yield from made

    def _hosts(self, hosts: list[HostFigures]) -> Iterator[Metric]:
        def gauge(name: str, words: str, value: Callable[[HostFigures], float | None]) -> Metric:
            rows = [([host.name], found) for host in hosts if (found := value(host)) is not None]
            return _gauge(name, words, ["host"], rows)

        yield gauge("host_up", "Whether a worker of the host lives and reaches it.", self._up)
        yield gauge("host_paused", "Whether nothing new starts on the host.", lambda host: host.paused)
        yield gauge("host_blocked", "Whether nothing may start on the host until somebody has looked at it.", lambda host: host.blocked)
        yield gauge("host_not_restored", "Whether production did not serve again after a shift.", lambda host: host.not_restored)
        yield gauge("production_parked", "Whether a shift has taken production down and not yet brought it back.", lambda host: host.parked)
        yield gauge("worker_heartbeat_age_seconds", "Since a worker of the host was last seen.", lambda host: host.worker_age_s)
        lost = CounterMetricFamily("expctl_claims_lost", "Leases on hosts that ran out unreturned and were taken by another worker.")
        lost.add_metric([], sum(host.claims_lost for host in hosts))
        yield lost

    def _up(self, host: HostFigures) -> bool:
        return host.reachable and host.worker_age_s is not None and host.worker_age_s <= self._seen_s

    def _steward(self, found: Figures) -> Iterator[Metric]:
        yield _gauge("steward_up", "Whether somebody holds the steward's lease.", [], [([], found.steward)])
        yield _gauge("build_info", "The version of the API that was asked.", ["version"], [([version("expctl")], 1)])


def _gauge(name: str, words: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    made = GaugeMetricFamily(f"expctl_{name}", words, labels=labels)
    for values, number in rows:
        made.add_metric(values, float(number))
    return made


def _experiments(found: Figures) -> Iterator[Metric]:
    now = {(status, host.name): 0 for host in found.hosts for status in Status}
    ended: dict[tuple[str, str, str], int] = {}
    for one in found.experiments:
        now[Status(one.status), one.host] += one.number
        if one.status == Status.FINISHED:
            key = (one.outcome, one.reason, one.engine)
            ended[key] = ended.get(key, 0) + one.number
    yield _gauge("experiments", "Experiments by where they are.", ["status", "host"], now.items())
    counter = CounterMetricFamily(
        "expctl_experiments_finished",
        "Experiments that have ended; the reason is empty for success.",
        labels=["outcome", "reason", "engine"],
    )
    for labels, count in sorted(ended.items()):
        counter.add_metric(labels, count)
    yield counter


def _sums(tally: Tally) -> Iterator[Metric]:
    steps = HistogramMetricFamily(
        "expctl_step_duration_seconds", "How long steps took that were gone through whole.", labels=["step", "engine"]
    )
    for labels, histogram in sorted(tally.steps.items()):
        steps.add_metric(labels, _buckets(histogram), histogram.total)
    yield steps
    waits = HistogramMetricFamily("expctl_queue_wait_seconds", "From the submission of an experiment to its first start.")
    waits.add_metric([], _buckets(tally.waits), tally.waits.total)
    yield waits


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = zip(histogram.bounds, histogram.counts, strict=True)
    return [*((str(bound), float(count)) for bound, count in bounds), ("+Inf", float(histogram.count))]


def _deliveries(found: Figures, tally: Tally) -> Iterator[Metric]:
    tried = CounterMetricFamily("expctl_deliveries", "Tries to deliver messages, by how they ended.", labels=["notifier", "result"])
    for one in tally.tries:
        tried.add_metric([one.notifier, one.result], one.number)
    yield tried
    waiting = {(one.notifier, status): 0 for one in tally.tries for status in ("pending", "dead")}
    waiting |= {(one.notifier, one.status): one.number for one in found.undelivered}
    words = "Messages that have not arrived: pending ones are tried again, dead ones were given up."
    yield _gauge("undelivered", words, ["notifier", "status"], waiting.items())


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}})
def metrics(request: Request) -> Response:
    """Figures for Prometheus; in the format of OpenMetrics where it asks for that."""
    registry = CollectorRegistry()
    registry.register(request.app.state.collector)
    encode, kind = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), media_type=kind)
