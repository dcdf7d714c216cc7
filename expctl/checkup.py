"""The checks of `expctl doctor`, each with its remedy."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from expctl.client import Client
from expctl.globals import options
from expctl.serve import database_state
from service.domain.errors import ExpctlError
from service.settings import Settings

LEAST_FREE_GB = 5
Check = dict[str, str]


def run_checks() -> list[Check]:
    """Every check, in the order in which a person would go through them."""
    settings = Settings()
    checks: tuple[Callable[[Settings], Check], ...] = (_python, _folder, _disk, _database, _service, _gpus, _engine)
    return [check(settings) for check in checks]


def _check(what: str, found: str, state: str = "ok", todo: str = "") -> Check:
    return {"what": what, "found": found, "state": state, "todo": todo}


def _python(settings: Settings) -> Check:
    del settings
    return _check("Python", sys.version.split()[0])


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


def _folder(settings: Settings) -> Check:
    place = _existing(settings.data_dir)
    if not place.is_dir() or not os.access(place, os.W_OK):
        return _check("data folder", f"{settings.data_dir} cannot be written", "wrong", "set EXPCTL_DATA_DIR to a folder of yours")
    return _check("data folder", str(settings.data_dir))


def _disk(settings: Settings) -> Check:
    free = shutil.disk_usage(_existing(settings.data_dir)).free / 1e9
    if free < LEAST_FREE_GB:
        return _check("disk", f"{free:.1f} GB free", "warning", "free some space; see `expctl prune`")
    return _check("disk", f"{free:.0f} GB free")


def _database(settings: Settings) -> Check:
    at, head, why = database_state(settings)
    if why:
        return _check("database", why, "wrong", "correct EXPCTL_DATABASE_URL, or start the database")
    if at is None:
        return _check("database", "not made yet", "warning", "`expctl up` makes it")
    if at != head:
        return _check("database", f"at migration {at}, this version needs {head}", "wrong", "run `expctl db upgrade`")
    return _check("database", f"at migration {at}")


def _service(settings: Settings) -> Check:
    del settings
    with Client(options.server) as client:
        try:
            hosts = client.hosts()
        except ExpctlError as error:
            return _check("service", error.what, "warning", error.todo)
    blocked = [f"{host['name']}: {host['blocked']}" for host in hosts if host["blocked"]]
    silent = [host["name"] for host in hosts if host["worker_silent"]]
    if blocked or silent:
        return _check(
            "service", f"{client.server}; blocked: {blocked or '-'}; silent workers: {silent or '-'}", "wrong", "see `expctl queue`"
        )
    return _check("service", f"{client.server} with {', '.join(host['name'] for host in hosts) or 'no host'}")


def _gpus(settings: Settings) -> Check:
    del settings
    tool = shutil.which("nvidia-smi") or shutil.which("rocm-smi")
    devices = [str(path) for path in (Path("/dev/nvidia0"), Path("/dev/kfd")) if path.exists()]
    if tool:
        return _check("GPU tool", tool)
    if devices:
        return _check(
            "GPU tool", f"none, but {devices[0]} exists", "wrong", "install nvidia-smi or rocm-smi: unknown is never taken for free"
        )
    return _check("GPU tool", "none, and no GPU on this machine")


def _engine(settings: Settings) -> Check:
    del settings
    found = shutil.which("vllm")
    if found:
        return _check("vllm", found)
    return _check("vllm", "not on the PATH", "warning", "give engine.executable in the experiment file")
