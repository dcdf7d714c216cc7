"""Whether the server that an experiment names may be asked at all, by what its name stands for now."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from service.domain.endpoint_rule import EndpointRule
from service.domain.reasons import Reason
from workers.engines.base import Readiness


def refused(rule: EndpointRule, url: str) -> Readiness | None:
    """Why not, as a look that found nothing ready; None where it may be asked.

    The connections that follow resolve the name again: what is closed to all must be closed in the network, too.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        return Readiness(ready=False, reason=Reason.BAD_ARGUMENTS, detail=f"{url}: {error}")
    try:
        addresses = list(dict.fromkeys(str(item[4][0]) for item in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
    except (OSError, UnicodeError) as error:
        return Readiness(ready=False, detail=f"{host} cannot be resolved: {error}")
    objection = rule.objection(host, addresses)
    return Readiness(ready=False, reason=Reason.BAD_ARGUMENTS, detail=objection) if objection else None
