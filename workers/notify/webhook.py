"""A message as a signed webhook, by Standard Webhooks 1.0: thin, with the headline numbers, and small."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from standardwebhooks import Webhook

from service.domain.messages import Message
from workers.notify.clipping import clip, plain

MAX_BYTES = 20_000
_TIGHTER = ((2000, 100), (500, 50), (200, 20), (60, 8))
"""Longest text, longest list; the first that fits is taken."""


def render(message: Message, base_url: str = "") -> bytes:
    """The body of the request, under 20 kB."""
    body = b""
    for longest, most in _TIGHTER:
        whole = {
            "type": message.type,
            "timestamp": message.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "data": _fit({"headline": message.headline, **message.data, "links": _links(message, base_url)}, longest, most),
        }
        body = json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        if len(body) < MAX_BYTES:
            break
    return body


def _links(message: Message, base_url: str) -> dict[str, str]:
    return {link.text.lower(): f"{base_url.rstrip('/')}{link.path}" for link in message.links} if base_url else {}


def _fit(value: Any, longest: int, most: int) -> Any:
    if isinstance(value, str):
        return clip(plain(value), longest)
    if isinstance(value, dict):
        return {clip(plain(str(key)), longest): _fit(item, longest, most) for key, item in list(value.items())[:most]}
    if isinstance(value, list | tuple):
        return [_fit(item, longest, most) for item in value[:most]]
    return value


def headers(secrets: Sequence[str], message_id: str, body: bytes, at: datetime) -> dict[str, str]:
    """`webhook-id`, `webhook-timestamp`, `webhook-signature`: one signature a secret, so that a receiver may know either."""
    text = body.decode()
    signatures = [Webhook(secret).sign(message_id, at, text) for secret in secrets]
    return {"webhook-id": message_id, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": " ".join(signatures)}
