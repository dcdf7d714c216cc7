"""Whom HTTPS believes."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def trusted() -> ssl.SSLContext:
    """Made once: reading the certificates takes 25 ms of CPU, and a load is looked at every second for hours."""
    return httpx.create_ssl_context(trust_env=False)
