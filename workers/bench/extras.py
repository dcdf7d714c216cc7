"""Keys that a request carries for the measurement's sake, where the server takes them.

* `cache_salt`: another one with each request, so that no prompt finds itself in the server's prefix cache. Without it every
  repeat of a prompt would measure a warm cache.
* `cache_prompt`: false is llama.cpp's word for the same; it knows no salt.
* `return_token_ids`: the ids of prompt and answer, which say what was really processed.

Most servers take or ignore what they do not know. One that refuses is asked again without them, and from then on never with them.
"""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import Any, Literal

from service.domain.measurement import RequestResult
from service.domain.spec import Bench

_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})


class Extras:
    """The keys of one bench phase, and whether this server takes them."""

    def __init__(self, bench: Bench) -> None:
        self._run = secrets.token_hex(8)
        self._given = "cache_salt" in bench.extra_body
        self.sent = True
        self._proven = False

    def of(self, index: int) -> dict[str, Any]:
        """For the request of this number."""
        return {"cache_salt": f"{self._run}-{index}", "cache_prompt": False, "return_token_ids": True}

    def may_be_why(self, result: RequestResult) -> bool:
        """Whether a request was refused that might be taken without the extra keys."""
        return self.sent and not self._proven and result.http_status in _REFUSED

    def learn(self, result: RequestResult, *, plain: bool) -> None:
        """What an answer shows: taken with the keys, or refused with them and taken without. A refusal of both says nothing."""
        if plain:
            self.sent = result.http_status in _REFUSED
        elif result.http_status == HTTPStatus.OK:
            self._proven = True

    @property
    def salt(self) -> Literal["sent", "refused", "given"]:
        """What became of the salt."""
        if self._given:
            return "given"
        return "sent" if self.sent else "refused"
