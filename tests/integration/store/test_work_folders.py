"""When the folder that a command worked in may go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import Session

from service.domain.spec import Spec
from service.store import hosts, retention, submission
from service.store.database import Database
from service.store.tables import ExperimentRow, utc_now

FETCHED: dict[str, Any] = {"artifacts": [{"path": "out/w", "size": 1, "sha256": "0"}], "artifact_warnings": []}


def command(session: Session, *, facts: dict[str, Any] | None = None, outcome: str = "succeeded", **engine: Any) -> ExperimentRow:
    """One that has ended two days ago and printed nothing."""
    hosts.register(session, "local", "local", {})
    row = submission.submit(session, Spec.model_validate({"name": "train", "engine": {"kind": "command", "run": ["x"], **engine}}), "me")
    row.status, row.outcome, row.facts = "finished", outcome, facts or {}
    row.reason = None if outcome == "succeeded" else "command_failed"
    row.started_at = row.finished_at = utc_now() - timedelta(days=2)
    session.add(row)
    session.flush()
    return row


def over(session: Session, row: ExperimentRow) -> bool:
    return retention.work_is_over(session, row.host_id, [row.id or 0]) == {row.id: "train"}


@pytest.mark.parametrize(
    ("how", "gone"),
    [
        ({"facts": FETCHED}, True),
        ({"facts": FETCHED | {"artifact_warnings": ["w is left out: Permission denied"]}}, False),
        ({"facts": FETCHED | {"artifacts": []}}, False),
        ({}, False),
        ({"facts": FETCHED, "outcome": "failed"}, False),
        ({"facts": FETCHED, "cwd": "/srv/train"}, False),
    ],
)
def test_a_folder_goes_once_its_files_were_fetched_whole(database: Database, how: dict[str, Any], gone: bool) -> None:
    with database.write() as session:
        assert over(session, command(session, **how)) is gone


def test_not_before_it_has_ended_and_not_another_host_s(database: Database) -> None:
    with database.write() as session:
        row = command(session, facts=FETCHED)
        assert retention.work_is_over(session, row.host_id + 1, [row.id or 0]) == {}
        row.status, row.outcome, row.finished_at = "queued", None, None
        session.add(row)
        session.flush()
        assert not over(session, row)


@pytest.mark.parametrize(
    ("path", "needed"), [("/var/lib/expctl-work/expctl-1-train/out", True), ("/var/lib/expctl-work/expctl-12/out", False)]
)
def test_what_an_experiment_to_come_names_is_kept_for_it(database: Database, path: str, needed: bool) -> None:
    with database.write() as session:
        row = command(session, facts=FETCHED)
        assert row.id == 1
        later = submission.submit(session, Spec.model_validate({"name": "x", "engine": {"kind": "vllm", "model": path}}), "me")
        assert over(session, row) is not needed
        later.status, later.outcome, later.finished_at = "finished", "succeeded", utc_now()
        session.add(later)
        session.flush()
        assert over(session, row)


def test_pruning_takes_the_folder_of_any_old_command_and_says_so_once(database: Database) -> None:
    with database.write() as session:
        failed, elsewhere = command(session, outcome="failed"), command(session, cwd="/srv/train")
        going = retention.plan(session, older_than=timedelta(days=1), max_bytes=None)
        assert [(one.experiment_id, one.bytes) for one in going] == [(failed.id, 0)]
        retention.prune(session, going, "me")
        assert over(session, failed)
        assert not over(session, elsewhere)
        assert retention.plan(session, older_than=timedelta(days=1), max_bytes=None) == []
