"""A message as Slack's incoming webhooks take it: blocks, and the same in plain text for notifications and old clients.

Slack refuses a message as a whole when one part is too long, so everything is shortened to its limit, logs first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from service.domain.messages import Message
from workers.notify.clipping import clip_tail, mrkdwn, plain, units

Block = dict[str, Any]

MAX_BYTES = 13_000
"""Not documented, and met by those who went over it; the documented limits alone would allow more."""
HEADER, SECTION, FIELD, FIELDS, BUTTON, BUTTONS, URL = 150, 3000, 2000, 10, 75, 5, 3000
FENCE = "```"


@dataclass(frozen=True)
class _Limits:
    """How much of each part is kept."""

    code: int
    line: int
    lines: int
    field: int
    fields: int


_TIGHTER = (
    _Limits(code=2800, line=1000, lines=12, field=400, fields=FIELDS),
    _Limits(code=1400, line=1000, lines=12, field=400, fields=FIELDS),
    _Limits(code=500, line=500, lines=8, field=200, fields=FIELDS),
    _Limits(code=0, line=300, lines=6, field=100, fields=8),
    _Limits(code=0, line=150, lines=3, field=60, fields=4),
)
"""The first that fits is taken. The last fits whatever the texts are: a sign takes four bytes at most."""


REPEATED = "This may be here twice: it is not known whether an earlier try arrived."


def render(message: Message, base_url: str = "", *, perhaps_sent: bool = False) -> bytes:
    """The body of the request, at most 13 kB. `perhaps_sent`: Slack knows no ids of messages, so the reader is told."""
    body = b""
    message = message.model_copy(update={"lines": [REPEATED, *message.lines]}) if perhaps_sent else message
    for limits in _TIGHTER:
        body = json.dumps(_payload(message, base_url, limits), ensure_ascii=False, separators=(",", ":")).encode()
        if len(body) <= MAX_BYTES:
            break
    return body


def _payload(message: Message, base_url: str, limits: _Limits) -> dict[str, Any]:
    headline = f"{message.icon} {message.headline}".strip()
    blocks: list[Block] = [{"type": "header", "text": _plain_text(headline, HEADER)}]
    fields = [
        {"type": "mrkdwn", "text": f"*{mrkdwn(fact.name, 60)}*\n{mrkdwn(fact.value, limits.field)}"}
        for fact in message.facts[: limits.fields]
    ]
    if fields:
        blocks.append({"type": "section", "fields": fields})
    if units(headline) > HEADER:
        blocks.append(_section(mrkdwn(headline, limits.line)))  # the header could not say all of it
    blocks += [_section(mrkdwn(line, limits.line)) for line in message.lines[: limits.lines] if plain(line).strip()]
    if limits.code and plain(message.code).strip():
        blocks.append(_section(_fenced(message.code, limits.code)))
    if message.commands:
        blocks.append(_section("\n".join(f"`{_inline(command)}`" for command in message.commands[:4])))
    buttons = _buttons(message, base_url)
    if buttons:
        blocks.append({"type": "actions", "elements": buttons})
    return {"text": _fallback(message, headline, limits), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _plain_text(text: str, limit: int) -> Block:
    # A header has no marks and no links, but line ends are refused in it.
    return {"type": "plain_text", "text": mrkdwn(" ".join(text.split()), limit) or "expctl", "emoji": False}


def _section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _fenced(code: str, limit: int) -> str:
    inner = mrkdwn(clip_tail(code.replace("`", "'"), limit), limit)
    return f"{FENCE}{inner}{FENCE}"


def _inline(text: str) -> str:
    return mrkdwn(" ".join(text.replace("`", "'").split()), 200)


def _buttons(message: Message, base_url: str) -> list[Block]:
    if not base_url:
        return []
    addresses = [(link, f"{base_url.rstrip('/')}{link.path}") for link in message.links[:BUTTONS]]
    return [
        {"type": "button", "text": _plain_text(link.text, BUTTON), "url": address} for link, address in addresses if units(address) <= URL
    ]


def _fallback(message: Message, headline: str, limits: _Limits) -> str:
    figures = ", ".join(f"{fact.name}: {fact.value}" for fact in message.facts[: limits.fields])
    parts = [mrkdwn(headline, limits.line), mrkdwn(figures, limits.line), *(mrkdwn(line, limits.line) for line in message.lines[:3])]
    return "\n".join(part for part in parts if part.strip()) or "expctl"
