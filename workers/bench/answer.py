"""What one streamed answer has said so far, from the JSON chunks of the chat and completions routes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workers.bench.tool_calls import ToolCalls

ABORTED = frozenset({"abort", "aborted", "error", "cancelled", "canceled"})
"""Finish reasons by which a server says that it gave up."""
_SAID = ("metrics", "meta_info", "timings")


@dataclass
class Answer:
    """Text, token times, usage and the finish reason."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tools: ToolCalls = field(default_factory=ToolCalls)
    first_at: float | None = None
    answer_at: float | None = None
    last_at: float | None = None
    gaps: list[float] = field(default_factory=list)
    estimated_tokens: int = 0
    """A chunk counts one, or as many as it has token ids: a lower bound."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    prompt_ids: list[int] | None = None
    output_ids: list[int] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)
    """What engines say of themselves beside the answer: `metrics` (vLLM), `meta_info` (SGLang), `timings` (llama.cpp)."""

    def take(self, chunk: dict[str, Any], at: float) -> None:
        """One chunk, with the time its last byte was read."""
        choices = chunk.get("choices")
        spoke = answered = False
        ids = 0
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            thought, said = self._choice(choice)
            token_ids = _ids(choice.get("token_ids"))
            if token_ids:
                ids += len(token_ids)
                self.output_ids += token_ids
            self._beside(choice)
            spoke, answered = spoke or thought or said, answered or said
        if spoke or ids:
            self._token(at, ids)
            if answered and self.answer_at is None:
                self.answer_at = at
        self._beside(chunk)

    def _beside(self, where: dict[str, Any]) -> None:
        """What stands beside the answer, in the chunk itself or in a choice of it."""
        usage = where.get("usage")
        if isinstance(usage, dict):
            # Where usage comes with every chunk it is a running total, so the last one holds.
            self.usage = usage
        if self.prompt_ids is None and "prompt_token_ids" in where:
            self.prompt_ids = _ids(where["prompt_token_ids"])
        for name in _SAID:
            if name in where and isinstance(where[name], dict):
                self.said[name] = where[name]

    def _choice(self, choice: dict[str, Any]) -> tuple[bool, bool]:
        """Whether the choice held reasoning, and whether it held a part of the answer."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = {}
        # Names differ by version, and some servers send the same text under both.
        thought = delta.get("reasoning") or delta.get("reasoning_content")
        said = delta.get("content") or choice.get("text")
        if thought or not isinstance(said, str) or not said:
            thought, said = _text(thought) or _rarer_thought(delta), _text(said) or _text(delta.get("refusal"))
        called = self._called(delta) if "tool_calls" in delta or "function_call" in delta else False
        if thought:
            self.reasoning.append(thought)
        if said:
            self.text.append(said)
        if choice.get("finish_reason"):
            self._finish(choice["finish_reason"])
        return bool(thought), bool(said) or called

    def _called(self, delta: dict[str, Any]) -> bool:
        """Whether the delta held a piece of a tool call."""
        pieces = delta.get("tool_calls")
        called = [self.tools.add(piece) for piece in (pieces if isinstance(pieces, list) else [])]
        if isinstance(delta.get("function_call"), dict):
            called.append(self.tools.add({"index": 0, "function": delta["function_call"]}))
        return any(called)

    def _finish(self, reason: Any) -> None:
        if isinstance(reason, dict):
            reason = reason.get("type")
        if self.finish_reason not in ABORTED:
            self.finish_reason = str(reason)

    def _token(self, at: float, ids: int) -> None:
        self.estimated_tokens += max(1, ids)
        if self.first_at is None:
            self.first_at = at
        elif self.last_at is not None:
            self.gaps.append(at - self.last_at)
        self.last_at = at

    @property
    def prompt_tokens(self) -> int | None:
        """From usage."""
        return self._usage("prompt_tokens")

    @property
    def completion_tokens(self) -> int | None:
        """From usage; a 0 beside tokens that were seen says that the server does not count."""
        count = self._usage("completion_tokens")
        return None if count == 0 and self.estimated_tokens else count

    @property
    def cached_tokens(self) -> int | None:
        """Tokens of the prompt that came from the server's prefix cache, where it tells."""
        details = (self.usage or {}).get("prompt_tokens_details")
        told = details.get("cached_tokens") if isinstance(details, dict) else None
        if told is None:
            told = self.said.get("timings", {}).get("cache_n")
        return told if isinstance(told, int) and not isinstance(told, bool) else None

    @property
    def reasoning_tokens(self) -> int | None:
        """From usage, where the server tells them apart."""
        details = (self.usage or {}).get("completion_tokens_details")
        if isinstance(details, dict) and isinstance(details.get("reasoning_tokens"), int):
            return int(details["reasoning_tokens"])
        return self._usage("reasoning_tokens")

    def _usage(self, name: str) -> int | None:
        return _count((self.usage or {}).get(name))


def _count(value: Any) -> int | None:
    """A whole number, also where it is written as 7.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _ids(value: Any) -> list[int] | None:
    """Token ids; None for what is no list of whole numbers."""
    return value if isinstance(value, list) and all(type(one) is int for one in value) else None


def _text(value: Any) -> str:
    """A delta's text, which may come as a list of parts; null and what is no text are none."""
    if isinstance(value, str):
        return value
    return "".join(_text(part.get("text")) for part in value if isinstance(part, dict)) if isinstance(value, list) else ""


def _rarer_thought(delta: dict[str, Any]) -> str:
    """Reasoning in the ways of single servers: a field of another name, a list of details, parts of the content."""
    content, details = delta.get("content"), delta.get("reasoning_details")
    parts = content if isinstance(content, list) else ()
    listed = details if isinstance(details, list) else ()
    return (
        _text(delta.get("thinking"))
        or "".join(_text(part.get("text") or part.get("summary")) for part in listed if isinstance(part, dict))
        or "".join(_text(part.get("thinking")) for part in parts if isinstance(part, dict))
    )
