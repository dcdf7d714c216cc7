"""Sends the messages: several at a time, one of each line, none before its earlier ones, and nobody waits for a slow receiver."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import httpx
import structlog
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlmodel import Session

from service.domain.errors import UsageError
from service.domain.messages import Message
from service.domain.targets import AllowList
from service.settings import Settings
from service.store import outbox
from service.store.database import Database
from service.store.outbox import Attempted, Claimed
from workers.mailroom import Mailroom
from workers.notify import sending
from workers.notify.sending import Letter

log = structlog.get_logger()

AWAY = (OperationalError, InterfaceError, InternalError, PoolTimeout)
"""What the database answers while it does not."""
POLL_S = 0.5
DIGEST_S = 15.0
"""How often it is asked whether a night is over."""
PAUSE_S = 5.0
"""After an error of the database."""
EACH = 4
"""Messages in flight per notifier."""
LEAVE_S = 3.0
"""How long messages in flight may still take when it is asked to stop. What is cut then is sent again, under the same id."""


class Postman:
    """Delivers what the outbox holds. Two of them at once share the work: what one has claimed the other leaves alone."""

    def __init__(self, database: Database, settings: Settings, *, clock: Callable[[Session], float] = outbox.now) -> None:
        self._database, self._settings, self._clock = database, settings, clock
        self._mailroom = Mailroom(database)
        self._allow = _allow_list(settings.notify_allow)
        self._flying: dict[asyncio.Task[None], Claimed] = {}
        self._digest_at: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set. Errors of the database are waited out; no message can end it."""
        asyncio.run(self._run(stop))

    async def _run(self, stop: threading.Event) -> None:
        async with sending.client() as http:
            while not stop.is_set():
                pause = POLL_S
                try:
                    await asyncio.to_thread(self.collect)
                    await self._take(http)
                except SQLAlchemyError as error:
                    log.warning("database error", error=str(error))
                    pause = PAUSE_S
                await self._wait(pause)
            await self._leave()

    async def _wait(self, seconds: float) -> None:
        """Until it is time to look again: at once when something has landed, for its line may have more."""
        if self._flying:
            await asyncio.wait(self._flying, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(seconds)

    async def _leave(self) -> None:
        if self._flying:
            await asyncio.wait(self._flying, timeout=LEAVE_S)
        for task in list(self._flying):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def collect(self) -> None:
        """Make deliveries of what has happened."""
        while self._mailroom.sort():
            pass
        if self._digest_at is None or time.monotonic() - self._digest_at >= DIGEST_S:
            self._digest_at = time.monotonic()
            self._mailroom.close_nights()

    def once(self) -> int:
        """Collect, send everything that is due now and wait for it; gives how many tries that were."""
        self.collect()
        return asyncio.run(self._once())

    async def _once(self) -> int:
        tries = 0
        async with sending.client() as http:
            while (taken := await self._take(http)) or self._flying:
                tries += taken
                if self._flying:
                    await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)
        return tries

    async def _take(self, http: httpx.AsyncClient) -> int:
        claimed = await asyncio.to_thread(self._claim, list(self._flying.values()))
        for one in claimed:
            task = asyncio.create_task(self._deliver(http, one))
            self._flying[task] = one
            task.add_done_callback(self._landed)
        return len(claimed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            # Its claim runs out, and it is sent again under the same id.
            log.error("a delivery could not be recorded", error=repr(task.exception()))

    def _claim(self, flying: list[Claimed]) -> list[Claimed]:
        room = {notifier: EACH - count for notifier, count in Counter(one.notifier_id for one in flying).items()}
        with self._database.read() as session:
            if not outbox.due(session, self._clock(session), [one for one, places in room.items() if places <= 0]):
                return []
        with self._database.write() as session:
            return outbox.claim(session, self._clock(session), room, EACH, [one.id for one in flying])

    async def _deliver(self, http: httpx.AsyncClient, claimed: Claimed) -> None:
        result = await self._try(http, claimed)
        if result.error is not None:
            log.warning("a message did not arrive", delivery=claimed.id, why=result.error)
        while True:
            try:
                await asyncio.to_thread(self._record, claimed, result)
            except AWAY as error:
                # It may have arrived, and only we know: it would be sent twice if that were not written down in the end.
                log.warning("database error", error=str(error))
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def _try(self, http: httpx.AsyncClient, claimed: Claimed) -> Attempted:
        if isinstance(self._allow, UsageError):
            return Attempted(error=str(self._allow))
        try:
            message = Message.model_validate(claimed.body)
            letter = Letter(claimed.kind, claimed.url, claimed.secrets, claimed.message_id, message, claimed.perhaps_sent)
            answer = await sending.send(http, letter, self._allow, self._settings.base_url)
        except Exception as error:  # noqa: BLE001 - a message that cannot even be written counts as a failure like any other
            return Attempted(error=f"the message could not be sent: {type(error).__name__}")
        return Attempted(answer.http_status, answer.error, answer.text, answer.seconds, answer.pause_s, answer.unsure)

    def _record(self, claimed: Claimed, result: Attempted) -> None:
        with self._database.write() as session:
            outbox.record(session, claimed, result, self._clock(session))


def _allow_list(text: str) -> AllowList | UsageError:
    """The setting, or what is wrong with it: each message says so then, and the steward's other work goes on."""
    try:
        return AllowList.parse(text)
    except UsageError as error:
        log.error(  # noqa: TRY400 - an operator's typing error needs no traceback
            "the allow-list cannot be read, so nothing is sent", why=str(error)
        )
        return error
