"""Addresses as people write them, and what of them may be shown."""

from __future__ import annotations

import base64
import re
from urllib.parse import quote, unquote_to_bytes

from service.domain.errors import UsageError

_USERINFO = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*://)?)([^/?#]*)@")


def without_credentials(url: str) -> tuple[str, str | None]:
    """The address as it may be shown, and the Authorization header that the user and the password in it stand for."""
    found = _USERINFO.match(url)
    if found is None:
        return url, None
    user, _, password = found[2].partition(":")
    pair = base64.b64encode(unquote_to_bytes(user) + b":" + unquote_to_bytes(password))
    return found[1] + url[found.end() :], f"Basic {pair.decode()}"


def segment(name: str) -> str:
    """A name as one segment of a path, whatever signs it holds."""
    if not name:
        raise UsageError("the name of a host is empty", "", "see `expctl doctor` for the hosts of the service")
    # Dots alone would be taken for a way up the path.
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")
