"""One request from its open connection to its judged result."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass

from service.domain.measurement import RequestResult
from service.domain.reasons import Reason
from workers.bench.extras import Extras
from workers.bench.http_stream import Exchange, connect
from workers.bench.stream_reading import StreamReading
from workers.bench.target import Target


@dataclass(frozen=True)
class Job:
    """One request to make."""

    index: int
    """Place in the phase's order."""
    prompt: str
    repeat: int
    request: bytes
    plain: bytes = b""
    """The same without the extra keys, for a server that refuses them."""


@dataclass(frozen=True)
class Timed:
    """A result with the times of its request on the client's clock."""

    index: int
    result: RequestResult
    started: float
    ended: float


async def open_connection(target: Target) -> Exchange | OSError:
    """An open connection, or why there is none."""
    try:
        return await connect(target)
    except OSError as error:  # TimeoutError and ssl.SSLError among them
        return error


async def ask(target: Target, job: Job, connection: Exchange | OSError, extras: Extras | None = None) -> Timed:
    """Make one request on a connection opened before. Never raises for what the server or the network does."""
    if extras is None or not extras.sent:
        return await _ask(target, job, job.plain or job.request, connection)
    timed = await _ask(target, job, job.request, connection)
    again = extras.may_be_why(timed.result)
    extras.learn(timed.result, plain=False)
    if again:
        timed = await _ask(target, job, job.plain, await open_connection(target))
        extras.learn(timed.result, plain=True)
    return timed


async def _ask(target: Target, job: Job, request: bytes, connection: Exchange | OSError) -> Timed:
    if isinstance(connection, OSError):
        return _unconnected(target, job, connection)
    reading = StreamReading()
    started, ended, end, why = await connection.run(request, reading, target.timeout_s)
    reading.finish()
    result = reading.result(job.prompt, job.repeat, started, end, why)
    if result.error_message:
        result = result.model_copy(update={"error_message": target.without_secrets(result.error_message)})
    return Timed(job.index, result, started, ended)


def _unconnected(target: Target, job: Job, error: OSError) -> Timed:
    if isinstance(error, ConnectionRefusedError):
        reason, what = Reason.CONNECTION_REFUSED, "nothing listens there"
    elif isinstance(error, ssl.SSLError):
        reason, what = Reason.BENCH_ERROR, f"TLS: {error}"
    elif isinstance(error, socket.gaierror):
        reason, what = Reason.HOST_UNREACHABLE, f"the name is not known ({error.strerror})"
    elif isinstance(error, TimeoutError):
        reason, what = Reason.HOST_UNREACHABLE, f"no connection within {target.connect_timeout_s:g} s"
    else:
        # asyncio joins the failures of several addresses into one OSError without an errno.
        refused = "Connect call failed" in str(error) and "111" in str(error)
        reason, what = (Reason.CONNECTION_REFUSED if refused else Reason.HOST_UNREACHABLE), str(error)
    now = time.perf_counter()
    message = f"{target.host}:{target.port}: {what}"
    return Timed(job.index, RequestResult(prompt=job.prompt, repeat=job.repeat, ok=False, reason=reason, error_message=message), now, now)
