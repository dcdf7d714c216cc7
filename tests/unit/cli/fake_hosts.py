"""Hosts, requests and keys as the service would answer them."""

from __future__ import annotations

from typing import Any

from tests.unit.cli.fake_service import FakeService, Json

SHA, OTHER = "SHA256:" + "a" * 43, "SHA256:" + "b" * 43
CHECKS = [
    {"name": "ssh", "ok": True, "found": "OpenSSH 9.2", "remedy": "never shown"},
    {"name": "helper", "ok": False, "found": "not installed", "remedy": "expctl host install llm-two"},
    {"name": "GPUs", "ok": None, "found": "", "remedy": "install the helper first"},
]


def host(**changes: Any) -> Json:
    base: Json = {
        "name": "llm-two", "transport": "ssh", "simulated": False, "busy": False, "worker": None, "worker_silent": False, "blocked": None,
        "paused": False, "config": {"ssh": "admin@llm-two", "park": ["a.service"], "window": None}, "shift_text": "window opens 20:00",
        "needs_person": False, "created_at": "2026-11-30T20:00:00Z", "shift": None, "window": None, "open_by": None, "give_back_by": None,
        "unreachable_since": None, "report": {},
    }  # fmt: skip
    return {**base, **changes}


def request(kind: str, ok: bool | None = True, status: str = "finished", **answer: Any) -> Json:
    return {
        "id": 7, "host": "llm-two", "kind": kind, "args": {}, "status": status, "ok": ok, "answer": answer, "created_by": "ann",
        "created_at": "2026-11-30T20:00:00Z", "started_at": None, "finished_at": None,
    }  # fmt: skip


def answering(fake: FakeService, kind: str, found: Json, **more: Any) -> None:
    address = "/v1/hosts/llm-two"
    fake.answers |= {
        f"POST {address}/{kind}": (202, request(kind, None, "queued")),
        f"GET {address}/requests/7": found,
        f"DELETE {address}/requests/7": found,
        f"GET {address}": host(**more),
    }


def asked(fake: FakeService, method: str) -> list[str]:
    return [one.split(" ", 1)[1] for one in fake.asked if one.startswith(method)]


def key(fingerprint: str = SHA, known: str = "unknown") -> Json:
    return {"type": "ssh-ed25519", "fingerprint": fingerprint, "host": "llm-two", "known": known}
