"""The pages' own files: style, scripts, and the libraries that lie beside them. Read once, sent compressed, kept by browsers."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from service.domain.errors import NotFound

FOLDER = Path(__file__).parent / "static"
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
KEPT = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


class Asset(NamedTuple):
    """One file."""

    body: bytes
    compressed: bytes
    kind: str
    mark: str
    """Of its content: another version has another address, so that browsers may keep each for ever."""


@cache
def assets() -> dict[str, Asset]:
    """Every file by its path below the folder."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in KINDS:
            body = path.read_bytes()
            mark = hashlib.sha256(body).hexdigest()[:12]
            found[path.relative_to(FOLDER).as_posix()] = Asset(
                body, gzip.compress(body, mtime=0), f"{KINDS[path.suffix]}; charset=utf-8", mark
            )
    return found


def url(name: str) -> str:
    """Where a file is."""
    return f"/static/{name}?v={assets()[name].mark}"


@router.get("/static/{name:path}")
def static(request: Request, name: str) -> Response:
    """One file. Open to everybody: the sign-in page needs them too."""
    asset = assets().get(name)
    if asset is None:
        raise NotFound(f"there is nothing at {request.url.path}")
    headers = {"content-type": asset.kind, "vary": "accept-encoding"}
    if request.query_params.get("v") == asset.mark:
        headers["cache-control"] = KEPT
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.compressed, headers=headers | {"content-encoding": "gzip"})
    return Response(asset.body, headers=headers)
