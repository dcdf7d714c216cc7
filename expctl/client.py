"""The client of a service, for programs as `from expctl import Client`; the command line uses it too.

    with Client("http://127.0.0.1:8700") as client:
        base, candidate = client.submit([one_spec, another])
        client.wait([base.id, candidate.id])
        print(client.compare(base.id, candidate.id).verdict)

Errors come out as the same classes that the service raised, those of `service.domain.errors`.
"""

from __future__ import annotations

import getpass
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, overload

import httpx

from expctl import credentials
from expctl.addresses import segment, without_credentials
from expctl.answers import Comparison, Event, Experiment, ExperimentDetail, Host, Json, Results
from service.domain import errors

__all__ = ["Client", "Json"]

DEFAULT_SERVER = "http://127.0.0.1:8700"
STREAM_TIMEOUT_S = 60.0
"""The service sends a sign of life more often than this."""
RECONNECTS = 30
NOT_READY = 503
PATIENCE_S = 60.0
"""How long a service may be away while something follows it: a restart, an upgrade."""

THROTTLED_S = 20.0
"""How long a command waits altogether for its turn, where it asks for more than its token may in a short time."""
WAIT_POLL_S = 0.5
FIRST_PATIENCE_S = 10.0
"""For the first look of a wait: a service that has just been killed is back within seconds."""

Told = Callable[[ExperimentDetail], None]

_BY_SLUG: dict[str, type[errors.ExpctlError]] = {
    cls.slug: cls
    for cls in (
        errors.SpecError,
        errors.UsageError,
        errors.TooLarge,
        errors.NotSignedIn,
        errors.Forbidden,
        errors.Throttled,
        errors.NotFound,
        errors.NotReady,
        errors.Conflict,
        errors.Unavailable,
    )
}


