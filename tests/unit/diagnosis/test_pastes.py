"""Pastes of everything that machines print, each with the answer that a person would give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.domain.reasons import RULES, Reason
from tests.unit.diagnosis.conftest import cases, differences
from workers.diagnosis.diagnose import diagnose_paste

TOPICS = ("loading", "failures", "gpus", "hosts", "counters", "versions")
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
