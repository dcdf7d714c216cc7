"""What one streamed answer has said so far, from the JSON chunks of the chat and completions routes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from workers.bench.tool_calls import ToolCalls

_GAVE_UP = re.compile(
    r"abort|error|cancel|fail|time_?out|timed_out|interrupt|disconnect|unavailable|insufficient_system_resource", re.IGNORECASE
)
_NO_REASON = frozenset({"null", "none"})
"""Written as a text by servers that mean: not yet."""
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
    last_words: Any = None
    """What a server said of its giving up, beside the finish reason."""
    several: bool = False
    """Whether there is more than one choice: texts, ids and the finish reason are those of the first that spoke."""
    usage: dict[str, Any] | None = None
    prompt_ids: list[int] | None = None
    output_ids: list[int] = field(default_factory=list)
    _index: Any = None
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
            mine = self._is_mine(choice.get("index") or 0)
            thought, said = self._choice(choice, mine=mine)
            token_ids = _ids(choice.get("token_ids"))
            if token_ids:
                ids += len(token_ids)
                if mine:
                    self.output_ids += token_ids
            self.beside(choice)
            spoke, answered = spoke or thought or said, answered or said
        if spoke or ids:
            self._token(at, ids)
            if answered and self.answer_at is None:
                self.answer_at = at
        self.beside(chunk)

    def take_untimed(self, whole: dict[str, Any]) -> None:
        """An answer that came as one object: what it says, but no times."""
        self.take(whole, 0.0)
        self.first_at = self.answer_at = self.last_at = None

    def _is_mine(self, index: Any) -> bool:
        if self._index is None:
            self._index = index
        if index == self._index:
            return True
        self.several = True
        return False

    def beside(self, where: dict[str, Any]) -> None:
        """What stands beside the answer, in the chunk itself or in a choice of it."""
        usage = where.get("usage")
        if isinstance(usage, dict) and _is_later(usage, self.usage):
            self.usage = usage
        if self.prompt_ids is None and "prompt_token_ids" in where:
            self.prompt_ids = _ids(where["prompt_token_ids"])
        for name in _SAID:
            if name in where and isinstance(where[name], dict):
                self.said[name] = where[name]

    def _choice(self, choice: dict[str, Any], *, mine: bool) -> tuple[bool, bool]:
        """Whether the choice held reasoning, and whether it held a part of the answer; the words are kept where it is `mine`."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = self._message(choice)
        # Names differ by version, and some servers send the same text under both.
        thought = delta.get("reasoning") or delta.get("reasoning_content")
        said = delta.get("content") or choice.get("text")
        if thought or not isinstance(said, str) or not said:
            thought, said = _text(thought) or _rarer_thought(delta), _text(said) or _text(delta.get("refusal"))
        called = self._called(delta, keep=mine) if "tool_calls" in delta or "function_call" in delta else False
        if mine:
            if thought:
                self.reasoning.append(thought)
            if said:
                self.text.append(said)
        if choice.get("finish_reason"):
            self._finish(choice, mine=mine)
        return bool(thought), bool(said) or called

    def _message(self, choice: dict[str, Any]) -> dict[str, Any]:
        """A whole message in the place of a delta, where a server makes a stream of one event; some repeat what they streamed in it."""
        message = choice.get("message")
        return message if isinstance(message, dict) and not self.estimated_tokens else {}

    def _called(self, delta: dict[str, Any], *, keep: bool) -> bool:
        """Whether the delta held a piece of a tool call."""
        pieces = delta.get("tool_calls")
        tools = self.tools if keep else ToolCalls()
        called = [tools.add(piece) for piece in (pieces if isinstance(pieces, list) else [])]
        if isinstance(delta.get("function_call"), dict):
            called.append(tools.add({"index": 0, "function": delta["function_call"]}))
        return any(called)

    def _finish(self, choice: dict[str, Any], *, mine: bool) -> None:
        """A choice of several that was given up fails them all."""
        said = choice["finish_reason"]
        reason = str(said.get("type") if isinstance(said, dict) else said)
        if reason.lower() in _NO_REASON or self.gave_up:
            return
        if mine or self.finish_reason is None or _GAVE_UP.search(reason):
            self.finish_reason = reason
            self.last_words = choice.get("error") or (said if isinstance(said, dict) and said.get("message") else None)

    @property
    def gave_up(self) -> bool:
        """Whether the finish reason says that the server did not bring the answer to its end."""
        return self.finish_reason is not None and _GAVE_UP.search(self.finish_reason) is not None

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
        return self._usage("prompt_tokens", "input_tokens")

    @property
    def completion_tokens(self) -> int | None:
        """From usage; a 0 beside tokens that were seen says that the server does not count."""
        count = _made(self.usage)
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

    def _usage(self, *names: str) -> int | None:
        return _first_count(self.usage or {}, *names)


def _made(usage: dict[str, Any] | None) -> int | None:
    """The tokens of the output, by either of the names that servers give them."""
    return None if usage is None else _first_count(usage, "completion_tokens", "output_tokens")


def _is_later(usage: dict[str, Any], known: dict[str, Any] | None) -> bool:
    """Whether usage takes the place of what is known: with every chunk it is a running total, and the last one that was filled in holds."""
    return bool(_made(usage)) or not _made(known)


def _first_count(usage: dict[str, Any], *names: str) -> int | None:
    return next((count for name in names if (count := _count(usage.get(name))) is not None), None)


def _count(value: Any) -> int | None:
    """A whole number, also where it is written as 7.0; none is less than 0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


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
