"""From a template and what is known to an answer, with the policy that keeps scripts and styles to our own files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.pages import words
from service.pages.assets import url as asset_url

TEMPLATES = Path(__file__).parent / "templates"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# Browsers leave the origin out of a form's request under a stricter policy, and by it we tell our own forms from others'.
HEADERS = {"content-security-policy": POLICY, "referrer-policy": "same-origin"}
NAVIGATION = (
    ("tonight", "/", "Tonight"),
    ("queue", "/queue", "Queue"),
    ("timeline", "/timeline", "Timeline"),
    ("compare", "/compare", "Compare"),
    ("night", "/night", "Digest"),
    ("hosts", "/hosts", "Hosts"),
    ("deliveries", "/deliveries", "Deliveries"),
)


@cache
def environment() -> Environment:
    """Templates, compiled once."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(words.FILTERS)
    made.filters["plain_json"] = lambda value: json.dumps(value, ensure_ascii=False, indent=1, default=str)
    made.globals.update(asset=asset_url, navigation=NAVIGATION, version=version("expctl"), address=address)
    return made


def address(path: str, **asked: Any) -> str:
    """A path with a query; what is None or empty is left out."""
    given = {key: value for key, value in asked.items() if value not in {None, ""}}
    return f"{path}?{urlencode(given)}" if given else path


def page(request: Request, template: str, context: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """One page. `who` and `may` of the context are filled in from whoever asks."""
    access = getattr(request.state, "viewer", None)
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    given = {
        "here": here,
        "who": access,
        "loopback": request.app.state.loopback_only,
        "live": False,
        "twin": None,
        "hint": server_hint(request),
    }
    html = environment().get_template(template).render(given | dict(context))
    return HTMLResponse(html, status_code=status, headers=HEADERS)


def server_hint(request: Request) -> str:
    """What a command line has to name beside the verb to reach this service; empty where it is the default."""
    base = request.app.state.settings.base_url or str(request.base_url).rstrip("/")
    return "" if base == "http://127.0.0.1:8700" else f" --server {base}"
