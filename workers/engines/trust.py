"""Whom a look at an engine believes, and where it does not follow."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache

import httpx


@cache
def trusted() -> ssl.SSLContext:
    """Made once: reading the certificates takes 25 ms of CPU, and a load is looked at every second for hours."""
    return httpx.create_ssl_context(trust_env=False)


def looking(headers: Mapping[str, str], timeout_s: float) -> httpx.Client:
    """A client that asks no proxy and follows an answer on its own server only: what was asked is what was allowed."""
    hooks = {"response": [_stay]}
    return httpx.Client(
        headers=dict(headers), timeout=timeout_s, trust_env=False, follow_redirects=True, verify=trusted(), event_hooks=hooks
    )


def _stay(response: httpx.Response) -> None:
    if response.has_redirect_location:
        here, there = response.url, response.url.join(response.headers["location"])
        if (here.scheme, here.host, here.port) != (there.scheme, there.host, there.port):
            raise httpx.RequestError(f"it sends us on to {there.scheme}://{there.host}, where nobody asked for", request=response.request)
