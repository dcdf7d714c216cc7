"""What AMD's tools may print, and what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.hosts.gpu_tool import NoDevices, ToolFailed
from workers.hosts.rocm import parse_amd, parse_rocm

CSV = (
    "device,Unique ID,VRAM Total Memory (B),VRAM Total Used Memory (B),Card Series,GFX Version\n"
    "card0,0xb0a1,17163091968,692142080,Navi 21 [Radeon RX 6800/6800 XT / 6900 XT],gfx1030\n"
    "card1,N/A,67108864,26079232,Raphael,gfx1036\n"
)
CARD = {"VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "24856756224", "Card series": "MI300X", "Unique ID": "0x1"}
JSON: dict[str, Any] = {
    "card0": CARD,
    "card1": {**CARD, "Unique ID": "0x2"},
    "system": {"Driver version": "6.10.5", "PID2683309": "python3.11, 1, 24556904448, 0, 0", "PID29324": "gpuagent, 0, 0, 0, 0"},
}


@pytest.mark.parametrize("swapped", [False, True])
def test_csv_goes_by_the_names_of_its_columns(*, swapped: bool) -> None:
    text = CSV
    if swapped:
        lines = [line.split(",") for line in CSV.splitlines()]
        text = "\n".join(",".join([a, b, d, c, *rest]) for a, b, c, d, *rest in lines)
    found = parse_rocm(text)
    assert [(gpu.index, gpu.uuid, gpu.total_mib, gpu.used_mib) for gpu in found.gpus] == [(0, "0xb0a1", 16368, 660), (1, "card1", 64, 25)]
    assert found.gpus[0].name.startswith("Navi 21")


def test_json_with_processes() -> None:
    found = parse_rocm(json.dumps(JSON))
    assert found.driver == "6.10.5"
    assert [(gpu.uuid, gpu.name, gpu.used_mib) for gpu in found.gpus] == [("0x1", "MI300X", 23705), ("0x2", "MI300X", 23705)]
    (one,) = found.holders  # the monitor has the driver open, and nothing more
    assert (one.pid, one.name, one.used_mib, one.gpu_uuid) == (2683309, "python3.11", 23419, "")


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        ("a, b, 1, 1048576, 0, 0", ("a, b", 1)),
        ("UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN", (None, None)),
        ("python3, 1, 0, 0, 0", ("python3", 0)),
        ("python3, 1, 4096, 0, 0", ("python3", 1)),
    ],
)
def test_odd_processes(entry: str, shown: tuple[str | None, int | None]) -> None:
    (one,) = parse_rocm(json.dumps({"card0": CARD, "system": {"PID7": entry}})).holders
    assert (one.name, one.used_mib) == shown


def test_what_a_card_does_not_say_is_not_known() -> None:
    (gpu,) = parse_rocm(json.dumps({"card0": {"VRAM Total Memory (B)": "N/A"}})).gpus
    assert (gpu.used_mib, gpu.total_mib) == (None, None)


@pytest.mark.parametrize("text", ["{}", '{"system": {"Driver version": "6"}}', "device,Unique ID\n", ""])
def test_no_card_listed(text: str) -> None:
    with pytest.raises(NoDevices):
        parse_rocm(text)


@pytest.mark.parametrize(
    "text",
    [
        "ERROR: Driver not initialized (amdgpu not found in modules)\n",
        '{"card0": 3}',
        json.dumps({"gpu0": CARD}),
        json.dumps({"card0": {**CARD, "VRAM Total Used Memory (B)": "much"}}),
        json.dumps({"card0": CARD, "system": {"PID7": "python"}}),
        CSV + "card2,0x3\n",
    ],
)
def test_no_answer(text: str) -> None:
    with pytest.raises(ToolFailed):
        parse_rocm(text)


@given(cut=st.integers(0, len(json.dumps(JSON)) - 1))
def test_a_cut_answer_is_no_answer(cut: int) -> None:
    with pytest.raises(ToolFailed):
        parse_rocm(json.dumps(JSON)[:cut])


def mib(value: object, unit: str = "MB") -> dict[str, object]:
    return {"value": value, "unit": unit}


METRIC = [{"gpu": n, "mem_usage": {"total_vram": mib(196_592), "used_vram": mib(283 if n else 190_000)}} for n in (0, 1)]
RUNS = {"name": "python3", "pid": 77, "memory_usage": {"gtt_mem": mib(0, "B"), "vram_mem": mib(199_000_000_000, "B")}}
PROCESSES = [
    {"gpu": 0, "process_list": [{"process_info": RUNS}, {"process_info": {"name": "N/A", "pid": 78, "mem_usage": mib(0, "B")}}]},
    {"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]},
]
LISTED = [{"gpu": 0, "uuid": "uu-0"}, {"gpu": 1, "uuid": "uu-1"}]
STATIC = [{"gpu": 0, "asic": {"market_name": "MI300X"}, "driver": {"version": "6.12"}}]


@pytest.mark.parametrize("wrapped", [False, True])
def test_amd_smi(*, wrapped: bool) -> None:
    def said(part: object) -> str:
        return json.dumps({"gpu_data": part} if wrapped else part)

    found = parse_amd(said(METRIC), said(PROCESSES), said(LISTED), said(STATIC))
    assert [(gpu.uuid, gpu.name, gpu.used_mib, gpu.total_mib) for gpu in found.gpus] == [
        ("uu-0", "MI300X", 190_000, 196_592),
        ("uu-1", "", 283, 196_592),
    ]
    assert [(one.gpu_uuid, one.pid, one.name, one.used_mib) for one in found.holders] == [
        ("uu-0", 77, "python3", 189_781),
        ("uu-0", 78, None, 0),
    ]
    assert found.driver == "6.12"


@pytest.mark.parametrize(
    "processes",
    [
        [{"gpu": 0, "process_list": [{"process_info": "something new"}]}],
        [{"gpu": 0, "process_list": [{"process_info": {"name": "x"}}]}],
        [{"gpu": 0, "process_list": "N/A"}],
        [{"gpu": 0}],
        {"error": "permission denied"},
        ["AMDSMI_STATUS_NO_PERM"],
    ],
)
def test_amd_processes_that_cannot_be_read(processes: object) -> None:
    with pytest.raises(ToolFailed):
        parse_amd(json.dumps(METRIC), json.dumps(processes))


@pytest.mark.parametrize("used", ["N/A", {"value": "N/A", "unit": "MB"}, {"value": 3, "unit": "furlongs"}, None])
def test_amd_memory_that_is_not_said_is_not_known(used: object) -> None:
    metric = [{"gpu": 0, "mem_usage": {"used_vram": used}}]
    assert parse_amd(json.dumps(metric), "[]").gpus[0].used_mib is None


def test_amd_cards_without_a_reading() -> None:
    with pytest.raises(ToolFailed, match="lists 2 GPUs"):
        parse_amd(json.dumps(METRIC[:1]), json.dumps(PROCESSES), json.dumps(LISTED))
    with pytest.raises(NoDevices):
        parse_amd("[]", "[]")


@given(part=st.sampled_from([0, 1, 2, 3]), data=st.data())
def test_a_cut_amd_answer_is_no_answer(part: int, data: st.DataObject) -> None:
    answers = [json.dumps(one) for one in (METRIC, PROCESSES, LISTED, STATIC)]
    answers[part] = answers[part][: data.draw(st.integers(0, len(answers[part]) - 1))]
    with pytest.raises(ToolFailed):
        parse_amd(*answers)


def test_an_amount_that_no_card_can_have_is_no_answer() -> None:
    with pytest.raises(ToolFailed, match="is not an amount of memory"):
        parse_rocm(json.dumps({"card0": {**CARD, "VRAM Total Memory (B)": "6" * 400}}))
