"""`python -m workers.sim.nvidia_smi`: the queries of nvidia-smi for eight simulated GPUs.

Answers `--query-gpu=FIELDS` and `--query-compute-apps=FIELDS` with `--format=csv[,noheader][,nounits]` and `-i 0,1`; `-L` lists.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from workers.sim.knobs import Knobs
from workers.sim.state import DRIVER, GPU_COUNT, GPU_NAME, IDLE_MIB, TOTAL_MIB, Holding, gpu_uuid, holdings, used_mib

Field = tuple[str, Callable[[int, list[Holding]], str]]
"""Unit, and the value for a GPU."""

GPU_FIELDS: dict[str, Field] = {
    "index": ("", lambda gpu, _: str(gpu)),
    "uuid": ("", lambda gpu, _: gpu_uuid(gpu)),
    "gpu_uuid": ("", lambda gpu, _: gpu_uuid(gpu)),
    "name": ("", lambda _gpu, _: GPU_NAME),
    "gpu_name": ("", lambda _gpu, _: GPU_NAME),
    "count": ("", lambda _gpu, _: str(GPU_COUNT)),
    "driver_version": ("", lambda _gpu, _: DRIVER),
    "pci.bus_id": ("", lambda gpu, _: f"00000000:{16 * gpu + 1:02X}:00.0"),
    "compute_cap": ("", lambda _gpu, _: "12.0"),
    "compute_mode": ("", lambda _gpu, _: "Default"),
    "persistence_mode": ("", lambda _gpu, _: "Enabled"),
    "mig.mode.current": ("", lambda _gpu, _: "Disabled"),
    "pstate": ("", lambda gpu, held: "P1" if _busy(gpu, held) else "P8"),
    "ecc.mode.current": ("", lambda _gpu, _: "Enabled"),
    "ecc.errors.uncorrected.volatile.total": ("", lambda _gpu, _: "0"),
    "memory.total": ("MiB", lambda _gpu, _: str(TOTAL_MIB)),
    "memory.used": ("MiB", lambda gpu, held: str(used_mib(held, gpu))),
    "memory.free": ("MiB", lambda gpu, held: str(TOTAL_MIB - used_mib(held, gpu))),
    "memory.reserved": ("MiB", lambda _gpu, _: "0"),
    "utilization.gpu": ("%", lambda gpu, held: "97" if _busy(gpu, held) else "0"),
    "utilization.memory": ("%", lambda gpu, held: "61" if _busy(gpu, held) else "0"),
    "temperature.gpu": ("", lambda gpu, held: str((58 if _busy(gpu, held) else 31) + gpu % 3)),
    "power.draw": ("W", lambda gpu, held: "301.40" if _busy(gpu, held) else "14.62"),
    "power.limit": ("W", lambda _gpu, _: "600.00"),
    "clocks.sm": ("MHz", lambda gpu, held: "2422" if _busy(gpu, held) else "180"),
    "clocks.mem": ("MHz", lambda gpu, held: "13365" if _busy(gpu, held) else "405"),
    "clocks.max.sm": ("MHz", lambda _gpu, _: "3090"),
    "clocks_event_reasons.active": ("", lambda gpu, held: "0x0000000000000000" if _busy(gpu, held) else "0x0000000000000001"),
    "clocks_event_reasons_counters.sw_power_cap": ("us", lambda _gpu, _: "0"),
    "clocks_event_reasons_counters.sw_thermal_slowdown": ("us", lambda _gpu, _: "0"),
    "clocks_event_reasons_counters.hw_thermal_slowdown": ("us", lambda _gpu, _: "0"),
    "clocks_event_reasons_counters.hw_power_brake_slowdown": ("us", lambda _gpu, _: "0"),
}
APP_FIELDS: dict[str, tuple[str, Callable[[int, Holding], str]]] = {
    "gpu_uuid": ("", lambda gpu, _: gpu_uuid(gpu)),
    "gpu_name": ("", lambda _gpu, _: GPU_NAME),
    "gpu_bus_id": ("", lambda gpu, _: f"00000000:{16 * gpu + 1:02X}:00.0"),
    "pid": ("", lambda _, held: str(held.pid)),
    "process_name": ("", lambda _, held: held.name),
    "name": ("", lambda _, held: held.name),
    "used_gpu_memory": ("MiB", lambda _, held: str(held.used_mib)),
    "used_memory": ("MiB", lambda _, held: str(held.used_mib)),
}


def _busy(gpu: int, held: list[Holding]) -> bool:
    return used_mib(held, gpu) > IDLE_MIB


def _table(fields: list[str], units: dict[str, str], rows: list[list[str]], options: list[str]) -> str:
    lines = []
    if "noheader" not in options:
        lines.append(", ".join(f"{field} [{units[field]}]" if units[field] else field for field in fields))
    for row in rows:
        suffixes = ["" if "nounits" in options or not units[field] else f" {units[field]}" for field in fields]
        lines.append(", ".join(value + suffix for value, suffix in zip(row, suffixes, strict=True)))
    return "".join(line + "\n" for line in lines)


def answer(argv: Sequence[str], held: list[Holding]) -> tuple[int, str]:
    """Exit status and output for a command line."""
    parser = argparse.ArgumentParser(prog="nvidia-smi", allow_abbrev=False)
    parser.add_argument("--query-gpu")
    parser.add_argument("--query-compute-apps")
    parser.add_argument("--format", default="")
    parser.add_argument("-i", "--id", default="")
    parser.add_argument("-L", "--list-gpus", action="store_true")
    args = parser.parse_args(argv)
    gpus = [int(part) for part in args.id.split(",")] if args.id else list(range(GPU_COUNT))
    if args.query_gpu is None and args.query_compute_apps is None:
        return 0, "".join(f"GPU {gpu}: {GPU_NAME} (UUID: {gpu_uuid(gpu)})\n" for gpu in gpus)
    options = [option.strip() for option in args.format.split(",")]
    if "csv" not in options:
        return 2, "Option --format=csv is needed with a query.\n"
    fields = [field.strip() for field in (args.query_gpu or args.query_compute_apps).split(",")]
    known = GPU_FIELDS if args.query_gpu is not None else APP_FIELDS
    wrong = next((field for field in fields if field not in known), None)
    if wrong is not None:
        return 2, f'Field "{wrong}" is not a valid field to query.\n\n'
    units = {field: known[field][0] for field in fields}
    if args.query_gpu is not None:
        rows = [[GPU_FIELDS[field][1](gpu, held) for field in fields] for gpu in gpus]
    else:
        rows = [[APP_FIELDS[field][1](gpu, each) for field in fields] for gpu in gpus for each in held if gpu in each.gpus]
    return 0, _table(fields, units, rows, options)


def main(argv: Sequence[str]) -> int:
    """Answer a command line on stdout."""
    knobs = Knobs.from_env()
    if knobs.fault("smi_fails"):
        print(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n"
        )
        return 9
    status, text = answer(argv, holdings(knobs.state_dir))
    sys.stdout.write(text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
