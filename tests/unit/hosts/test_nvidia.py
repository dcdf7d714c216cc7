"""What nvidia-smi may print, whatever was asked, and what it means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.hosts.gpu_reading import GpuMemory
from workers.hosts.gpu_tool import NoDevices, ToolFailed
from workers.hosts.nvidia import GPU_FIELDS, HOLDER_FIELDS, parse_gpus, parse_holders, table

WIDE = GPU_FIELDS[0]
BUSY = (
    "2, 0, GPU-aa, NVIDIA RTX PRO 6000, 3, 97887, 31, 609, 580.95\n"
    "2, 1, GPU-bb, NVIDIA RTX PRO 6000, 90123, 97887, 55, 609, 580.95\n"
)  # fmt: skip


def test_the_query_that_we_ask() -> None:
    found = parse_gpus(BUSY, WIDE)
    assert found.driver == "580.95"
    assert found.gpus[1] == GpuMemory(1, "GPU-bb", "NVIDIA RTX PRO 6000", 90123, 97887, 609)


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        (  # a header, units, other columns, another order
            "index, memory.total [MiB], memory.reserved [MiB], memory.used [MiB], pstate\n0, 46068 MiB, 609 MiB, 0 MiB, P0\n",
            None,
            GpuMemory(0, "", "", 0, 46068, 609),
        ),
        (  # no index: counted
            "memory.free [MiB], memory.total [MiB], memory.used [MiB]\n[N/A], [N/A], [N/A]\n",
            None,
            GpuMemory(0, "", "", None, None),
        ),
        ("3, GPU-dd, 33120\n", ("index", "uuid", "memory.used"), GpuMemory(3, "GPU-dd", "", 33120, None)),
        # the answer's own header comes before what was asked for
        ("index, gpu_uuid, gpu_name\n7, GPU-hh, card\n", ("uuid", "index", "name"), GpuMemory(7, "GPU-hh", "card", None, None)),
        ("0, 55 MiB, [N/A], Enabled\n", ("index", "memory.used", "utilization.gpu", "mig.mode.current"), GpuMemory(0, "", "", 55, None)),
        ("0, [Insufficient Permissions]\n", ("index", "memory.used"), GpuMemory(0, "", "", None, None)),
        ("0, [Requested functionality has been deprecated]\n", ("index", "memory.used"), GpuMemory(0, "", "", None, None)),
    ],
)
def test_other_queries(text: str, fields: tuple[str, ...] | None, expected: GpuMemory) -> None:
    assert parse_gpus(text, fields).gpus == (expected,)


def test_a_warning_beside_the_answer_is_kept() -> None:
    found = parse_gpus(BUSY + "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n", WIDE)
    assert len(found.gpus) == 2
    assert found.warnings == ("WARNING: infoROM is corrupted at gpu 0000:3B:00.0",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n", "driver_library_mismatch: "),
        ("Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error\n" + BUSY, "gpu_lost: "),
        (
            BUSY + "Unable to determine the device handle for GPU0000:41:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
            "gpu_lost: ",
        ),
        ("The GPU at PCI:0000:1A:00 has fallen off the bus.\n", "gpu_lost: "),
        ("2, 0, GPU-aa, X, 0, 97887, [GPU requires reset], 0, 580\n" + BUSY, "gpu_hardware_error: "),  # its memory reads 0
        ("1, 0, GPU-aa, X, [GPU is lost], 97887, 31, 0, 580\n", "gpu_lost: "),
        ("1, 0, GPU-aa, X, 0, 97887, ERR!, 0, 580\n", "GPU 0 reports temperature.gpu ERR!"),
        ("1, 0, GPU-aa, X, [Unknown Error], 97887, 31, 0, 580\n", "memory.used [Unknown Error]"),
        ("1, 0, GPU-aa, X, lots, 97887, 31, 0, 580\n", "'lots' is not an amount of memory"),
        ("1, zero, GPU-aa, X, 1, 97887, 31, 0, 580\n", "'zero' is not the index of a GPU"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "couldn't communicate"),
        (BUSY.splitlines()[0] + "\n", "it counts 2 GPUs and lists 1"),
        ("unexpected\n", "it answered: unexpected"),
    ],
)
def test_no_answer(text: str, why: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        parse_gpus(text, WIDE)
    assert not isinstance(caught.value, NoDevices)
    assert str(caught.value).startswith(why) or (not why.endswith(": ") and why in str(caught.value))


@pytest.mark.parametrize("text", ["", "\n \n", "No devices were found\n", "index, memory.used [MiB]\n"])
def test_no_gpu_listed(text: str) -> None:
    with pytest.raises(NoDevices):
        parse_gpus(text, WIDE)


def test_without_fields_or_header_nothing_can_be_said() -> None:
    with pytest.raises(ToolFailed):
        parse_gpus("0, 12\n")


def test_holders() -> None:
    text = (
        "GPU-aa, 4135, VLLM::EngineCore, 76500\n"
        "GPU-aa, 12, /opt/a, b/python, 5\n"  # a folder with a comma, not quoted
        "GPU-bb, 56752, [Not Found], [N/A]\n"
        'GPU-bb, 13, "quoted", 1\n'
    )
    found = parse_holders(text, HOLDER_FIELDS)
    assert [(one.gpu_uuid, one.pid, one.name, one.used_mib) for one in found] == [
        ("GPU-aa", 4135, "VLLM::EngineCore", 76500),
        ("GPU-aa", 12, "/opt/a, b/python", 5),
        ("GPU-bb", 56752, None, None),
        ("GPU-bb", 13, '"quoted"', 1),
    ]
    assert all(one.owner is None for one in found)


@pytest.mark.parametrize(
    "text",
    ["", "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n", "No running processes found\n"],
)
def test_nobody_holds_anything(text: str) -> None:
    assert parse_holders(text, HOLDER_FIELDS) == ()


def test_holders_with_a_header_and_units() -> None:
    (one,) = parse_holders("pid, process_name, used_gpu_memory [MiB]\n4135, VLLM::EngineCore, 104277 MiB\n")
    assert (one.pid, one.used_mib, one.gpu_uuid) == (4135, 104277, "")


@pytest.mark.parametrize(
    "text",
    [
        "GPU-aa, [Insufficient Permissions], [Insufficient Permissions], [Insufficient Permissions]\n",
        "GPU-aa, [N/A], python, 12\n",
        "GPU-aa, 12\n",
        "garbage\n",
        "gpu_uuid, used_gpu_memory [MiB]\nGPU-aa, 12 MiB\n",
        "index, uuid\n",
    ],
)
def test_holders_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ToolFailed):
        parse_holders(text, HOLDER_FIELDS)


ROW = st.tuples(st.integers(0, 97_000), st.booleans())


@given(rows=st.lists(ROW, min_size=1, max_size=8), header=st.booleans(), units=st.booleans(), data=st.data())
def test_an_answer_that_was_cut_never_reads_as_free(
    rows: list[tuple[int, bool]], data: st.DataObject, *, header: bool, units: bool
) -> None:
    """The last GPU is the busy one, so that whatever a cut takes away is the news."""
    fields, mib = WIDE, " MiB" if units else ""
    used = [2 if calm else some for some, calm in rows] + [50_000]
    lines = [f"{len(used)}, {n}, GPU-{n}, card, {some}{mib}, 97887{mib}, 31, 5{mib}, 580.95" for n, some in enumerate(used)]
    text = "".join(line + "\n" for line in ([", ".join(fields)] if header else []) + lines)
    assert parse_gpus(text, fields).gpus[-1].used_mib == 50_000
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    try:
        found = parse_gpus(cut, fields)
    except ToolFailed:
        return
    assert [gpu.used_mib for gpu in found.gpus] == used


@given(text=st.text(alphabet="012, GPU-aMiB[N/A]\n.ERR!:_", max_size=80))
def test_noise_is_refused_or_read_but_never_breaks(text: str) -> None:
    for parse in (parse_gpus, parse_holders, table):
        try:
            parse(text, HOLDER_FIELDS)
        except ToolFailed:
            continue
