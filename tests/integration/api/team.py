"""The API of a team's service, in this process, and tokens for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx

from service.api.app import create_app
from service.domain.access import Scope
from service.settings import Settings
from service.store import tokens
from service.store.database import Database
from tests.integration.api.service import Api


class Team(Api):
    """Asks with the token of `who`."""

    def __init__(self, database: Database, **settings: Any) -> None:
        self.database = database
        self.app = create_app(database, settings=Settings(**({"writes_per_minute": 0} | settings)))
        self.tokens: dict[str, str] = {}

    def give(self, who: str, *scopes: Scope, expires_in: timedelta | None = None) -> str:
        """A token of somebody's, remembered by their name."""
        with self.database.write() as session:
            _, token = tokens.create(session, f"{who}'s", who, scopes, "test", expires_in)
        self.tokens[who] = token
        return token

    def of(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return self.ask(method, path, json=body, headers={"authorization": f"Bearer {self.tokens[who]}"} | headers)

    def queued(self, who: str, **changes: Any) -> int:
        answer = self.of(who, "POST", "/v1/experiments", {"name": "x", "engine": {"kind": "vllm", "model": "m"}} | changes)
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])