class Client:
    """One expctl service. Every method raises a `service.domain.errors.ExpctlError` or gives the API's answer.

    `server`: its address; by default EXPCTL_SERVER, else this machine's own. `token`: by default EXPCTL_TOKEN, else the file of the
    user; `signed_in=False` sends none. `timeout_s`: of one request. Not for several threads at once.
    """

    def __init__(self, server: str | None = None, timeout_s: float = 30.0, *, signed_in: bool = True, token: str = "") -> None:
        given = (server or os.environ.get("EXPCTL_SERVER") or DEFAULT_SERVER).rstrip("/")
        self.server, authorization = without_credentials(given)
        if signed_in and authorization is None and (known := token or credentials.token()):
            authorization = f"Bearer {known}"
        self.patience_s = 0.0
        """How long a reading may wait for a service that is away; PATIENCE_S for what follows something for hours."""
        self.throttled_s = THROTTLED_S
        headers = {"X-Expctl-User": _user()} | ({"Authorization": authorization} if authorization else {})
        # Reading the certificates of all authorities takes longer than most requests, and plain http has no use for them.
        encrypted = self.server.lower().startswith("https:")
        try:
            self._http = httpx.Client(base_url=self.server, timeout=timeout_s, headers=headers, trust_env=False, verify=encrypted)
        except httpx.InvalidURL as error:
            raise self._no_address(error) from None

    def _no_address(self, error: Exception) -> errors.UsageError:
        return errors.UsageError(f"{self.server} is not the address of a server", str(error), "write it like http://127.0.0.1:8700")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def _call(self, method: str, path: str, **kwargs: Any) -> Any:
        """One answer. A reading is asked for again while patience lasts; a change only where the service said that it came too early."""
        started = time.monotonic()
        while True:
            try:
                return self._once(method, path, **kwargs)
            except errors.Unavailable:
                if method != "GET" or time.monotonic() - started >= self.patience_s:
                    raise
                pause_s = 0.5
            except errors.Throttled as error:
                pause_s = error.retry_after_s
                if time.monotonic() + pause_s - started > self.throttled_s:
                    raise
            time.sleep(pause_s)

    def _once(self, method: str, path: str, *, also: Sequence[int] = (), **kwargs: Any) -> Any:
        """One answer; `also`: statuses that are no success and are answers all the same."""
        try:
            response = self._http.request(method, path, **kwargs)
        except httpx.UnsupportedProtocol as error:
            raise self._no_address(error) from None
        except httpx.HTTPError as error:
            todo = "start one with `expctl up`, or name it with --server or EXPCTL_SERVER"
            raise errors.Unavailable(f"no expctl service answers at {self.server}", str(error) or type(error).__name__, todo) from None
        if not response.is_success and response.status_code not in also:
            raise _problem(response)
        try:
            return response.json()
        except ValueError:
            raise _stranger(response) from None

    @overload
    def submit(self, specs: Json, *, key: str | None = None, again: bool = True) -> Experiment: ...
    @overload
    def submit(self, specs: list[Json], *, key: str | None = None, again: bool = True) -> list[Experiment]: ...
    def submit(self, specs: Json | list[Json], *, key: str | None = None, again: bool = True) -> Experiment | list[Experiment]:
        """Queue an experiment, or a list of them: all or nothing. The same key is queued once, however often it is sent.

        `specs` are as in an experiment file; `again=False` gives what was measured already, where its configuration is the same.
        Of a list, as many may come back as `repeat_load` and `recheck_baseline` make of them.
        """
        if key is not None and not (key and key.isascii() and key.isprintable()):
            raise errors.UsageError(f"the idempotency key {key!r} cannot be sent", "a header takes plain letters only", "write another one")
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        answer = self._call("POST", "/v1/experiments", json=specs, headers=headers, params={"again": again})
        return [Experiment(one) for one in answer] if isinstance(answer, list) else Experiment(answer)

    def experiment(self, experiment_id: int) -> ExperimentDetail:
        """One experiment with its steps."""
        return ExperimentDetail(self._object("GET", f"/v1/experiments/{experiment_id}"))

    def experiments(self, *, statuses: Sequence[str] = (), host: str | None = None, limit: int = 50) -> list[Experiment]:
        """The newest experiments."""
        params: list[tuple[str, str | int]] = [("limit", limit), *(("status", status) for status in statuses)]
        if host:
            params.append(("host", host))
        return [Experiment(one) for one in self._object("GET", "/v1/experiments", params=params)["items"]]

    def wait(
        self, ids: Sequence[int], *, timeout_s: float | None = None, fail_fast: bool = False, told: Told | None = None
    ) -> list[ExperimentDetail]:
        """Look again and again until all have finished; gives each as it was last seen, in order.

        One that is not `finished` then has not ended within `timeout_s`, or, with `fail_fast`, another one did not succeed. 0 looks
        once. `told` is called with each as it ends. A service that is away for a while, such as for a restart, is waited for.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        seen: dict[int, ExperimentDetail] = {}
        before, patience = self.patience_s, FIRST_PATIENCE_S
        try:
            while True:
                for one in dict.fromkeys(ids):
                    if one not in seen or not seen[one].finished:
                        self.patience_s = patience if deadline is None else min(patience, max(0.0, deadline - time.monotonic()))
                        seen[one] = self.experiment(one)
                        if told is not None and seen[one].finished:
                            told(seen[one])
                patience = PATIENCE_S
                ended = [one for one in seen.values() if one.finished]
                over = len(ended) == len(seen) or (fail_fast and not all(one.succeeded for one in ended))
                if over or (deadline is not None and time.monotonic() >= deadline):
                    return [seen[one] for one in ids]
                time.sleep(WAIT_POLL_S if deadline is None else min(WAIT_POLL_S, max(0.0, deadline - time.monotonic())))
        finally:
            self.patience_s = before

    def cancel(self, experiment_id: int) -> Experiment:
        """Ask an experiment to end."""
        return Experiment(self._object("POST", f"/v1/experiments/{experiment_id}/cancel"))

    def act(self, verb: str, experiment_id: int, body: Json | None = None) -> Experiment:
        """hold, release or retry."""
        return Experiment(self._object("POST", f"/v1/experiments/{experiment_id}/{verb}", json=body))

    def move(self, experiment_id: int, place: Json) -> Experiment:
        """Move a waiting experiment: {"first": true}, {"last": true} or {"before": id}."""
        return Experiment(self._object("PATCH", f"/v1/experiments/{experiment_id}", json=place))

    def pause(self, host: str, *, paused: bool) -> Host:
        """Pause a host, or let it go on."""
        return Host(self._object("POST", f"/v1/hosts/{segment(host)}/{'pause' if paused else 'resume'}"))

    def baselines(self) -> list[Json]:
        """Every pinned baseline."""
        found: list[Json] = self._call("GET", "/v1/baselines")
        return found

    def pin(self, experiment_id: int, *, pinned: bool) -> Json:
        """Pin a baseline, or forget it."""
        return self._object("PUT" if pinned else "DELETE", f"/v1/experiments/{experiment_id}/baseline")

    def results(self, experiment_id: int, *, ids: bool = False) -> Results:
        """What an experiment measured; with the ids of all tokens where `ids` says so."""
        return Results(self._object("GET", f"/v1/experiments/{experiment_id}/results", params={"ids": ids}))

    @overload
    def compare(self, base: int, candidates: int, *, all_fields: bool = False) -> Comparison: ...
    @overload
    def compare(self, base: int, candidates: Sequence[int], *, all_fields: bool = False) -> list[Comparison]: ...
    def compare(self, base: int, candidates: int | Sequence[int], *, all_fields: bool = False) -> Comparison | list[Comparison]:
        """One comparison with a baseline; a list of them, in order, for a list of candidates. `all_fields`: with `spec_equal`, too."""
        asked = [candidates] if isinstance(candidates, int) else list(candidates)
        answer = self._call("GET", "/v1/compare", params={"base": base, "ids": ",".join(map(str, asked)), "all_fields": all_fields})
        found = [Comparison(one) for one in (answer if isinstance(answer, list) else [answer])]
        return found[0] if isinstance(candidates, int) else found

    def night(self, **asked: str | int) -> Json:
        """How the night is going: `since` (RFC 3339), `host`, `limit`."""
        return self._object("GET", "/v1/night", params=asked)

    def timeline(self, **asked: str) -> Json:
        """What each host did: `since`, `until` (RFC 3339), `host`."""
        return self._object("GET", "/v1/timeline", params=asked)

    def report(self, **asked: str) -> Json:
        """What a night brought, with its evidence: `since`, `until` (RFC 3339), `host`."""
        return self._object("GET", "/v1/report", params=asked)

    def prune(self, params: dict[str, float], *, really: bool) -> list[Json]:
        """What would go of old experiments, or what went."""
        found: list[Json] = self._call("POST" if really else "GET", "/v1/prune", params=params)
        return found

    def hosts(self) -> list[Host]:
        """Every host."""
        return [Host(one) for one in self._call("GET", "/v1/hosts")]

    def events(self, experiment_id: int, after: int = 0) -> list[Event]:
        """Events of an experiment after an id, oldest first."""
        return [Event(one) for one in self._call("GET", f"/v1/experiments/{experiment_id}/events", params={"after": after})]

    def follow_events(self, after: int | None = None, *, experiment_id: int | None = None) -> Iterator[Event]:
        """Events as they happen, without end: after an id, or from now on; of all experiments, or of one."""
        asked = {"after": after, "experiment_id": experiment_id}
        for _, event in self.stream("/v1/events", {name: value for name, value in asked.items() if value is not None}):
            yield Event(event)

    def log(self, experiment_id: int, *, step: str | None = None) -> Iterator[str]:
        """The engine's log as far as it was copied, line by line."""
        after = 0
        while True:
            params: dict[str, str | int] = {"after": after} | ({"step": step} if step else {})
            page = self._object("GET", f"/v1/experiments/{experiment_id}/logs", params=params)
            for piece in page["pieces"]:
                yield from str(piece["text"]).split("\n")
            after = page["cursor"]
            if not page["pieces"]:
                return

    def follow_log(self, experiment_id: int) -> Iterator[Json]:
        """Pieces of the engine's log until the experiment has finished."""
        for kind, piece in self.stream(f"/v1/experiments/{experiment_id}/logs/stream", {"after": 0}):
            if kind == "end":
                return
            yield piece

    def stream(self, path: str, params: dict[str, int]) -> Iterator[tuple[str, Json]]:
        """Server-sent events without end. A connection that breaks is opened again where it broke."""
        import httpx_sse  # noqa: PLC0415 - only what follows needs it

        last = ""
        misses = 0
        while True:
            headers = {"Last-Event-ID": last} if last else {}
            try:
                with httpx_sse.connect_sse(self._http, "GET", path, params=params, headers=headers, timeout=STREAM_TIMEOUT_S) as source:
                    if source.response.is_error:
                        source.response.read()
                        raise _problem(source.response)
                    for event in source.iter_sse():
                        misses = 0
                        last = event.id or last
                        if event.data:
                            yield event.event, event.json()
            except httpx.TransportError as error:
                misses += 1
                if misses > RECONNECTS:
                    todo = "what runs keeps running; try again when the service is back"
                    raise errors.Unavailable(f"the connection to {self.server} is lost", str(error) or type(error).__name__, todo) from None
            time.sleep(min(misses, 5) * 0.5)

    def readiness(self) -> Json:
        """What the service stands on, also where it is not ready."""
        return self._object("GET", "/readyz", also=(NOT_READY,))

    def ready(self) -> bool:
        """Whether the service answers and stands on a database of its own version."""
        try:
            return bool(self.readiness()["ready"])
        except errors.ExpctlError:
            return False

    def _object(self, method: str, path: str, **kwargs: Any) -> Json:
        found: Json = self._call(method, path, **kwargs)
        if not isinstance(found, dict):
            raise errors.Unavailable(f"{self.server}{path} answered with something else", str(found)[:200], "is this an expctl service?")
        return found


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    # A header takes plain letters only.
    return name if name.isascii() and name.isprintable() and name else f"uid{os.getuid()}"


def _stranger(response: httpx.Response) -> errors.Unavailable:
    url, _ = without_credentials(str(response.url))
    return errors.Unavailable(f"{url} answered {response.status_code}", response.text[:200], "is this an expctl service?")


def _problem(response: httpx.Response) -> errors.ExpctlError:
    try:
        body = response.json()
    except ValueError:
        return _stranger(response)
    if not isinstance(body, dict):
        return _stranger(response)
    cls = _BY_SLUG.get(str(body.get("reason")), errors.ExpctlError)
    error = cls(str(body.get("title", response.status_code)), str(body.get("detail") or ""), str(body.get("todo") or ""))
    if isinstance(error, errors.Throttled):
        error.retry_after_s = float(min(int(after), 3600)) if (after := response.headers.get("retry-after", "")).isdecimal() else 1.0
    return error
