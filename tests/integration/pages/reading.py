"""A browser as far as these tests need one: it reads pages, and sends forms with its origin and its cookie."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urlencode

import httpx

from tests.integration.api.service import Api

ORIGIN = "http://127.0.0.1"


class Page(HTMLParser):
    """A page's parts: its text, its links, the forms' actions, and what its policy forbids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.links: list[str] = []
        self.actions: list[str] = []
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.inline: list[str] = []
        self._text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        if tag == "a":
            self.links.append(given.get("href", ""))
        elif tag == "form" and given.get("method") == "post":
            self.actions.append(given["action"])
        elif tag in {"script", "link"} and "alternate" not in given.get("rel", ""):
            self.sources.append(given.get("src") or given.get("href", ""))
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        self.inline += [tag] if tag == "style" or (tag == "script" and "src" not in given) else []

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    @property
    def text(self) -> str:
        """What a person reads, blanks joined."""
        return re.sub(r"\s+", " ", " ".join(self._text))


class Browser:
    """Looks at the app's pages."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cookie: str | None = None

    def get(self, path: str) -> httpx.Response:
        return self.api.ask("GET", path, headers=self._headers())

    def page(self, path: str, status: int = 200) -> Page:
        answer = self.get(path)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"].startswith("text/html")
        return Page(answer.text)

    def send(self, path: str, origin: str | None = ORIGIN, **fields: object) -> httpx.Response:
        """Send a form."""
        headers = self._headers() | {"content-type": "application/x-www-form-urlencoded"} | ({"origin": origin} if origin else {})
        return self.api.ask("POST", path, content=urlencode(fields), headers=headers)

    def _headers(self) -> dict[str, str]:
        return {"cookie": f"expctl_token={self.cookie}"} if self.cookie else {}
