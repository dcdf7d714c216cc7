"""The JSON of OpenAI's routes as vLLM 0.32 writes it."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from workers.sim.engine import Answer, Ask, Piece, prompt_ids


class Refused(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.content = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass
class Call:
    """One generating request: what was asked, and the shape of what goes back."""

    ask: Ask
    answer: Answer
    model: str
    chat: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    token_ids: bool
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.id = f"{'chatcmpl' if self.chat else 'cmpl'}-{uuid.uuid4().hex}"

    def usage(self, tokens: int) -> dict[str, Any]:
        """Token counts after so many tokens."""
        prompt = self.ask.prompt_tokens
        usage: dict[str, Any] = {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}
        if self.chat:
            usage["completion_tokens_details"] = {"reasoning_tokens": self.answer.reasoning_tokens(tokens)}
        return usage

    def opening_chunk(self) -> dict[str, Any] | None:
        """The first chunk of a chat stream has the role and no token; completions have none such."""
        if not self.chat:
            return None
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        chunk = self._chunk([choice])
        if self.token_ids:
            chunk["prompt_token_ids"] = prompt_ids(self.ask.text, self.ask.prompt_tokens)
        return chunk

    def piece_chunk(self, piece: Piece) -> dict[str, Any]:
        """A chunk with the tokens of one engine step, one or several."""
        reasoning, content = self.answer.split(piece)
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": piece.finish, "stop_reason": None}
        if self.chat:
            choice["delta"] = {key: text for key, text in (("reasoning", reasoning), ("content", content)) if text}
        else:
            choice["text"] = content
        if self.token_ids:
            choice["token_ids"] = self.answer.tokens(piece)
            if not self.chat and piece.first == 0:
                choice["prompt_token_ids"] = prompt_ids(self.ask.text, self.ask.prompt_tokens)
        chunk = self._chunk([choice])
        if self.continuous_usage:
            chunk["usage"] = self.usage(piece.last)
        return chunk

    def finish_chunk(self, reason: str) -> dict[str, Any]:
        """A chunk without tokens that ends the choice."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        choice["delta" if self.chat else "text"] = {} if self.chat else ""
        return self._chunk([choice])

    def usage_chunk(self, tokens: int) -> dict[str, Any]:
        """The trailing chunk with the counts and no choice."""
        return {**self._chunk([]), "usage": self.usage(tokens)}

    def whole(self, tokens: int, finish: str, *, with_usage: bool) -> dict[str, Any]:
        """The answer in one piece."""
        piece = Piece(0, tokens, finish)
        reasoning, content = self.answer.split(piece)
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish, "stop_reason": None}
        if self.chat:
            choice["message"] = {"role": "assistant", "content": content or None, "reasoning": reasoning or None, "tool_calls": []}
        else:
            choice["text"] = content
        body = {**self._chunk([choice]), "object": "chat.completion" if self.chat else "text_completion"}
        if self.token_ids:
            choice["token_ids"] = self.answer.tokens(piece)
            (body if self.chat else choice)["prompt_token_ids"] = prompt_ids(self.ask.text, self.ask.prompt_tokens)
        if with_usage:
            body["usage"] = self.usage(tokens)
        return body

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


def user_text(body: dict[str, Any], *, chat: bool) -> tuple[str, int]:
    """The user's words and a rough count of the prompt's tokens (four characters each)."""
    if not chat:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and prompt and all(isinstance(item, int) for item in prompt):
            return " ".join(str(item) for item in prompt), len(prompt)
        text = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
        if not isinstance(text, str) or not text:
            raise Refused(400, "Either prompt or prompt_embeds must be provided and non-empty.")
        return text, 1 + len(text) // 4
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise Refused(400, "messages: a non-empty list of messages is needed")
    texts = [_content(message.get("content")) for message in messages]
    words = "\n".join(text for message, text in zip(messages, texts, strict=True) if message.get("role") == "user")
    return words, 4 * len(messages) + sum(1 + len(text) // 4 for text in texts)


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def token_limit(body: dict[str, Any], prompt_tokens: int, max_model_len: int, *, chat: bool) -> int:
    """How many tokens may be generated; refuses what does not fit the context."""
    given = body.get("max_completion_tokens") or body.get("max_tokens")
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
        raise Refused(400, f"max_tokens must be at least 1, got {given}.", param="max_tokens")
    wanted = given if given is not None else (max_model_len - prompt_tokens if chat else 16)
    if prompt_tokens + max(wanted, 1) > max_model_len:
        raise Refused(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {wanted} output tokens and your "
            f"prompt contains {prompt_tokens} input tokens, for a total of {prompt_tokens + wanted} tokens. Please reduce the length of "
            "the input prompt or the number of requested output tokens.",
            param="input_tokens",
        )
    return wanted
