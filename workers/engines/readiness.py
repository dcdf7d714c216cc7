"""Does it really serve: the model is listed and one token comes back. Shared by every engine with an OpenAI API."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx

from service.domain.reasons import Reason
from workers.engines.base import Readiness
from workers.engines.trust import looking

LOOK_S = 10.0
"""Longest wait for a list of models or a version."""
TOKEN_S = 120.0
"""Longest wait for the one token: the first after a load may compile kernels for half a minute."""
PROMPT = "Say one word."
SHOWN = 300


class _NotYet(Exception):
    """It does not serve; `reason` where waiting longer cannot help."""

    def __init__(self, detail: str, reason: Reason | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason


def probe(base_url: str, model: str, headers: Mapping[str, str], token_s: float = TOKEN_S) -> Readiness:
    """One look at `base_url` (ends in /v1). An empty `model` takes the only one listed. Never raises."""
    models: tuple[str, ...] = ()
    try:
        with looking(headers, LOOK_S) as client:
            models = _models(client, base_url)
            wanted = _chosen(model, models)
            token = _one_token(client, base_url, wanted, time.monotonic() + token_s)
            return Readiness(ready=True, detail=f"{wanted} answered", engine_version=_version(client, base_url), models=models, token=token)
    except _NotYet as error:
        return Readiness(ready=False, reason=error.reason, detail=error.detail, models=models)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Readiness(ready=False, detail=f"{base_url}: {error or type(error).__name__}", models=models)


def _models(client: httpx.Client, base_url: str) -> tuple[str, ...]:
    answer = client.get(f"{base_url}/models")
    if answer.status_code in {401, 403}:
        raise _NotYet(f"the server refuses the API key: {_shown(answer)}", Reason.AUTH_FAILED)
    if answer.status_code != httpx.codes.OK:
        raise _NotYet(f"/v1/models answers {_shown(answer)}")
    try:
        return tuple(str(entry["id"]) for entry in answer.json()["data"])
    except (ValueError, TypeError, KeyError):
        raise _NotYet(f"/v1/models is not a list of models: {_shown(answer)}", Reason.WRONG_SERVER_ON_PORT) from None


def _chosen(model: str, models: tuple[str, ...]) -> str:
    if model and model not in models:
        raise _NotYet(f"the server on this port serves {', '.join(models) or 'nothing'}, not {model}", Reason.WRONG_SERVER_ON_PORT)
    if model:
        return model
    if len(models) > 1:
        raise _NotYet(f"the server lists {len(models)} models ({', '.join(models)}): name one", Reason.BAD_ARGUMENTS)
    if not models:
        raise _NotYet("the server lists no model")
    return models[0]


def _one_token(client: httpx.Client, base_url: str, model: str, deadline: float) -> str:
    """Text of one generated token; empty where it has none of its own (part of a character, a hidden one)."""
    common = {"model": model, "max_tokens": 1, "temperature": 0, "stream": False}
    answer = _post(client, f"{base_url}/chat/completions", {**common, "messages": [{"role": "user", "content": PROMPT}]}, deadline)
    if answer.status_code in {400, 404, 405, 422}:
        # A base model has no chat template, and some servers have no chat route.
        refusal = _shown(answer)
        answer = _post(client, f"{base_url}/completions", {**common, "prompt": PROMPT}, deadline)
        if answer.status_code in {400, 404, 405, 422}:
            raise _NotYet(f"the server refuses a request for one token: {refusal}", Reason.REQUEST_REFUSED)
    if answer.status_code in {401, 403}:
        raise _NotYet(f"the server refuses the API key: {_shown(answer)}", Reason.AUTH_FAILED)
    if answer.status_code != httpx.codes.OK:
        raise _NotYet(f"a request for one token got {_shown(answer)}")
    token = _token(answer)
    if token is None:
        raise _NotYet(f"no token came back: {_shown(answer)}")
    return token


def _post(client: httpx.Client, url: str, body: dict[str, Any], deadline: float) -> httpx.Response:
    return client.post(url, json=body, timeout=httpx.Timeout(max(deadline - time.monotonic(), 0.1), connect=LOOK_S))


def _token(answer: httpx.Response) -> str | None:
    try:
        body = answer.json()
        choice = body["choices"][0]
        message = choice.get("message") or {}
        texts = (message.get("content"), message.get("reasoning"), message.get("reasoning_content"), choice.get("text"))
        text = next((str(text) for text in texts if text), "")
        counted = (body.get("usage") or {}).get("completion_tokens") or 0
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
    return text if text or counted >= 1 or message.get("tool_calls") else None


def _version(client: httpx.Client, base_url: str) -> str | None:
    """What vLLM's /version says; other servers have none, and that is fine."""
    try:
        answer = client.get(f"{base_url.removesuffix('/v1')}/version")
        return str(answer.json()["version"]) if answer.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, ValueError, TypeError, KeyError):
        return None


def _shown(answer: httpx.Response) -> str:
    return f"{answer.status_code} {' '.join(answer.text.split())[:SHOWN]}".strip()
