"""What nvidia-smi may answer, and what it means. The tool is a script here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workers.hosts.gpus import NvidiaSmi

TWO = "0, GPU-aa, NVIDIA RTX PRO 6000, 1234, 97887, 580.95\n1, GPU-bb, NVIDIA RTX PRO 6000, [N/A], 97887, 580.95\n"


@pytest.fixture
def tool(tmp_path: Path) -> Callable[..., NvidiaSmi]:
    def make(gpus: str = TWO, holders: str = "", status: int = 0, extra: str = "") -> NvidiaSmi:
        path = tmp_path / "nvidia-smi"
        (tmp_path / "gpus").write_text(gpus)
        (tmp_path / "holders").write_text(holders)
        path.write_text(
            f'#!/bin/sh\n{extra}\ncase "$1" in *compute-apps*) cat {tmp_path}/holders;; *) cat {tmp_path}/gpus;; esac\nexit {status}\n'
        )
        path.chmod(0o755)
        return NvidiaSmi(str(path), timeout_s=5.0, devices=tmp_path)

    return make


def test_memory_and_holders(tool: Callable[..., NvidiaSmi]) -> None:
    holders = f"GPU-aa, {os.getpid()}, /opt/vllm/bin/python, 1200\nGPU-bb, 999999999, [Not Found], [N/A]\n"
    reading = tool(holders=holders).read()
    assert reading.known
    assert not reading.no_gpus
    assert reading.driver == "580.95"
    assert [(gpu.index, gpu.used_mib, gpu.total_mib) for gpu in reading.gpus] == [(0, 1234, 97887), (1, None, 97887)]
    ours, gone = reading.holders
    assert (ours.gpu_uuid, ours.used_mib, ours.name) == ("GPU-aa", 1200, "/opt/vllm/bin/python")
    assert ours.owner is not None
    assert (gone.used_mib, gone.name, gone.owner) == (None, None, None)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n", "driver_library_mismatch"),
        ("Unable to determine the device handle for GPU0000:41:00.0: Unknown Error\n", "gpu_lost"),
        ("No devices were found\n", "No devices were found"),
        ("", "it said nothing"),
    ],
)
def test_a_failure_is_not_known_and_says_why(tool: Callable[..., NvidiaSmi], answer: Any, why: str) -> None:
    reading = tool(gpus=answer, status=18).read()
    assert not reading.known
    assert not reading.no_gpus
    assert why in reading.why


@pytest.mark.parametrize(
    "gpus",
    [
        "No devices were found\n",
        "",
        "0, GPU-aa, X, ERR!, 97887, 580\n",
        "0, GPU-aa, X, [GPU is lost], 97887, 580\n",
        "0, GPU-aa, X, lots, 1, 580\n",
        "zero, GPU-aa, X, 1, 1, 580\n",
    ],
)
def test_an_answer_with_status_0_that_is_none(tool: Callable[..., NvidiaSmi], gpus: str) -> None:
    assert not tool(gpus=gpus).read().known


@pytest.mark.parametrize("holders", ["GPU-aa, [N/A], python, 12\n", "garbage\n"])
def test_holders_that_cannot_be_read(tool: Callable[..., NvidiaSmi], holders: str) -> None:
    assert not tool(holders=holders).read().known


def test_a_tool_that_hangs(tool: Callable[..., NvidiaSmi]) -> None:
    smi = tool(extra="exec sleep 60")
    smi.timeout_s = 0.2
    assert "did not answer" in smi.read().why


def test_no_tool_and_no_device(tmp_path: Path) -> None:
    reading = NvidiaSmi("no-such-tool", devices=tmp_path).read()
    assert (reading.known, reading.no_gpus) == (True, True)


@pytest.mark.parametrize("node", ["nvidia0", "nvidiactl", "kfd"])
def test_no_tool_but_a_device(tmp_path: Path, node: str) -> None:
    (tmp_path / node).touch()
    reading = NvidiaSmi("no-such-tool", devices=tmp_path).read()
    assert (reading.known, reading.no_gpus) == (False, False)
    assert node in reading.why


def test_state_is_best_effort(tool: Callable[..., NvidiaSmi]) -> None:
    assert tool(gpus="GPU-aa, 2400, 1200, 600.00, 80.1, 41, 0x0\n").state()[0]["temperature.gpu"] == "41"
    assert tool(status=1).state() == []
