"""Pastes of everything that machines print, each with the answer that a person would give."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from service.domain.reasons import RULES, Reason
from tests.unit.diagnosis.conftest import cases, differences
from workers.diagnosis.diagnose import diagnose_paste

TOPICS = ("loading", "failures", "gpus", "hosts", "counters", "versions", "shapes")
ALL = [pytest.param(case, id=f"{topic}: {case['name']}") for topic in TOPICS for case in cases(topic)]


@pytest.mark.parametrize("case", ALL)
def test_the_answer(case: dict[str, Any]) -> None:
    answer = diagnose_paste(case["input"])
    if set(case["expect"]) == {"A", "B"}:
        assert {letter: differences(case["expect"][letter], answer[letter]) for letter in "AB"} == {"A": {}, "B": {}}
    else:
        assert differences(case["expect"], answer) == {}


@pytest.mark.parametrize("case", ALL)
def test_a_reason_comes_with_what_to_do(case: dict[str, Any]) -> None:
    answer = diagnose_paste(case["input"])
    for one in answer.values() if set(case["expect"]) == {"A", "B"} else [answer]:
        if one.get("reason"):
            rule = RULES[Reason(one["reason"])]
            assert one["evidence"]
            assert one["remedy"]
            assert one["retriable"] is (rule.retry.times > 0)
        if one.get("state") in {"failed", "stalled", "not_ready"}:
            assert one["reason"]


def test_never_loading_nor_failed_by_words_of_nobody() -> None:
    assert diagnose_paste("Dear colleagues,\nplease find the loading plan attached.\n") == {}


WRAPPED: dict[str, Callable[[str], str]] = {
    "fenced": "```text\n{}\n```".format,
    "indented": lambda text: textwrap.indent(text, "    "),
    "quoted": lambda text: textwrap.indent(text, "> ", lambda _: True),
    "compose": lambda text: textwrap.indent(text, "vllm-1  | "),
    "pods": lambda text: textwrap.indent(text, "[pod/llm-0/vllm] 2026-10-22T09:33:40.123456789Z "),
    "runtime": lambda text: textwrap.indent(text, "2026-10-22T09:33:40.123456789+02:00 stderr F "),
    "journal": lambda text: textwrap.indent(text, "2026-10-22T09:33:40+0200 gpu-01 vllm[2101]: "),
    "boot": lambda text: textwrap.indent(text, "[ 4711.123456] gpu-01 vllm[2101]: "),
    "json": lambda text: "".join(json.dumps({"log": f"{line}\n", "stream": "stderr"}) + "\n" for line in text.splitlines() if line),
}
LOGS = [
    pytest.param(case["input"], id=case["name"])
    for case in cases("failures")
    if not re.search(r"^(?:--- |# |\$ |GET |\w+=|\d\d:)|systemd\[|kernel: ", case["input"], re.MULTILINE)
]


@pytest.mark.parametrize("text", LOGS)
def test_what_is_put_around_a_log_changes_nothing(text: str) -> None:
    def told(paste: str) -> dict[str, Any]:
        answer = diagnose_paste(paste)
        return {key: answer.get(key) for key in ("state", "reason", "evidence", "engine", "phase", "done", "total", "component")}

    bare = told(text)
    assert {how: told(wrap(text)) for how, wrap in WRAPPED.items()} == dict.fromkeys(WRAPPED, bare)


@pytest.mark.parametrize(
    "text", ['[{"gpuMemUsage": 71935688704, "iter": 1, "specDecodingStats": {"acceptanceLength": 2.4}}]', '{"version": "0.32.0"}']
)
def test_json_of_others_is_no_table_of_gpus(text: str) -> None:
    assert diagnose_paste(f"{text}\n") == {}


def test_an_empty_answer_has_no_reason() -> None:
    asked = "$ nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits"
    answer = diagnose_paste(f"{asked}\nexit status: 0\nstdout: (empty)\nstderr: (empty)\n")
    assert (answer["gpu_freed"], answer.get("reason")) == (None, None)


def test_a_stop_that_took_too_long_by_its_properties() -> None:
    shown = "ActiveState=failed\nSubState=failed\nResult=timeout\nExecMainCode=2\nExecMainStatus=9\n"
    assert diagnose_paste(shown)["reason"] == Reason.SYSTEMD_START_TIMEOUT
    stopped = diagnose_paste(f"Type=exec\n{shown}")
    assert (stopped["state"], stopped["reason"]) == ("stopped", None)
    assert stopped["warnings"][0].startswith("stop_timed_out")
    stopping = diagnose_paste("ActiveState=deactivating\nSubState=stop-sigkill\nResult=timeout\n")
    assert (stopping["state"], stopping["reason"]) == ("not_ready", None)


def test_a_paste_of_windows() -> None:
    text = "$ systemctl is-active vllm.service\r\nexit status: 3\r\nstdout:\r\ninactive\r\nstderr: (empty)\r\n"
    assert diagnose_paste(text)["unit_state"] == "inactive"


def test_a_host_that_is_asked_twice_is_told_by_the_last_answer() -> None:
    text = """\
--- --query-gpu=index,memory.used --format=csv,noheader,nounits
0, 76510
--- after 30 s: --query-gpu=index,memory.used --format=csv,noheader,nounits
0, 4
"""
    assert diagnose_paste(text)["gpu_freed"] is True


def test_a_process_that_runs_what_the_unit_does_not_say() -> None:
    unit = "[Service]\nExecStart=/opt/llm/venv/bin/vllm serve org/m --max-model-len 32768\n"
    shown = "--- /proc/2001/cmdline (NUL as blank): /opt/llm/venv/bin/python3 /opt/llm/venv/bin/vllm serve org/m --max-model-len "
    assert diagnose_paste(f"{unit}{shown}32768\n")["reason"] is None
    stale = diagnose_paste(f"{unit}{shown}131072\n")
    assert stale["reason"] == Reason.STALE_UNIT_DEFINITION
    assert stale["facts"]["missing_arguments"] == ["32768"]
    title = diagnose_paste(f"{unit}--- /proc/2001/cmdline: VLLM::APIServer\n")
    assert title["reason"] is None


def test_secrets_are_not_told() -> None:
    unit = "[Service]\nExecStart=/opt/vllm serve m --api-key hunter2-hunter2 --hf-token=hf_abcdefghijklmnop --port 8001\n"
    where = "OSError: https://me:hunter2-hunter2@hub/m does not appear to have a file named config.json"
    log = f"(APIServer pid=1) ERROR 11-30 03:36:34 [x.py:1] {where}\n"
    told = json.dumps([diagnose_paste(unit), diagnose_paste(log)])
    assert "hunter2" not in told
    assert "abcdefghij" not in told
    assert '"8001"' in told
