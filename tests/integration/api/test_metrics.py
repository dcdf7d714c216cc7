"""/metrics: what it tells is what the database holds, whoever is asked."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from service.api.app import create_app
from service.domain.events import EventType
from service.domain.reasons import Reason
from service.domain.status import Outcome, StepName
from service.store import events, experiments, hosts, migrate, shifts, singletons, workers
from service.store.database import Database
from service.store.tables import AttemptRow, DeliveryRow, DurationRow, ExperimentRow, HostRow, NotifierRow, utc_now
from service.store.tally import Tally
from tests.integration.api.service import Api, Hands

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(api: Api) -> Samples:
    """Every sample by its name and its labels, as another process of the API would tell it too."""
    answer = api.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    another = api.ask("GET", "/metrics", app=create_app(api.database, loopback_only=True))
    assert _steady(answer.text) == _steady(another.text)
    families = text_string_to_metric_families(answer.text)
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def _steady(text: str) -> list[str]:
    return [line for line in text.splitlines() if "_age_seconds{" not in line]


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"expctl_{name}", tuple(sorted(labels.items()))]


def test_of_an_empty_service(api: Api) -> None:
    found = scrape(api)
    assert value(found, "experiments", status="queued", host="local") == 0
    assert value(found, "host_up", host="local") == 0
    assert value(found, "claims_lost_total") == 0
    assert value(found, "steward_up") == 0
    assert value(found, "queue_wait_seconds_count") == 0
    assert value(found, "build_info", version=api.get("/healthz").json()["version"]) == 1


def test_experiments_where_they_are_and_how_they_ended(api: Api) -> None:
    for name in ("a", "b", "c", "d"):
        api.submit(name=name)
    hands = Hands(api.database)
    hands.finish(hands.take())
    hands.finish(hands.take(), Outcome.FAILED, Reason.ENGINE_DEAD)
    hands.take()
    found = scrape(api)
    places = {status: value(found, "experiments", status=status, host="local") for status in ("held", "queued", "running", "finished")}
    assert places == {"held": 0, "queued": 1, "running": 1, "finished": 2}
    assert value(found, "experiments_finished_total", outcome="succeeded", reason="", engine="vllm") == 1
    assert value(found, "experiments_finished_total", outcome="failed", reason="engine_dead", engine="vllm") == 1
    assert value(found, "queue_wait_seconds_count") == 3
    assert 0 <= value(found, "queue_wait_seconds_sum") < 60
    assert not [name for name, labels in found if {"experiment", "experiment_id", "id"} & {key for key, _ in labels}]


def test_another_attempt_waits_for_its_pause_and_not_for_its_turn(api: Api) -> None:
    api.submit()
    hands = Hands(api.database)
    one = hands.take()
    with api.database.write() as session:
        events.emit(session, EventType.EXPERIMENT_STARTED, "worker:x", host="local", experiment_id=one, data={"attempt": 2})
        row = experiments.get(session, one)
        row.created_at = utc_now() - timedelta(hours=3)
        session.add(row)
    found = scrape(api)
    assert value(found, "queue_wait_seconds_count") == 1
    assert value(found, "queue_wait_seconds_bucket", le="7200.0") == 0
    assert value(found, "queue_wait_seconds_bucket", le="14400.0") == 1
    assert value(found, "queue_wait_seconds_sum") == pytest.approx(3 * 3600, abs=60)


def durations(database: Database, *seconds: float, part: str = "load") -> None:
    with database.write() as session:
        for one in seconds:
            session.add(DurationRow(host_id=1, part=part, seconds=one, engine_kind="vllm"))


def test_steps_are_summed_up_and_a_later_look_goes_on_from_there(api: Api) -> None:
    durations(api.database, 0.5, 100.0, 100000.0)
    durations(api.database, 5.0, part="load:weights_loading")
    assert value(scrape(api), "step_duration_seconds_count", step="load", engine="vllm") == 3
    durations(api.database, 100.0)
    found = scrape(api)
    buckets = {le: value(found, "step_duration_seconds_bucket", step="load", engine="vllm", le=le) for le in ("1.0", "120.0", "+Inf")}
    assert buckets == {"1.0": 1, "120.0": 3, "+Inf": 4}
    assert value(found, "step_duration_seconds_sum", step="load", engine="vllm") == pytest.approx(100200.5)
    assert not [labels for _, labels in found if ("step", "load:weights_loading") in labels]


def test_a_database_that_is_an_older_copy_is_counted_anew(database: Database) -> None:
    with database.write() as session:
        hosts.register(session, "local", "local", {})
    durations(database, 1.0, 2.0)
    tally = Tally()
    with database.read() as session:
        tally.count(session)
    assert tally.steps[StepName.LOAD, "vllm"].count == 2
    with database.write() as session:
        session.delete(session.get_one(DurationRow, 2))
    with database.read() as session:
        tally.count(session)
        tally.count(session)
    assert tally.steps[StepName.LOAD, "vllm"].count == 1


def test_a_claim_is_lost_when_somebody_takes_over_what_nobody_gave_back(api: Api) -> None:
    def claimed(owner: str, lease_s: float) -> hosts.Lease:
        with api.database.write() as session:
            lease = hosts.claim(session, "local", owner, lease_s)
        assert lease is not None
        return lease

    first = claimed("a", 60.0)
    with api.database.write() as session:
        hosts.release(session, first)
    claimed("b", -1.0)
    assert value(scrape(api), "claims_lost_total") == 0, "given back, and then run out but not yet taken"
    claimed("c", 60.0)
    assert value(scrape(api), "claims_lost_total") == 1


def test_a_host_just_now(api: Api) -> None:
    with api.database.write() as session:
        workers.beat(session, 1, "box:1", "1.0")
        assert singletons.claim(session, "steward", "box:2", 60.0)
    found = scrape(api)
    assert (value(found, "host_up", host="local"), value(found, "steward_up")) == (1, 1)
    assert 0 <= value(found, "worker_heartbeat_age_seconds", host="local") < 20
    with api.database.write() as session:
        row = session.get_one(HostRow, 1)
        row.config = {"park": ["vllm.service"], "units": "systemd"}
        row.unreachable_since, row.blocked, row.paused = utc_now(), f"{hosts.NOT_RESTORED}: vllm.service", True
        session.add(row)
        lease = hosts.claim(session, "local", "box:1")
        assert lease is not None
        shift = shifts.open_or_resume(session, lease)
        shifts.note(session, lease, shift.id or 0, phase="parked")
    found = scrape(api)
    names = ("host_up", "host_paused", "host_blocked", "host_not_restored", "production_parked")
    assert [value(found, name, host="local") for name in names] == [0, 1, 1, 1, 1]


def test_deliveries_by_how_their_tries_ended(api: Api) -> None:
    with api.database.write() as session:
        session.add(NotifierRow(name="infra", kind="slack", url="https://h", created_by="ann"))
        session.flush()
        for number, status in enumerate(("delivered", "dead", "pending"), 1):
            row = DeliveryRow(notifier_id=1, key=str(number), line="x", type="t", message_id=str(number), status=status)
            session.add(row)
            session.flush()
            session.add(AttemptRow(delivery_id=number, error=None if status == "delivered" else "503"))
    found = scrape(api)
    assert value(found, "deliveries_total", notifier="infra", result="delivered") == 1
    assert value(found, "deliveries_total", notifier="infra", result="failed") == 2
    assert value(found, "undelivered", notifier="infra", status="dead") == 1
    assert value(found, "undelivered", notifier="infra", status="pending") == 1


def test_openmetrics_where_it_is_asked_for(api: Api) -> None:
    api.submit()
    answer = api.ask("GET", "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in read_openmetrics(answer.text)}
    assert families["expctl_claims_lost"].type == "counter"
    for name, family in families.items():
        assert family.documentation.endswith("."), name
        assert name.startswith("expctl_"), name
        assert not name.endswith(("_total", "_count", "_sum", "_bucket", "_ms", "_minutes")), name


def test_the_kind_of_engine_of_what_was_there_before(empty_url: str) -> None:
    database = Database(empty_url)
    migrate.upgrade(database)
    with database.write() as session:
        hosts.register(session, "local", "local", {})
        spec = {"engine": {"kind": "endpoint"}}
        session.add(ExperimentRow(name="x", host_id=1, created_by="a", spec=spec, spec_hash="", engine_hash="", bench_hash=""))
    migrate.downgrade(database, "0005")
    migrate.upgrade(database)
    with database.read() as session:
        assert session.get_one(ExperimentRow, 1).engine_kind == "endpoint"
    database.close()
