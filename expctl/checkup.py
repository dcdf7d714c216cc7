"""The checks of `expctl doctor`, each with its remedy.

Where a service answers, its data folder and its database are looked at: those of this command line may be others, and say nothing
about it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expctl.client import Client
from expctl.datafolder import settings_of
from expctl.globals import options
from expctl.serve import database_state
from service.domain.errors import ExpctlError
from service.settings import Settings

LEAST_FREE_GB = 5
Check = dict[str, str]


@dataclass(frozen=True)
class Service:
    """What the service said of itself; `error` where none answered."""

    url: str
    readiness: dict[str, Any] | None = None
    hosts: Sequence[dict[str, Any]] | None = None
    error: ExpctlError | None = None

    @property
    def folder(self) -> Path | None:
        """Its data folder, where it tells: on loopback, with SQLite."""
        file = (self.readiness or {}).get("database_file")
        return Path(file).parent if file else None


def run_checks() -> list[Check]:
    """Every check, in the order in which a person would go through them."""
    settings = settings_of(None)
    service = _ask()
    return [
        _check("Python", sys.version.split()[0]),
        _service(service),
        *_folder(service, settings),
        _database(service, settings),
        _gpus(),
        _engine(),
    ]


def _check(what: str, found: str, state: str = "ok", todo: str = "") -> Check:
    return {"what": what, "found": found, "state": state, "todo": todo}


def _ask() -> Service:
    with Client(options.server) as client:
        try:
            return Service(client.server, client.readiness(), client.hosts())
        except ExpctlError as error:
            return Service(client.server, error=error)


def _service(service: Service) -> Check:
    if service.error is not None:
        return _check("service", service.error.what, "warning", service.error.todo)
    hosts = service.hosts or []
    blocked = [f"{host['name']}: {host['blocked']}" for host in hosts if host["blocked"]]
    silent = [host["name"] for host in hosts if host["worker_silent"]]
    if blocked or silent:
        found = f"{service.url}; blocked: {', '.join(blocked) or '-'}; silent workers: {', '.join(silent) or '-'}"
        return _check("service", found, "wrong", "see `expctl queue`")
    return _check("service", f"{service.url} with {', '.join(host['name'] for host in hosts) or 'no host'}")


def _folder(service: Service, settings: Settings) -> list[Check]:
    """The data folder and its disk."""
    if service.error is None and service.folder is None:
        return [_check("data folder", f"that of {service.url} is not told, and this command's own does not matter to it")]
    folder = service.folder or settings.data_dir
    whose = f"the service's at {service.url}" if service.folder else "this command's own, for no service answers"
    place = _existing(folder)
    if not place.is_dir() or not os.access(place, os.W_OK):
        return [_check("data folder", f"{folder} ({whose}) cannot be written", "wrong", "set EXPCTL_DATA_DIR to a folder of yours")]
    return [_check("data folder", f"{folder} ({whose})"), _disk(place)]


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


def _disk(place: Path) -> Check:
    free = shutil.disk_usage(place).free / 1e9
    if free < LEAST_FREE_GB:
        return _check("disk", f"{free:.1f} GB free at {place}", "warning", "free some space; see `expctl prune`")
    return _check("disk", f"{free:.0f} GB free at {place}")


def _database(service: Service, settings: Settings) -> Check:
    if service.readiness is not None:
        at, head, whose = service.readiness["migration"], service.readiness["migration_head"], f"the service's at {service.url}"
    else:
        at, head, why = database_state(settings)
        whose = "this command's own, for no service answers"
        if why:
            return _check("database", f"{why} ({whose})", "wrong", "correct EXPCTL_DATABASE_URL, or start the database")
    if at is None:
        return _check("database", f"not made yet ({whose})", "warning", "`expctl up` makes it")
    if at != head:
        return _check("database", f"at migration {at}, needs {head} ({whose})", "wrong", "run `expctl db upgrade`")
    return _check("database", f"at migration {at} ({whose})")


def _gpus() -> Check:
    tool = shutil.which("nvidia-smi") or shutil.which("rocm-smi")
    devices = [str(path) for path in (Path("/dev/nvidia0"), Path("/dev/kfd")) if path.exists()]
    if tool:
        return _check("GPU tool", tool)
    if devices:
        return _check(
            "GPU tool", f"none, but {devices[0]} exists", "wrong", "install nvidia-smi or rocm-smi: unknown is never taken for free"
        )
    return _check("GPU tool", "none, and no GPU on this machine")


def _engine() -> Check:
    found = shutil.which("vllm")
    if found:
        return _check("vllm", found)
    return _check("vllm", "not on the PATH", "warning", "give engine.executable in the experiment file")
