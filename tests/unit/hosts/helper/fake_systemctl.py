"""A systemctl for tests: keeps its units in a file beside itself, runs real processes for them, and shows them in a made-up /proc.

Stands as ROOT/usr/bin/systemctl. `ROOT/fake/units.json` has the units, `ROOT/fake/calls` every call, and `ROOT/fake/behaviour.json`
says how a unit behaves: {"start": "run" | "fail" | "hang" | "bad-setting" | "early" | "refuse", "stubborn": bool}.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).parent.parent.parent
SPAWNED: list[subprocess.Popen[bytes]] = []
Units = dict[str, dict[str, str]]
FOLDERS = ("etc/systemd/system", "run/systemd/system")
NOTHING = {
    "LoadState": "not-found",
    "ActiveState": "inactive",
    "SubState": "dead",
    "Result": "success",
    "MainPID": "0",
    "InvocationID": "",
    "NRestarts": "0",
    "FragmentPath": "",
    "DropInPaths": "",
    "NeedDaemonReload": "no",
    "Restart": "no",
}


def load(name: str) -> dict[str, Any]:
    try:
        return json.loads((ROOT / "fake" / name).read_text())
    except FileNotFoundError:
        return {}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def members(unit: str) -> list[int]:
    pids = [int(entry.name) for entry in (ROOT / "proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if unit in (ROOT / "proc" / str(pid) / "cgroup").read_text() and alive(pid)]


def file_of(unit: str) -> Path | None:
    for folder in FOLDERS:
        path = ROOT / folder / unit
        if path.is_file():
            return path
    return None


def read_file(props: dict[str, str], unit: str) -> None:
    path = file_of(unit)
    if path is None:
        props.update({**NOTHING, "ActiveState": props["ActiveState"], "MainPID": props["MainPID"]})
        return
    text = path.read_text()
    dropins = sorted((ROOT / "etc/systemd/system" / f"{unit}.d").glob("*.conf"))
    text += "\n" + "\n".join(one.read_text() for one in dropins)
    props["LoadState"] = "loaded"
    props["text"] = text
    props["FragmentPath"] = "/" + str(path.relative_to(ROOT))
    props["DropInPaths"] = " ".join("/" + str(one.relative_to(ROOT)) for one in dropins)
    for name in ("User", "Type", "Restart", "Conflicts", "WorkingDirectory"):
        values = re.findall(rf"(?m)^{name}=(.*)$", text)
        if values:
            props[name] = values[-1]
    props["NeedDaemonReload"] = "no"


def refresh(units: Units, behaviour: dict[str, Any]) -> None:
    for unit, props in units.items():
        pid = int(props["MainPID"])
        if pid and not alive(pid):
            stopping = props["ActiveState"] == "deactivating"
            props.update(MainPID="0", ActiveState="inactive" if stopping else "failed", SubState="dead")
            props["Result"] = "success" if stopping else "signal"
        if file_of(unit) and props.get("text") is not None:
            fresh = dict(props)
            read_file(fresh, unit)
            props["NeedDaemonReload"] = "yes" if fresh.get("text") != props["text"] else "no"
        if behaviour.get(unit, {}).get("start") == "bad-setting" and props["LoadState"] == "loaded":
            props["LoadState"] = "bad-setting"


def spawn(unit: str, argv: list[str], *, stubborn: bool) -> int:
    program = ["/bin/sh", "-c", "trap '' TERM; exec sleep 1000"] if stubborn else ["/bin/sleep", "1000"]
    null = subprocess.DEVNULL
    process = subprocess.Popen(program, stdin=null, stdout=null, stderr=null, start_new_session=True)
    SPAWNED.append(process)
    show_process(process.pid, unit, argv)
    return process.pid


def show_process(pid: int, unit: str, argv: list[str], environ: str = "") -> None:
    folder = ROOT / "proc" / str(pid)
    folder.mkdir(exist_ok=True)
    for name in ("stat", "status", "fd", "exe"):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(f"/proc/{pid}/{name}")
    (folder / "cmdline").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in argv))
    (folder / "environ").write_text(environ)
    (folder / "cgroup").write_text(f"0::/system.slice/{unit}\n")


def words(text: str) -> list[str]:
    line = re.findall(r"(?m)^ExecStart=(.+)$", text)[-1]
    found = re.findall(r'"((?:\\.|[^"\\])*)"|(\S+)', line)
    return [re.sub(r"\\(.)", r"\1", quoted) or plain for quoted, plain in found]


def environment(text: str) -> str:
    paths = re.findall(r"(?m)^EnvironmentFile=(.+)$", text)
    entries = [line for path in paths for line in (ROOT / path.lstrip("/")).read_text().splitlines()]
    return "".join(entry.replace('"', "") + "\0" for entry in entries)


def start(units: Units, unit: str, behaviour: dict[str, Any]) -> None:
    props = units[unit]
    how = behaviour.get(unit, {}).get("start", "run")
    if how == "refuse":
        sys.exit(f"Failed to start {unit}: told to refuse")
    if props["ActiveState"] in ("active", "activating") or props["LoadState"] != "loaded":
        return
    for other in props.get("Conflicts", "").split():
        if other in units:
            stop(units, other)
    count = int(props.get("count", "0")) + 1
    props.update(count=str(count), InvocationID=f"{zlib.crc32(unit.encode()):08x}{count:024x}", Result="success")
    if how == "fail":
        props.update(ActiveState="failed", SubState="failed", Result="exit-code", ExecMainStatus="203")
        return
    if how == "hang":
        props.update(ActiveState="activating", SubState="start-pre")
        return
    argv = words(props["text"])
    pid = spawn(unit, argv, stubborn=behaviour.get(unit, {}).get("stubborn", False))
    show_process(pid, unit, argv, environment(props["text"]))
    if how == "early":  # as between fork and exec
        (ROOT / "proc" / str(pid) / "exe").unlink()
        (ROOT / "proc" / str(pid) / "exe").symlink_to("/usr/lib/systemd/systemd")
    since = str(int(monotonic() * 1e6))
    props.update(ActiveState="active", SubState="running", MainPID=str(pid))
    props.update(ActiveEnterTimestampMonotonic=since, ExecMainStartTimestampMonotonic=since)


def stop(units: Units, unit: str) -> None:
    props = units[unit]
    if props["ActiveState"] in ("active", "activating"):
        props["ActiveState"] = "deactivating" if int(props["MainPID"]) else "inactive"
    for pid in members(unit):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def show(units: Units, names: list[str], wanted: list[str]) -> str:
    blocks = []
    for name in names:
        props = {"Id": name, **NOTHING, **units.get(name, {})}
        blocks.append("".join(f"{key}={props[key]}\n" for key in wanted if key in props))
    return "\n".join(blocks)


def known(names: list[str]) -> Units:
    """Units as they are now; a unit whose file is there is loaded when it is first named, as systemd does."""
    units = load("units.json")
    for name in names:
        if "*" not in name and name not in units and file_of(name):
            units[name] = dict(NOTHING)
            read_file(units[name], name)
    refresh(units, load("behaviour.json"))
    return units


def shown(units: Units, names: list[str], options: list[str]) -> str:
    wanted = next(one for one in options if one.startswith("--property=")).partition("=")[2].split(",")
    if "--value" in options:
        return units.get(names[0], {}).get(wanted[0], "") + "\n"
    return show(units, names, wanted)


def reload(units: Units) -> None:
    for folder in FOLDERS:
        for path in (ROOT / folder).glob("*"):
            if path.suffix in (".service", ".timer"):
                units.setdefault(path.name, dict(NOTHING))
    for unit, props in units.items():
        read_file(props, unit)


def act(verb: str, units: Units, name: str) -> None:
    props = units.get(name)
    if props is None:
        sys.exit(f"Failed to {verb} {name}: Unit {name} not found.")
    elif verb == "stop":
        stop(units, name)
    elif verb == "reset-failed":
        props["ActiveState"] = "inactive" if props["ActiveState"] == "failed" else props["ActiveState"]
    elif verb == "enable":
        props["UnitFileState"] = "enabled"
    elif verb == "disable":
        props.update(UnitFileState="disabled", ActiveState="inactive")
    elif name.endswith(".timer"):
        props.update(ActiveState="active", SubState="waiting")
    else:
        start(units, name, load("behaviour.json"))


def main(argv: list[str]) -> None:
    with (ROOT / "fake" / "calls").open("a") as calls:
        calls.write(json.dumps(argv) + "\n")
    assert argv[:2] == ["--no-pager", "--no-ask-password"], argv
    if (ROOT / "fake" / "broken").exists():
        sys.exit("Failed to connect to bus: told to be broken")
    verb, *rest = argv[2:]
    options, names = [one for one in rest if one.startswith("--")], [one for one in rest if not one.startswith("--")]
    units, out = known(names), ""
    if verb == "--version":
        out = "systemd 252 (252.38-1~deb12u1)\n+PAM +AUDIT\n"
    elif verb == "show":
        out = shown(units, names, options)
    elif verb == "daemon-reload":
        reload(units)
    elif verb == "list-units":
        out = "".join(f"{name} loaded active running x\n" for name in sorted(units) if name.startswith("expctl-"))
    else:
        assert verb in ("start", "restart", "stop", "reset-failed", "enable", "disable"), argv
        for name in names:
            act(verb, units, name)
    (ROOT / "fake" / "units.json").write_text(json.dumps(units))
    sys.stdout.write(out)


if __name__ == "__main__":
    assert os.environ["LC_ALL"] == "C"
    main(sys.argv[1:])
