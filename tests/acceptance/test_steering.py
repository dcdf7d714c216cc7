"""What people do to a queue, through the real command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.service import QUICK_BENCH, Service, wait_for


def paused(service: Service) -> None:
    assert service.cli("pause").returncode == 0


def queue(service: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(service.cli("queue", "--json").stdout)
    return found


def document(service: Service, name: str, **more: Any) -> dict[str, Any]:
    engine = {"kind": "vllm", "model": "m", "served_model_name": "kimi", "executable": str(service.engine())}
    return {"name": name, "engine": engine, "bench": QUICK_BENCH, **more}


def started_order(service: Service, *ids: int) -> list[int]:
    items = [service.ended(one) for one in ids]
    return [item["id"] for item in sorted(items, key=lambda item: str(item["started_at"]))]


def test_hold_release_move_and_priority_decide_the_order(service: Service) -> None:
    paused(service)
    a, b, c, d = (service.submit(service.file(name, bench={"concurrency": [1], "max_tokens": 4})) for name in "abcd")
    assert service.cli("hold", str(a), "-m", "after lunch").returncode == 0
    assert "after lunch" in service.cli("queue").stdout
    assert service.cli("move", str(d), "--first").returncode == 0
    assert service.cli("move", str(b), "--last").returncode == 0
    assert service.cli("move", str(c), "--before", str(b)).returncode == 0
    assert "is paused" in service.cli("queue").stdout
    service.cli("resume")
    assert started_order(service, d, c, b) == [d, c, b]
    assert service.show(a)["status"] == "held"
    service.cli("release", str(a))
    assert service.ended(a)["outcome"] == "succeeded"
    assert service.cli("hold", str(a)).returncode == 6
    assert service.cli("move", str(a), "--first").returncode == 6


def test_after_waits_for_success_and_fails_with_its_failure(service: Service, tmp_path: Path) -> None:
    paused(service)
    bad = document(service, "bad")
    bad["engine"] = bad["engine"] | {"args": {"no-such-flag-x": True}}
    docs = [bad, document(service, "child", after=["bad"]), document(service, "grandchild", after=["child"]), document(service, "free")]
    file = tmp_path / "group.yaml"
    file.write_text("\n---\n".join(json.dumps(one) for one in docs))
    made = json.loads(service.cli("submit", str(file), "--json").stdout)
    ids = [one["id"] for one in made]
    assert len({one["group_id"] for one in made}) == 1
    assert made[1]["after"] == [ids[0]]
    service.cli("resume")
    ends = [service.ended(one) for one in ids]
    assert [(item["outcome"], item["reason"]) for item in ends] == [
        ("failed", "bad_arguments"),
        ("failed", "dependency_failed"),
        ("failed", "dependency_failed"),
        ("succeeded", None),
    ]
    assert ends[1]["started_at"] is None


def test_not_before_keeps_it_waiting(service: Service) -> None:
    one = service.submit(service.file("later"), "--set", "not_before=2099-01-01T22:00")
    other = service.submit(service.file("now", bench={"concurrency": [1], "max_tokens": 4}))
    assert service.ended(other)["outcome"] == "succeeded"
    item = service.show(one)
    assert item["status"] == "queued"
    assert "not before 01 Jan" in item["where_text"]
    service.cli("cancel", str(one))
    assert service.show(one)["outcome"] == "cancelled"


def test_retry_is_a_new_experiment_that_remembers(service: Service) -> None:
    one = service.submit(service.file("x"), "--set", "engine.args.no-such-flag-x=true")
    assert service.ended(one)["outcome"] == "failed"
    again = int(service.cli("retry", str(one)).stdout)
    assert service.show(again)["retry_of"] == one
    assert service.ended(again)["outcome"] == "failed"


def test_a_sweep_is_a_group_with_names_of_its_own(shared: Service) -> None:
    file = shared.file("s", engine={"speculative": {"method": "ngram", "num_speculative_tokens": 1}})
    made = json.loads(
        shared.cli(
            "submit", str(file), "--sweep", "engine.speculative.num_speculative_tokens=3,5", "--sweep", "bench.repeat=1,2", "--json"
        ).stdout
    )
    assert [one["name"] for one in made] == [
        "s num_speculative_tokens=3 repeat=1",
        "s num_speculative_tokens=3 repeat=2",
        "s num_speculative_tokens=5 repeat=1",
        "s num_speculative_tokens=5 repeat=2",
    ]
    assert [one["spec"]["engine"]["speculative"]["num_speculative_tokens"] for one in made] == [3, 3, 5, 5]
    assert len({one["group_id"] for one in made}) == 1


def test_what_was_measured_already_is_offered(service: Service) -> None:
    file = service.file("x", bench={"concurrency": [1], "max_tokens": 4})
    one = service.submit(file)
    service.ended(one)
    again = service.cli("submit", str(file))
    assert again.stdout.split() == [str(one)]
    assert "measured already; --again runs it again" in again.stderr
    assert service.submit(file, "--again") != one


def test_a_baseline_is_pinned_and_forgotten(service: Service) -> None:
    one = service.submit(service.file("x", bench={"concurrency": [1], "max_tokens": 4}))
    assert service.cli("baseline", "set", str(one)).returncode == 6
    service.ended(one)
    assert service.cli("baseline", "set", str(one)).returncode == 0
    assert service.cli("baseline", "show").stdout.strip() == f"{one}  x  (kimi on local)"
    assert service.cli("baseline", "unset", str(one)).returncode == 0
    assert service.cli("baseline", "unset", str(one)).returncode == 5


def test_the_same_key_queues_once(shared: Service) -> None:
    file = shared.file("key")
    first = shared.cli("submit", str(file), "--idempotency-key", "k1").stdout
    assert shared.cli("submit", str(file), "--idempotency-key", "k1").stdout == first
    other = shared.cli("submit", str(file), "--set", "name=other", "--idempotency-key", "k1")
    assert other.returncode == 2
    assert "another request" in other.stderr
    assert [item["name"] for item in queue(shared)].count("key") == 1


def test_a_dry_run_says_the_command_and_queues_nothing(shared: Service) -> None:
    before = shared.newest()
    done = shared.cli("submit", str(shared.file("x")), "--dry-run")
    assert done.returncode == 0
    assert f"serve /models/kimi --served-model-name kimi --port {shared.engine_port}" in done.stdout
    assert shared.newest() == before


def test_events_are_streamed_and_resumed(service: Service) -> None:
    one = service.submit(service.file("x", bench={"concurrency": [1], "max_tokens": 4}))
    shown = service.cli("watch", str(one)).stdout
    assert "x: Succeeded" in shown
    assert "Measuring" in shown
    log = service.cli("logs", str(one), "-f").stdout
    assert "Application startup complete" in log


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nengine: {kind: vllm, model: m}\nafter: [nobody]\n", "nobody does not exist"),
        ("name: x\nengine: {kind: vllm, model: m}\nafter: [x]\n", "circle"),
        ("name: a\nengine: {kind: vllm, model: m}\nafter: [b]\n---\nname: b\nengine: {kind: vllm, model: m}\nafter: [a]\n", "circle"),
        ("name: x\nengine: {kind: vllm, model: m}\nsweep: {engine.args.a: 3}\n", "line 3"),
        ("name: x\nengine: {kind: vllm, model: m}\nsweep: {engine.modle: [a, b]}\n", "unknown key modle"),
        ("name: x\nengine: {kind: vllm, model: m}\nsweep: {bench.repeat: [a]}\n", "bench.repeat"),
        ("name: x\nengine: {kind: vllm, model: m}\nnot_before: 25:00\n", "not_before"),
        ("name: x\nengine: {kind: vllm, model: m}\nbaseline: 77\n", "77 does not exist"),
        ("a: [1\n", "not YAML"),
        ("\x00\x01", "not YAML"),
        ("# " + "x" * 5_000_000, "too large"),
    ],
)
def test_wrong_input_is_refused_whole(shared: Service, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    before = shared.newest()
    done = shared.cli("submit", str(file))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert shared.newest() == before


def test_doctor_and_schema(shared: Service) -> None:
    done = shared.cli("doctor", "--json")
    assert done.returncode == 0, done.stdout
    looked_at = {one["what"] for one in json.loads(done.stdout)}
    assert looked_at >= {"Python", "data folder", "database", "service", "GPU tool"}
    # Where the database is a server, the service does not tell the folder that it has besides.
    assert ("disk" in looked_at) == ("EXPCTL_DATABASE_URL" not in shared.environ)
    schema = json.loads(shared.cli("schema").stdout)
    assert schema["required"] == ["name", "engine"]
    assert "sweep" in schema["properties"]


def test_a_cancelled_dependency_ends_what_waits_for_it(shared: Service) -> None:
    one = shared.submit(shared.file("first"))
    two = shared.submit(shared.file("second"), "--set", f"after=[{one}]")
    shared.cli("cancel", str(one))
    assert wait_for(lambda: shared.show(two))["reason"] == "dependency_failed"


def test_prune_shows_first_and_then_removes_the_bulk(fresh: Service) -> None:
    one = fresh.submit(fresh.file("x", bench={"concurrency": [1], "max_tokens": 4}))
    fresh.ended(one)
    assert fresh.cli("prune").returncode == 2
    shown = json.loads(fresh.cli("prune", "--older-than", "0s", "--json").stdout)
    assert [item["experiment_id"] for item in shown] == [one]
    assert shown[0]["bytes"] > 1000
    assert fresh.cli("logs", str(one)).stdout
    assert json.loads(fresh.cli("prune", "--max-size", "1", "--yes", "--json").stdout) == shown
    assert fresh.cli("logs", str(one)).stdout == ""
    kept = json.loads(fresh.cli("results", str(one), "--json").stdout)
    assert kept["phases"][0]["summary"]["output_tps"] > 0
    assert json.loads(fresh.cli("prune", "--older-than", "0s", "--json").stdout) == []


def test_swept_values_that_python_takes_for_equal_stay_apart(shared: Service) -> None:
    made = json.loads(shared.cli("submit", str(shared.file("s")), "--sweep", "engine.env.A=1,1.0,true", "--json").stdout)
    assert [one["spec"]["engine"]["env"]["A"] for one in made] == ["1", "1.0", "true"]
