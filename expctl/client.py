"""The HTTP client that the command line uses; errors come out as the same classes that the service raised."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from service.domain import errors

DEFAULT_SERVER = "http://127.0.0.1:8700"

Json = dict[str, Any]

_BY_SLUG: dict[str, type[errors.ExpctlError]] = {
    cls.slug: cls
    for cls in (
        errors.SpecError,
        errors.UsageError,
        errors.NotSignedIn,
        errors.NotFound,
        errors.NotReady,
        errors.Conflict,
        errors.Unavailable,
    )
}


class Client:
    """One expctl service. Every method raises a `service.domain.errors.ExpctlError` or gives the API's answer."""

    def __init__(self, server: str | None = None, timeout_s: float = 30.0) -> None:
        self.server = (server or os.environ.get("EXPCTL_SERVER") or DEFAULT_SERVER).rstrip("/")
        headers = {"X-Expctl-User": _user()}
        try:
            self._http = httpx.Client(base_url=self.server, timeout=timeout_s, headers=headers, trust_env=False)
        except httpx.InvalidURL as error:
            raise errors.UsageError(
                f"{self.server} is not the address of a server", str(error), "write it like http://127.0.0.1:8700"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def _call(self, method: str, path: str, **kwargs: Any) -> Any:
        try:
            response = self._http.request(method, path, **kwargs)
        except httpx.UnsupportedProtocol as error:
            raise errors.UsageError(
                f"{self.server} is not the address of a server", str(error), "write it like http://127.0.0.1:8700"
            ) from None
        except httpx.HTTPError as error:
            todo = "start one with `expctl up`, or name it with --server or EXPCTL_SERVER"
            raise errors.Unavailable(f"no expctl service answers at {self.server}", str(error) or type(error).__name__, todo) from None
        if response.is_success:
            return response.json()
        raise _problem(response)

    def submit(self, spec: Json) -> Json:
        """Queue an experiment."""
        return self._object("POST", "/v1/experiments", json=spec)

    def experiment(self, experiment_id: int) -> Json:
        """One experiment with its steps."""
        return self._object("GET", f"/v1/experiments/{experiment_id}")

    def experiments(self, *, statuses: Sequence[str] = (), host: str | None = None, limit: int = 50) -> list[Json]:
        """The newest experiments."""
        params: list[tuple[str, str | int]] = [("limit", limit), *(("status", status) for status in statuses)]
        if host:
            params.append(("host", host))
        items: list[Json] = self._object("GET", "/v1/experiments", params=params)["items"]
        return items

    def cancel(self, experiment_id: int) -> Json:
        """Ask an experiment to end."""
        return self._object("POST", f"/v1/experiments/{experiment_id}/cancel")

    def results(self, experiment_id: int) -> Json:
        """What an experiment measured."""
        return self._object("GET", f"/v1/experiments/{experiment_id}/results")

    def compare(self, base: int, candidates: Sequence[int]) -> Any:
        """One comparison, or a list of them for several candidates."""
        return self._call("GET", "/v1/compare", params={"base": base, "ids": ",".join(str(one) for one in candidates)})

    def hosts(self) -> list[Json]:
        """Every host."""
        found: list[Json] = self._call("GET", "/v1/hosts")
        return found

    def events(self, experiment_id: int, after: int = 0) -> list[Json]:
        """Events of an experiment after an id."""
        found: list[Json] = self._call("GET", f"/v1/experiments/{experiment_id}/events", params={"after": after})
        return found

    def log(self, experiment_id: int, *, step: str | None = None, follow: bool = False, poll_s: float = 0.5) -> Iterator[str]:
        """The engine's log, line by line; with `follow`, until the experiment has finished."""
        after = 0
        while True:
            params: dict[str, str | int] = {"after": after} | ({"step": step} if step else {})
            page = self._object("GET", f"/v1/experiments/{experiment_id}/logs", params=params)
            for piece in page["pieces"]:
                yield from str(piece["text"]).split("\n")
            after = page["cursor"]
            if page["finished"] or (not follow and not page["pieces"]):
                return
            if not page["pieces"]:
                time.sleep(poll_s)

    def ready(self) -> bool:
        """Whether the service answers and stands on a database of its own version."""
        try:
            return bool(self._object("GET", "/readyz")["ready"])
        except errors.ExpctlError:
            return False

    def _object(self, method: str, path: str, **kwargs: Any) -> Json:
        found: Json = self._call(method, path, **kwargs)
        return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"


def _problem(response: httpx.Response) -> errors.ExpctlError:
    try:
        body = response.json()
    except ValueError:
        return errors.Unavailable(f"{response.url} answered {response.status_code}", response.text[:200], "is this an expctl service?")
    cls = _BY_SLUG.get(str(body.get("reason")), errors.ExpctlError)
    return cls(str(body.get("title", response.status_code)), str(body.get("detail") or ""), str(body.get("todo") or ""))
