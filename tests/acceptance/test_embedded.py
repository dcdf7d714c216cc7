"""The embedded service as a user meets it: real processes, the real command line, a simulated engine."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import select

from service.store.database import Database
from service.store.tables import metadata
from tests.acceptance.service import Service, port_is_free, steps, wait_for

SECRET = "sk-very-secret-4711"
OF_HUB = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
WRITTEN, PRINTED, OF_PROXY = "written-in-the-file", "printed-by-the-engine", "of-the-proxy-0815"
PLANTED = (SECRET, OF_HUB, WRITTEN, PRINTED, OF_PROXY)
LEAKS = (
    f"non-default args: {{'api_key': ['{PRINTED}'], 'model': 'm'}}",
    f"vllm serve m --api-key {PRINTED} --admin-api-key={PRINTED}",
    f"Environment=HF_TOKEN={OF_HUB} OTHER_API_KEY={PRINTED}",
    f"> Authorization: Bearer {PRINTED}",
    f"https://ann:{OF_PROXY}@proxy.example:3128/",
)
LEAKY_END = """echo "the key is $VLLM_API_KEY, the token is $HF_TOKEN, the password is $PROXY_PASSWORD"
echo "OSError: Cannot access gated repo for url https://ann:$PROXY_PASSWORD@hub/m (token $HF_TOKEN, key $VLLM_API_KEY)"
exit 3
"""


def test_from_two_files_to_a_verdict(service: Service) -> None:
    speculative = {"speculative": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}}
    files = service.file("base"), service.file("ngram", engine=speculative)
    base, ngram = (service.submit(file) for file in files)
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
    service.client.pin(base, pinned=True)
    assert "worse, " in service.cli().stdout
    assert f"### {ngram} ngram against {base}" in service.cli("report").stdout
    service.client.pin(base, pinned=False)
    assert port_is_free(service.engine_port)
    # The same by a program: what was measured already is not measured again.
    script = Path(__file__).parents[2] / "examples" / "compare_two.py"
    argv = [sys.executable, str(script), *map(str, files), "--server", service.url]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=service.environment(), cwd=script.parents[1])
    assert (done.returncode, done.stdout.partition(",")[0]) == (3, "ngram against base: worse"), done.stderr
    assert service.newest()[0]["id"] == ngram, "nothing was queued"


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


@pytest.mark.parametrize("environ", [{"MY_KEY": SECRET, "MY_TOKEN": OF_HUB}])
def test_secrets_are_shown_nowhere(service: Service, tmp_path: Path) -> None:
    """Not where a server or an engine prints them, not in its command line, and not in what somebody wrote into the file."""
    script = tmp_path / "engine"
    script.write_text("#!/bin/sh\n" + "".join(f"echo {shlex.quote(line)}\n" for line in LEAKS) + LEAKY_END)
    script.chmod(0o755)
    engine = {
        "executable": str(script), "model": "org/kimi", "api_key": "env:MY_KEY",
        "args": {"hf-token": WRITTEN, "max-num-batched-tokens": 8192},
        "env": {"HF_TOKEN": "env:MY_TOKEN", "PROXY_PASSWORD": WRITTEN},
    }  # fmt: skip
    one = service.submit(service.file("leaky", engine=engine))
    item = service.ended(one)
    assert (item["outcome"], item["reason"]) == ("failed", "model_not_found"), item["detail"]
    assert item["step"] == "load", item["detail"]
    logs = service.cli("logs", str(one)).stdout
    assert "the key is ***" in logs
    assert "***" in item["evidence"]
    shown = item["spec"]["engine"]
    assert (shown["args"]["hf-token"], shown["args"]["max-num-batched-tokens"]) == ("***", 8192)
    assert (shown["env"]["PROXY_PASSWORD"], shown["env"]["HF_TOKEN"], shown["api_key"]) == ("***", "env:MY_TOKEN", "env:MY_KEY")
    routes = ("", "/events", "/logs", "/results")
    told = [service.api(f"/v1/experiments/{one}{route}") for route in routes]
    told += [logs, service.cli("show", str(one)).stdout, (listed := service.cli("queue", "--json", "-n", "500").stdout)]
    told += [path.read_text() for path in service.folder.glob("up-*.log")]
    assert json.loads(listed)
    assert not [(secret, text[:200]) for text in told for secret in PLANTED if secret in text]
    service.stop()
    # An engine writes its own log, which is its user's alone, as the journal of a host is its admin's.
    kept = [path for path in service.data.rglob("*") if path.is_file() and path.parent.parent.name != "units"]
    assert len(kept) > 1
    known = [secret for secret in PLANTED if secret != WRITTEN]
    assert not [(path, secret) for path in kept for secret in known if secret.encode() in path.read_bytes()]
    assert {path.stat().st_mode & 0o077 for path in (service.data / "units").iterdir()} == {0}
    database = Database(service.database_url)
    with database.engine.connect() as connection:
        tables = {table.name: [dict(row._mapping) for row in connection.execute(select(table))] for table in metadata.sorted_tables}
    database.close()
    rows = [{**row, "spec": None} if name == "experiments" else row for name, found in tables.items() for row in found]
    assert any("the key is ***" in str(row) for row in rows)
    assert not [(secret, row) for row in rows for secret in PLANTED if secret in str(row)]
    specs = str([row["spec"] for row in tables["experiments"]])
    assert not [secret for secret in known if secret in specs], "what is only referred to is not in the file itself either"


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


@pytest.mark.costly
def test_sglang_from_its_load_to_its_figures(service: Service) -> None:
    """The simulated engine speaks as SGLang: its command line, its log, its routes, its counters."""
    program = service.engine().with_name("sglang")
    engine = {
        "kind": "sglang", "executable": str(program), "args": {"mem-fraction-static": 0.9},
        "speculative": {"method": "ngram", "num_speculative_tokens": 5},
    }  # fmt: skip
    item = service.ended(service.submit(service.file("sglang", engine=engine)))
    assert item["outcome"] == "succeeded", item["detail"]
    assert (item["facts"]["engine"], item["facts"]["engine_version"]) == ("sglang", "0.5.6")
    assert item["facts"]["load"]["kv_cache_tokens"] > 0
    argv = steps(item)["launch"]["evidence"]["argv"]
    assert argv[argv.index("--speculative-algorithm") + 1] == "NGRAM"
    found = json.loads(service.api(f"/v1/experiments/{item['id']}/results"))
    for phase in found["phases"]:
        assert phase["summary"]["valid"]
        assert (phase["speculation"]["status"], phase["speculation"]["source"]) == ("on", "gauge")
        assert phase["speculation"]["mean_acceptance_length"] > 1


def test_sglang_says_why_it_does_not_load(service: Service) -> None:
    program = service.engine(FAULT="kv_cache_too_small").with_name("sglang")
    item = service.ended(service.submit(service.file("small", engine={"kind": "sglang", "executable": str(program)})))
    assert (item["outcome"], item["reason"], item["step"]) == ("failed", "kv_cache_too_small", "load")
    assert item["evidence"] == "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
