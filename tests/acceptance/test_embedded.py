"""The embedded service as a user meets it: real processes, the real command line, a simulated engine."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import select

from service.store.database import Database
from service.store.tables import metadata
from tests.acceptance.service import Service, port_is_free, steps, wait_for

SECRET = "sk-very-secret-4711"


def test_from_two_files_to_a_verdict(service: Service) -> None:
    speculative = {"speculative": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}}
    base = service.submit(service.file("base"))
    ngram = service.submit(service.file("ngram", engine=speculative))
    assert service.cli("wait", str(base), str(ngram), "--timeout", "90s").returncode == 0
    first, second = service.show(base), service.show(ngram)
    assert first["finished_at"] <= second["started_at"]
    assert list(steps(first)) == ["clear", "launch", "load", "warm", "measure", "collect"]
    assert steps(first)["launch"]["evidence"]["argv"][1:3] == ["serve", "/models/kimi"]
    assert "--speculative-config" in steps(second)["launch"]["evidence"]["argv"]
    found = json.loads(service.cli("results", str(ngram), "--json").stdout)
    assert [phase["concurrency"] for phase in found["phases"]] == [1, 4]
    assert found["phases"][0]["speculation"]["status"] == "on"
    assert found["first_request"]["ok"]
    assert found["first_request"]["prompt"] not in {request["prompt"] for request in found["phases"][0]["requests"]}
    comparison = json.loads(service.cli("compare", str(base), str(ngram), "--json").stdout)
    assert comparison["schema"] == "expctl.comparison/1"
    assert comparison["verdict"] == "worse"
    assert service.cli("compare", str(base), str(ngram), "--fail-if", "tps<-3%").returncode == 3
    assert port_is_free(service.engine_port)


def test_plain_expctl_is_the_queue_and_shows_what_there_is(fresh: Service) -> None:
    assert "nothing was submitted" in fresh.cli().stderr
    one = fresh.submit(fresh.file("mine"))
    shown = fresh.cli()
    assert "mine" in shown.stdout
    assert "local" in shown.stdout
    assert fresh.cli("-q").stdout.split() == [str(one)]
    assert json.loads(fresh.cli("queue", "--json", "--fields", "id,name").stdout) == [{"id": one, "name": "mine"}]
    fresh.ended(one)


def test_a_failed_load_names_its_cause_and_the_next_one_runs(service: Service) -> None:
    bad = service.submit(service.file("full", FAULT="oom_at_load"))
    good = service.submit(service.file("good"))
    item = service.ended(bad)
    assert (item["outcome"], item["reason"], item["reason_class"]) == ("failed", "cuda_out_of_memory", "oom")
    assert "out of memory" in item["evidence"].lower()
    assert "CUDA out of memory" in service.cli("logs", str(bad)).stdout
    assert service.cli("wait", str(bad)).returncode == 3
    assert service.ended(good)["outcome"] == "succeeded"
    assert "what to do" in service.cli("show", str(bad)).stdout


def test_a_bad_flag_is_known_at_once(service: Service) -> None:
    one = service.submit(service.file("typo", engine={"args": {"max-modle-len": 5}}))
    item = service.ended(one, 15)
    assert item["reason"] == "bad_arguments"
    assert "max-modle-len" in item["evidence"]


def test_a_load_that_hangs_is_ended_by_the_stall_limit(service: Service) -> None:
    file = service.file("hangs", FAULT="hang_at=45", LOAD_SECONDS="1")
    one = service.submit(file, "--set", "load.stall=2s")
    item = service.ended(one)
    assert item["reason"] == "no_progress"
    assert "weights_loading at" in item["detail"]
    assert port_is_free(service.engine_port)


def test_a_stream_that_broke_makes_the_run_invalid(service: Service) -> None:
    one = service.submit(service.file("broken", FAULT="error_chunk=5@request=4"))
    item = service.ended(one)
    assert (item["outcome"], item["reason"]) == ("invalid", "engine_dead")
    shown = json.loads(service.cli("results", str(one), "--json").stdout)
    assert [phase["summary"]["valid"] for phase in shown["phases"]] == [False, True]


def test_an_engine_that_dies_while_it_is_measured(service: Service) -> None:
    one = service.submit(service.file("dies", FAULT="exit_mid_stream=5@request=4"))
    item = service.ended(one)
    assert (item["outcome"], item["reason"], item["step"]) == ("failed", "engine_dead", "measure")


def test_a_port_that_somebody_else_owns(service: Service) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", service.engine_port))
        other.listen()
        item = service.ended(service.submit(service.file("late")))
    assert (item["reason"], item["step"]) == ("port_in_use", "clear")
    assert f"pid {os.getpid()}" in item["detail"]


@pytest.mark.parametrize(("step", "knobs"), [("load", {"LOAD_SECONDS": "4"}), ("measure", {"LOAD_SECONDS": "0.2"})])
def test_cancel_ends_the_engine(service: Service, step: str, knobs: dict[str, str]) -> None:
    one = service.submit(service.file("long", bench={"max_tokens": 400}, **knobs))
    service.at_step(one, step)
    assert service.cli("cancel", str(one)).returncode == 0
    assert service.show(one)["status"] in {"stopping", "finished"}
    item = service.ended(one, 5)
    assert item["outcome"] == "cancelled"
    assert port_is_free(service.engine_port)


@pytest.mark.parametrize(("step", "knobs"), [("load", {"LOAD_SECONDS": "4"}), ("measure", {"LOAD_SECONDS": "0.2"})])
def test_a_killed_worker_is_followed_by_one_that_adopts(service: Service, step: str, knobs: dict[str, str]) -> None:
    """The lease runs 60 s, so the whole service is killed and started again, as after a crash of the machine's user session."""
    one = service.submit(service.file("adopted", bench={"max_tokens": 60}, **knobs))
    service.at_step(one, step)
    before = wait_for(lambda: steps(service.show(one)).get("launch"))
    pid = wait_for(lambda: steps(service.show(one))["launch"]["evidence"].get("pid"))
    assert service.process is not None
    service.process.kill()
    service.process.wait()
    wait_for(lambda: not service.children())
    assert psutil.pid_exists(pid)
    service.start()
    item = service.ended(one)
    assert item["outcome"] == "succeeded", item["detail"]
    assert steps(item)["launch"]["invocation_id"] == before["invocation_id"] or before["invocation_id"] is None
    assert steps(item)["launch"]["evidence"]["pid"] == pid
    phases = json.loads(service.cli("results", str(one), "--json").stdout)["phases"]
    assert [(phase["concurrency"], len(phase["requests"])) for phase in phases] == [(1, 5), (4, 5)]


