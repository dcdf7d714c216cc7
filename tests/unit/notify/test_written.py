"""Whatever the texts are: inside Slack's limits and the webhook's, nobody is pinged, and nothing is cut into half a sign."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from service.domain.messages import Fact, Link, Message, MessageType
from workers.notify import slack, webhook
from workers.notify.clipping import clip, clip_tail, mrkdwn, units

HOSTILE = st.one_of(
    st.text(max_size=80),
    st.sampled_from(
        ["<!channel>", "<!here|x>", "<@U123>", "@everyone", "&lt;!channel&gt;", "```", "`a`", "\x00\x1b[31m", "\u202egnp", "😀" * 50]
    ),
    st.text(alphabet="<>&@`😀é\n\u202e\x00", max_size=4000),
    st.integers(0, 6000).map(lambda count: "&" * count),
    st.integers(0, 4000).map(lambda count: "漢" * count),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | HOSTILE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.builds(
    Message,
    type=st.sampled_from(MessageType),
    at=st.just(datetime(2026, 11, 30, 6, tzinfo=UTC)),
    icon=st.sampled_from(["", "✅", "❌"]),
    headline=HOSTILE,
    facts=st.lists(st.builds(Fact, name=HOSTILE, value=HOSTILE), max_size=14),
    lines=st.lists(HOSTILE, max_size=14),
    code=HOSTILE,
    commands=st.lists(HOSTILE, max_size=6),
    links=st.lists(st.builds(Link, text=HOSTILE, path=st.text(max_size=3500).map(lambda text: f"/{text}")), max_size=7),
    data=st.dictionaries(st.sampled_from(["experiment", "numbers", "a"]), JSON, max_size=3),
)  # fmt: skip


def texts(block: Any) -> list[tuple[str, str]]:
    """Every text of a block with its type."""
    if isinstance(block, list):
        return [found for item in block for found in texts(item)]
    if not isinstance(block, dict):
        return []
    own = [(block["type"], block["text"])] if isinstance(block.get("text"), str) and "type" in block else []
    return own + [found for value in block.values() for found in texts(value)]


@settings(max_examples=100, deadline=None, database=None)
@given(message=MESSAGES)
def test_slack_takes_it_and_nobody_is_pinged(message: Message) -> None:
    body = slack.render(message, "https://expctl.example")
    assert len(body) <= 13_000
    payload = json.loads(body.decode())
    assert payload["text"].strip()
    assert 1 <= len(payload["blocks"]) <= 50
    for block in payload["blocks"]:
        _within_limits(block)
    for _, text in [*texts(payload["blocks"]), ("mrkdwn", payload["text"])]:
        assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", text), "an escape is missing, or was cut in two"
        assert not re.search(r"@(channel|here|everyone)", text)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", text)


def _within_limits(block: Any) -> None:
    if block["type"] == "header":
        assert block["text"]["type"] == "plain_text"
        assert 1 <= units(block["text"]["text"]) <= 150
        assert "\n" not in block["text"]["text"]
    elif block["type"] == "section" and "fields" in block:
        assert 1 <= len(block["fields"]) <= 10
        assert all(1 <= units(field["text"]) <= 2000 for field in block["fields"])
    elif block["type"] == "section":
        assert 1 <= units(block["text"]["text"]) <= 3000
        assert block["text"]["text"].count("```") in {0, 2}
    else:
        assert block["type"] == "actions"
        assert 1 <= len(block["elements"]) <= 25
        assert all(units(one["url"]) <= 3000 and 1 <= units(one["text"]["text"]) <= 75 for one in block["elements"])


@settings(max_examples=60, deadline=None, database=None)
@given(message=MESSAGES)
def test_a_webhook_is_small_and_its_signature_is_right(message: Message) -> None:
    body = webhook.render(message, "https://expctl.example")
    assert len(body) < 20_000
    found = json.loads(body)
    assert (found["type"], found["timestamp"]) == (message.type, "2026-11-30T06:00:00Z")
    now = datetime.now(UTC)
    headers = webhook.headers(["whsec_" + "A" * 32, "whsec_" + "B" * 32], "msg_1", body, now)
    for secret in ("whsec_" + "A" * 32, "whsec_" + "B" * 32):
        assert Webhook(secret).verify(body, headers) == found
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + "C" * 32).verify(body, headers)


def message(**changes: Any) -> Message:
    base = {"type": MessageType.TEST, "at": datetime(2026, 11, 30, tzinfo=UTC), "headline": "x"}
    return Message.model_validate(base | changes)


def test_logs_are_shortened_before_anything_else() -> None:
    lines = [f"sentence {number} " + "é" * 700 for number in range(6)]
    shown = slack.render(message(code="old\n" + "x" * 9000 + "\nthe last line", lines=lines)).decode()
    assert all(f"sentence {number}" in shown for number in range(6))
    code = next(text for _, text in texts(json.loads(shown)["blocks"]) if text.startswith("```"))
    assert units(code) <= 3000
    assert code.endswith("the last line```")
    assert "old" not in code


def test_what_a_header_cannot_hold_is_said_below_it() -> None:
    blocks = json.loads(slack.render(message(headline="why " * 60 + "because")))["blocks"]
    assert blocks[0]["text"]["text"].endswith("…")
    assert blocks[1]["text"]["text"].endswith("because")


def test_without_an_address_of_the_service_there_are_no_links() -> None:
    linked = message(links=[Link(text="Open", path="/e/1")])
    assert "actions" not in slack.render(linked).decode()
    assert json.loads(webhook.render(linked))["data"]["links"] == {}
    assert json.loads(webhook.render(linked, "https://x/"))["data"]["links"] == {"open": "https://x/e/1"}


@pytest.mark.parametrize("limit", [1, 2, 5, 6, 7])
def test_no_escape_and_no_sign_is_cut(limit: int) -> None:
    assert mrkdwn("<b>", limit) in {"…", "&lt;…", "&lt;b…"}
    assert units(mrkdwn("😀😀😀😀", limit)) <= limit
    assert clip("abc", 3) == "abc"
    assert clip_tail("abcdef", 3) == "…ef"
