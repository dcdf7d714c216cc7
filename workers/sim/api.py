"""The routes of the simulated server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

from workers.sim.engine import Answer, Ask, SimEngine
from workers.sim.flags import ServeConfig
from workers.sim.http import Request, Responder
from workers.sim.knobs import Fault, Knobs
from workers.sim.log import API, CORE, EngineLog
from workers.sim.wire import Call, Refused, token_limit, user_text

VERSION = "0.32.0"
GET_ROUTES = ("/health", "/ping", "/version", "/metrics", "/v1/models")
GENERATING = {"/v1/chat/completions": True, "/v1/completions": False}
ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class Api:
    """Answers requests with what the engine gives, and fails as the faults say."""

    routes: tuple[str, ...] = GET_ROUTES

    def __init__(self, config: ServeConfig, engine: SimEngine, knobs: Knobs, log: EngineLog) -> None:
        self.config = config
        self.engine = engine
        self.knobs = knobs
        self.log = log

    async def handle(self, request: Request, responder: Responder) -> None:
        """One request."""
        if request.path.startswith("/v1") and not self._has_key(request):
            await responder.send_json(401, {"error": "Unauthorized"})
        elif request.path in GENERATING and request.method == "POST":
            try:
                await self._generate(request, responder)
            except Refused as refused:
                await responder.send_json(refused.status, refused.content)
        elif request.path in self.routes and request.method in {"GET", "HEAD"}:
            await self.answer_get(request.path, responder)
        elif request.path in GENERATING or request.path in self.routes:
            await responder.send_json(405, {"detail": "Method Not Allowed"})
        else:
            await responder.send_json(404, {"detail": "Not Found"})

    def _has_key(self, request: Request) -> bool:
        if not self.config.api_keys:
            return True
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and key.strip() in self.config.api_keys

    async def answer_get(self, path: str, responder: Responder) -> None:
        """What a route tells."""
        if path == "/metrics":
            page = self.engine.metrics.page() if self.config.log_stats else ""
            await responder.send(200, page, "text/plain; version=1.0.0; charset=utf-8")
        elif path == "/version":
            await responder.send_json(200, {"version": VERSION, "simulated": True})
        elif path == "/v1/models":
            await responder.send_json(200, {"object": "list", "data": [self._card(name) for name in self.config.served_names]})
        else:
            await responder.send(500 if self.knobs.fault("wrong_health") else 200, "", "text/plain")

    def _card(self, name: str) -> dict[str, Any]:
        created, length = int(self.engine.metrics.started_at), self.config.max_model_len
        card = {"id": name, "object": "model", "created": created, "owned_by": "vllm", "root": self.config.model, "parent": None}
        return {**card, "max_model_len": length, "permission": []}

    def _call(self, request: Request) -> Call:
        """The request, checked. Refused says what is wrong with it."""
        chat = GENERATING[request.path]
        try:
            body = json.loads(request.body)
        except ValueError as error:
            raise Refused(400, f"JSON decode error: {error}") from None
        if not isinstance(body, dict):
            raise Refused(400, "the body must be a JSON object")
        model = body.get("model") or self.config.served_names[0]
        if model not in self.config.served_names:
            raise Refused(404, f"The model `{model}` does not exist.", "NotFoundError", "model")
        if self.config.speculative and (body.get("min_p") or body.get("logit_bias")):
            raise Refused(400, "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding.")
        text, prompt_tokens = user_text(body, chat=chat)
        limit = token_limit(body, prompt_tokens, self.config.max_model_len, chat=chat)
        ask = Ask(text, prompt_tokens, limit, bool(body.get("ignore_eos")), reasons=chat, salt=str(body.get("cache_salt") or ""))
        options = body.get("stream_options") or {}
        return Call(
            ask=ask,
            answer=Answer(ask, self.engine.profile.for_text(text)),
            model=str(model),
            chat=chat,
            stream=bool(body.get("stream")),
            include_usage=bool(options.get("include_usage")) or self.config.force_usage,
            continuous_usage=bool(options.get("include_usage") and options.get("continuous_usage_stats")) or self.config.force_usage,
            token_ids=bool(body.get("return_token_ids")),
        )

    async def _generate(self, request: Request, responder: Responder) -> None:
        call = self._call(request)
        number = self.engine.number_request(call.ask)
        fault = self.knobs.stream_fault(number) if number else None
        plain = self.knobs.fault("no_usage")
        with_usage = not (plain and plain.hits(number))
        send = self._stream if call.stream else self._send_whole
        await send(call, responder, fault, with_usage)

    async def _send_whole(self, call: Call, responder: Responder, fault: Fault | None, with_usage: bool) -> None:
        tokens, finish = 0, "abort"
        async for piece in self.engine.run(call.ask, responder.is_gone):
            tokens, finish = piece.last, piece.finish or finish
            if fault and tokens >= fault.value:
                await self._fail_whole(fault, responder)
                return
        if not responder.is_gone():
            await responder.send_json(200, call.whole(tokens, finish, with_usage=with_usage))

    async def _fail_whole(self, fault: Fault, responder: Responder) -> None:
        if fault.name == "exit_mid_stream":
            self._die()
        elif fault.name == "hang_stream":
            await _wait_until(responder.is_gone)
        elif fault.name in {"reset", "truncate"}:
            responder.reset()
        else:
            error = {"message": ENGINE_DEAD, "type": "InternalServerError", "param": None, "code": 500}
            await responder.send_json(500, {"error": error})

    async def _stream(self, call: Call, responder: Responder, fault: Fault | None, with_usage: bool) -> None:
        responder.start_stream()
        opening = call.opening_chunk()
        tokens = 0
        async for piece in self.engine.run(call.ask, responder.is_gone):
            if opening:  # vLLM sends it with the first token, not before
                await responder.event_json(opening)
                opening = None
            tokens = piece.last
            failing = fault is not None and tokens >= fault.value
            shown = call.piece_chunk(piece)
            if failing:
                shown["choices"][0]["finish_reason"] = None
            await responder.event_json(shown)
            if failing and fault is not None:
                await self._fail_stream(fault, call, responder, tokens, with_usage)
                return
        if responder.is_gone():
            return
        if call.include_usage and with_usage:
            await responder.event_json(call.usage_chunk(tokens))
        await responder.event("[DONE]")
        await responder.end_stream()

    async def _fail_stream(self, fault: Fault, call: Call, responder: Responder, tokens: int, with_usage: bool) -> None:
        if fault.name == "exit_mid_stream":
            self._die()
        elif fault.name == "reset":
            responder.reset()
            return
        elif fault.name == "hang_stream":
            await _wait_until(responder.is_gone)
            return
        elif fault.name == "error_chunk":
            error = {"message": ENGINE_DEAD, "type": "InternalServerError", "param": None, "code": 500}
            await responder.event_json({"error": error})
            await responder.event("[DONE]")
        elif fault.name == "abort":
            await responder.event_json(call.finish_chunk("abort"))
            if call.include_usage and with_usage:
                await responder.event_json(call.usage_chunk(tokens))
            await responder.event("[DONE]")
        await responder.end_stream()

    def _die(self) -> None:
        """The whole process ends at once, as after a fatal error of the engine."""
        self.log.error(CORE, "core.py:1523", "EngineCore encountered a fatal error.\nRuntimeError: CUDA error: an illegal memory access")
        self.log.error(API, "async_llm.py:906", f"vllm.v1.engine.exceptions.EngineDeadError: {ENGINE_DEAD}")
        os._exit(1)


async def _wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the stream reader has no event for a client that left
        await asyncio.sleep(0.05)