def test_ctrl_c_leaves_the_engine_to_the_next_up(service: Service) -> None:
    one = service.submit(service.file("kept", LOAD_SECONDS="5"))
    service.at_step(one, "load")
    pid = steps(service.show(one))["launch"]["evidence"]["pid"]
    assert service.process is not None
    service.process.send_signal(signal.SIGINT)
    assert service.process.wait(20) == 0
    assert psutil.pid_exists(pid)
    service.start()
    item = service.ended(one)
    assert (item["outcome"], steps(item)["launch"]["evidence"]["pid"]) == ("succeeded", pid)


def test_a_child_that_dies_is_started_again(service: Service) -> None:
    pid = service.kill("api")
    wait_for(lambda: service.children().get("api") not in {None, pid})
    wait_for(lambda: service.cli("queue").returncode == 0)


def test_two_services_on_one_folder_are_refused(service: Service) -> None:
    done = service.cli("up", "--data", str(service.data), "--port", "1")
    assert done.returncode == 6
    assert "another `expctl up`" in done.stderr


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["show", "9999"], 5, "9999 does not exist"),
        (["cancel", "9999"], 5, "does not exist"),
        (["compare", "9998", "9999"], 5, "9998 does not exist"),
    ],
)
def test_exit_codes(shared: Service, argv: list[str], code: int, words: str) -> None:
    done = shared.cli(*argv)
    assert done.returncode == code, done.stderr
    assert words in done.stderr


def test_wrong_input_stores_nothing(shared: Service, tmp_path: Path) -> None:
    before = shared.newest()
    file = tmp_path / "wrong.yaml"
    file.write_text("name: x\nengine: {kind: vllm, model: m}\n---\nname: y\nengine: {kind: vllm, modle: m}\n")
    done = shared.cli("submit", str(file))
    assert done.returncode == 2
    assert "line 5: unknown key modle in engine; did you mean model?" in done.stderr
    unknown_host = shared.cli("submit", str(shared.file("x")), "--set", "host=nowhere")
    assert unknown_host.returncode == 2
    assert "known: local" in unknown_host.stderr
    assert shared.newest() == before


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["queue"], 1, "expctl up"),
        (["nonsense"], 2, "no verb nonsense"),
        (["queu"], 2, "did you mean queue?"),
        (["submit"], 2, ""),
        (["submit", "/no/such/file"], 2, "cannot be read"),
        (["--version"], 0, ""),
        (["--help"], 0, ""),
    ],
)
def test_exit_codes_without_a_service(tmp_path: Path, argv: list[str], code: int, words: str) -> None:
    done = Service(tmp_path).cli(*argv)
    assert done.returncode == code, done.stderr
    assert words in done.stderr


@pytest.mark.parametrize("environ", [{"MY_KEY": SECRET}])
def test_an_api_key_is_shown_nowhere(service: Service, tmp_path: Path) -> None:
    """Not even where a server or an engine prints it."""
    script = tmp_path / "engine"
    script.write_text('#!/bin/sh\necho "the key is $VLLM_API_KEY"\nexit 3\n')
    script.chmod(0o755)
    file = service.file("leaky", engine={"executable": str(script), "api_key": "env:MY_KEY"})
    one = service.submit(file)
    item = service.ended(one)
    assert item["outcome"] == "failed"
    assert "the key is ***" in service.cli("logs", str(one)).stdout
    service.stop()
    assert not [path for path in service.data.glob("*.db*") if SECRET.encode() in path.read_bytes()]
    database = Database(service.database_url)
    with database.engine.connect() as connection:
        rows = [str(row) for table in metadata.sorted_tables for row in connection.execute(select(table))]
    database.close()
    assert any("the key is ***" in row for row in rows)
    assert not [row for row in rows if SECRET in row]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:3000"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:8700", "origin": "http://evil.example:8700"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_only_this_machines_own_pages_may_steer(shared: Service, headers: dict[str, str], status: int) -> None:
    assert httpx.get(f"{shared.url}/v1/hosts", headers=headers, trust_env=False).status_code == status


def test_up_refuses_a_port_that_is_taken(shared: Service, tmp_path: Path) -> None:
    done = shared.cli("up", "--data", str(tmp_path / "other"), "--port", str(shared.port))
    assert done.returncode == 6
    assert f"port {shared.port} cannot be used" in done.stderr
