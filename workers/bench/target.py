"""Which server is measured, and what is sent to it."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, urlsplit

from service.domain.errors import UsageError
from service.domain.spec import Bench, Prompt

_HTTPS_PORT, _HTTP_PORT = 443, 80
_SHORTEST_SECRET = 6


@dataclass(frozen=True)
class Target:
    """An OpenAI-compatible server and the model to ask it for."""

    base_url: str
    """With or without the trailing /v1."""
    model: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """Sent with each request; may hold an API key."""
    timeout_s: float = 3600.0
    """Longest whole request."""
    connect_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        parts = self.parts
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError(f"{self.base_url} is no base URL", "", "write it like http://127.0.0.1:8000/v1")
        for name, value in self.headers.items():
            if not name or any(sign in f"{name}{value}" for sign in "\r\n\0") or ":" in name or not f"{name}{value}".isascii():
                raise UsageError(f"the header {name!r} cannot be sent", "it holds a sign that HTTP does not allow", "correct it")

    @cached_property
    def parts(self) -> SplitResult:
        """The URL's parts."""
        try:
            parts = urlsplit(self.base_url.rstrip("/"))
            _ = parts.port
        except ValueError as error:
            raise UsageError(f"{self.base_url} is no URL", str(error), "write it like http://127.0.0.1:8000/v1") from None
        return parts

    @property
    def host(self) -> str:
        """Name or address to connect to."""
        return self.parts.hostname or ""

    @property
    def port(self) -> int:
        """The URL's port, or its scheme's."""
        return self.parts.port or (_HTTPS_PORT if self.parts.scheme == "https" else _HTTP_PORT)

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """How to verify the server, for https."""
        return ssl.create_default_context() if self.parts.scheme == "https" else None

    @property
    def api_base(self) -> str:
        """The base URL with /v1."""
        url = self.base_url.rstrip("/")
        return url if url.endswith("/v1") else f"{url}/v1"

    def request(self, prompt: Prompt, bench: Bench, extras: dict[str, Any] | None = None) -> bytes:
        """The whole HTTP request, ready before any clock starts. What the experiment asks for overrides `extras`."""
        route = "chat/completions" if prompt.messages is not None else "completions"
        body = json.dumps({**(extras or {}), **self._payload(prompt, bench)}, ensure_ascii=False).encode()
        path = f"{urlsplit(self.api_base).path}/{route}"
        own = {
            "host": self.parts.netloc.rpartition("@")[2],
            "content-type": "application/json",
            "accept": "text/event-stream",
            # A compressing proxy would hold tokens back.
            "accept-encoding": "identity",
            "user-agent": "expctl-bench",
            # One request a connection: a kept one may be closed by the server in the moment it is used again.
            "connection": "close",
        }
        given = {name.lower(): value for name, value in self.headers.items()}
        headers = {**own, **given, "content-length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body

    def _payload(self, prompt: Prompt, bench: Bench) -> dict[str, Any]:
        asked = {"messages": prompt.messages} if prompt.messages is not None else {"prompt": prompt.prompt}
        return {
            **bench.extra_body,
            "model": self.model,
            **asked,
            "max_tokens": prompt.max_tokens or bench.max_tokens,
            "temperature": bench.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def without_secrets(self, text: str) -> str:
        """A server's words with the values of our headers blotted out, should it repeat them."""
        for value in self.headers.values():
            for secret in {value, value.rpartition(" ")[2]}:
                if len(secret) >= _SHORTEST_SECRET:
                    text = text.replace(secret, "***")
        return text
