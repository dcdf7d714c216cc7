"""What a command line of `expctl bench` asks for: everything that can be wrong with it is found before anything is measured."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expctl.addresses import without_credentials
from service.domain.errors import UsageError

if TYPE_CHECKING:
    from service.domain.spec import Bench

MOST_DIGITS = 9
LONGEST_S = 30 * 86400.0
_ENV = "env:"


def server(base_url: str, api_key: str | None, given: list[str]) -> tuple[str, dict[str, str]]:
    """The base URL as it may be shown, and the headers of each request: what stood in it as user and password is among them."""
    url, authorization = without_credentials(base_url)
    headers = _headers(api_key, given)
    if authorization is None:
        return url, headers
    if any(name.lower() == "authorization" for name in headers):
        raise UsageError(
            f"--base-url {url} names a user, and --api-key or --header signs in too", "only one of them could be sent", "leave one out"
        )
    return url, headers | {"Authorization": authorization}


def _headers(api_key: str | None, given: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError("a --header is not of the form K=V", "", "write it like --header X-Team=infra")
        headers[name.strip()] = value
    if api_key is not None and api_key.startswith(_ENV):
        variable = api_key.removeprefix(_ENV)
        api_key = os.environ.get(variable)
        if not api_key:
            raise UsageError(f"--api-key: the variable {variable} is not set", "", f"export {variable} first")
    return headers if api_key is None else {**headers, "Authorization": f"Bearer {api_key}"}


def asked(prompts: str, concurrency: str, extra_body: str, **plain: Any) -> Bench:
    """The benchmark, with the prompts of its file."""
    from pydantic import ValidationError  # noqa: PLC0415 - as the load client

    from service.domain.refusals import refusal  # noqa: PLC0415
    from service.domain.spec import Bench  # noqa: PLC0415
    from workers.bench.prompts import load_prompts  # noqa: PLC0415

    levels = [part for part in concurrency.replace(" ", ",").split(",") if part]
    if not all(part.isdecimal() and len(part) <= MOST_DIGITS for part in levels):
        raise UsageError(f"--concurrency {concurrency} is no list of numbers", "", "write it like --concurrency 1 8")
    values = {"prompts": prompts if prompts == "five" else load_prompts(prompts), "concurrency": [int(part) for part in levels]}
    try:
        made = Bench.model_validate({**values, "extra_body": _json(extra_body), **plain})
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-") if first["loc"] else "options"
        raise UsageError(f"--{option} is wrong", refusal(dict(first)), "see `expctl bench --help`") from None
    _must_be_sendable(made)
    return made


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("--extra-body is not JSON", str(error), """write it like --extra-body '{"top_p": 0.9}'""") from None


def _must_be_sendable(bench: Bench) -> None:
    from service.domain.refusals import unusable_number, unusable_text  # noqa: PLC0415 - as the load client

    for option, value in (("--prompts", bench.prompts), ("--extra-body", bench.extra_body)):
        plain = value if isinstance(value, str | dict) else [prompt.model_dump() for prompt in value]
        odd = unusable_text(plain)
        if odd is not None:
            raise UsageError(f"{option}: {odd!r:.60} holds half a character", "no request could carry it", "remove it")
        number = unusable_number(plain)
        if number is not None:
            raise UsageError(f"{option}: {'.'.join(map(str, number[0]))}: {number[1]}", "", "correct it")


def check_timeout(timeout: float) -> None:
    """A request needs some time, and a number that is one."""
    if not 0 < timeout <= LONGEST_S or math.isnan(timeout):
        raise UsageError(f"--timeout {timeout:g} is no time limit", f"it must be more than 0 and at most {LONGEST_S:g} seconds", "")


def metrics(given: str | None) -> tuple[str | None, dict[str, str] | None]:
    """Where the counters are asked for as it may be shown (or `off`, or None for the default), and the headers of its own."""
    if given is None or given == "off":
        return given, None
    url, authorization = without_credentials(given)
    scheme, found, rest = url.partition("://")
    if not found or scheme.lower() not in {"http", "https"} or not rest.strip("/"):
        raise UsageError(f"--engine-metrics {url} is no URL", "", "write it like http://127.0.0.1:8000/metrics, or: off")
    return url, {"Authorization": authorization} if authorization else None


def check_output(output: Path) -> None:
    """A file that cannot be written is found now, not when an hour's figures are to go there."""
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output} cannot be written", "its folder does not exist", "create the folder first")
    try:
        if not output.exists():
            output.open("xb").close()
            output.unlink()
        elif output.is_file() or output.is_dir():
            output.open("ab").close()
    except OSError as error:
        raise UsageError(f"--output {output} cannot be written", error.strerror or str(error), "give the path of a file") from None
