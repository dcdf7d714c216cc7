"""Commands instead of servers, as a user meets them: real processes, the real command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.service import Service, wait_for

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.05; done\n"


def submit(service: Service, **engine: Any) -> int:
    path = service.folder / "command.yaml"
    path.write_text(json.dumps({"name": "job", "engine": {"kind": "command"} | engine}))
    return service.submit(path)


def launched(service: Service, one: int) -> dict[str, Any]:
    """The evidence of the launch, once there is a pid."""

    def look() -> dict[str, Any] | None:
        steps = {step["name"]: step for step in service.show(one)["steps"]}
        evidence: dict[str, Any] = steps.get("launch", {}).get("evidence", {})
        return evidence if evidence.get("pid") else None

    return wait_for(look)


def crash(service: Service) -> None:
    """Kill the whole service, as a crash of the user's session would."""
    assert service.process is not None
    service.process.kill()
    service.process.wait()
    wait_for(lambda: not service.children())


def test_the_example(service: Service) -> None:
    one = service.submit(EXAMPLES / "train.yaml")
    item = service.ended(one)
    assert item["outcome"] == "succeeded", item["detail"]
    assert [step["name"] for step in item["steps"]] == ["clear", "launch", "measure", "collect"]
    assert item["progress"] == {"percent": 100, "done": 2000, "total": 2000, "text": "step 2000/2000"}
    assert "step 2000/2000 loss" in service.cli("logs", str(one)).stdout
    [file] = item["facts"]["artifacts"]
    assert file["path"] == "out/model.json"
    kept = service.data / "artifacts" / str(one) / "out" / "model.json"
    assert json.loads(kept.read_text())["slope"] > 2
    shown = service.cli("results", str(one)).stdout
    assert "exit status 0" in shown
    assert "out/model.json" in shown
    other = service.cli("compare", str(one), str(one))
    assert other.returncode == 6
    assert "nothing was measured" in other.stderr


def test_progress_is_seen_while_it_runs(service: Service) -> None:
    one = submit(service, run=f"echo epoch 3 of 4\n{WAIT_FOR_GO}", progress=r"epoch (?P<done>\d+) of (?P<total>\d+)")
    wait_for(lambda: service.show(one)["progress"].get("percent") == 75)
    assert service.show(one)["where_text"] == "75 %, 3 of 4: epoch 3 of 4"
    assert "epoch 3 of 4" in service.cli("logs", str(one)).stdout
    assert service.cli("results", str(one)).returncode == 6
    (Path(launched(service, one)["cwd"]) / "go").touch()
    assert service.ended(one)["outcome"] == "succeeded"


def test_a_failure_shows_its_last_words_and_keeps_its_files(service: Service) -> None:
    script = 'echo half > part.bin\necho "no more luck" >&2\nexit 3\n'
    one = submit(service, run=script, artifacts=["*.bin", "*.pt"])
    item = service.ended(one)
    assert (item["outcome"], item["reason"], item["detail"]) == ("failed", "command_failed", "the command ended with exit status 3")
    assert item["status_text"] == "Failed: the command did not end with exit status 0"
    assert "no more luck" in item["evidence"]
    assert (service.data / "artifacts" / str(one) / "part.bin").read_text() == "half\n"
    shown = service.cli("results", str(one)).stdout
    assert "exit status 3" in shown
    assert "warning: *.pt matches no file" in shown
    assert service.cli("wait", str(one)).returncode == 3


def test_how_commands_fail(service: Service) -> None:
    gone = service.folder / "gone"
    gone.mkdir()
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"run": ["/no/such/program"]}, "exec_failed", "/no/such/program: No such file"),
        ({"run": ["true"], "cwd": "/no/such/folder"}, "exec_failed", "engine.cwd cannot be entered: /no/such/folder"),
        ({"run": ["true"], "user": "somebody-else"}, "permission_denied", "somebody-else"),
        ({"run": "kill -SEGV $$"}, "command_failed", "signal 11"),
        ({"run": "echo $NO_SUCH_VARIABLE"}, "command_failed", "exit status"),
        ({"run": "false\necho went on"}, "command_failed", "exit status 1"),
        ({"run": "sleep 60", "timeout": "1s"}, "command_timeout", "ended after 1 s"),
        ({"run": f"cd /\nrmdir {gone}", "cwd": str(gone), "artifacts": ["*"]}, "remote_command_failed", f"the folder {gone} is not there"),
    ]
    ids = [submit(service, **engine) for engine, _, _ in cases]
    for one, (_, reason, words) in zip(ids, cases, strict=True):
        item = service.ended(one)
        assert item["reason"] == reason, item
        assert words in item["detail"]


def test_cancel_ends_every_process_of_it(service: Service) -> None:
    one = submit(service, run="sleep 300 & setsid sleep 300 & echo $! > child\nwait\n")
    cwd = Path(launched(service, one)["cwd"])
    child = int(wait_for(lambda: (cwd / "child").read_text() if (cwd / "child").exists() else ""))
    main = launched(service, one)["pid"]
    assert service.cli("cancel", str(one)).returncode == 0
    assert service.ended(one, 10)["outcome"] == "cancelled"
    assert not [pid for pid in (main, child) if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(("exit_status", "outcome"), [(0, "succeeded"), (5, "failed")])
def test_a_job_that_ended_while_no_worker_was_there(service: Service, exit_status: int, outcome: str) -> None:
    one = submit(service, run=f"echo once >> runs\n{WAIT_FOR_GO}echo the end\nexit {exit_status}", artifacts=["runs"])
    before = launched(service, one)
    crash(service)
    assert psutil.pid_exists(before["pid"])
    (Path(before["cwd"]) / "go").touch()
    wait_for(lambda: not psutil.pid_exists(before["pid"]))
    service.start()
    item = service.ended(one)
    assert item["outcome"] == outcome, item["detail"]
    assert item["facts"]["command"]["exit_status"] == exit_status
    assert "the end" in service.cli("logs", str(one)).stdout
    assert (service.data / "artifacts" / str(one) / "runs").read_text() == "once\n"


def test_a_job_that_still_runs_is_adopted(service: Service) -> None:
    one = submit(service, run=f"echo once >> runs\n{WAIT_FOR_GO}cat runs")
    before = launched(service, one)
    crash(service)
    service.start()
    wait_for(lambda: service.show(one)["step"] == "measure")
    (Path(before["cwd"]) / "go").touch()
    item = service.ended(one)
    assert item["outcome"] == "succeeded"
    assert launched(service, one)["pid"] == before["pid"]
    assert service.cli("logs", str(one)).stdout == "once\n"


def test_what_may_not_be_written(service: Service) -> None:
    file = service.folder / "wrong.yaml"
    file.write_text("name: x\nengine: {kind: command, run: 'true'}\nbench: {repeat: 1}\n")
    done = service.cli("submit", str(file))
    assert done.returncode == 2
    assert "line 3: bench: a command serves nothing" in done.stderr
