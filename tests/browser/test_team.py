"""Signing in as browsers do it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from playwright.sync_api import expect

from service.api.app import create_app
from service.domain.access import Scope
from service.settings import Settings
from service.store import hosts, migrate, tokens
from service.store.database import Database
from tests.browser.looking import Looks
from tests.integration.api.service import spec

pytestmark = pytest.mark.browser


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{tmp_path / 'expctl.db'}")
    migrate.upgrade(found)
    yield found
    found.close()


@pytest.fixture
def address(made: Database) -> Iterator[str]:
    """A service that asks for tokens, on a socket of its own."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(made, settings=Settings())
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(20)
    listening.close()
    assert not thread.is_alive()


def test_a_browser_signs_in_acts_and_signs_out(made: Database, address: str, look: Looks) -> None:
    with made.write() as session:
        hosts.register(session, "local", "local", {})
        _, token = tokens.create(session, "ann's", "ann", [Scope.SUBMIT], "test")
    headers = {"authorization": f"Bearer {token}"}
    one = httpx.post(f"{address}/v1/experiments", json=spec(), headers=headers, trust_env=False).json()["id"]
    tab = look(address)
    page = tab.open("/queue?status=queued")
    tab.said.clear()  # that the page answered 401 is what the test is about
    page.get_by_label("Token").fill("expctl_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.context.cookies() == []
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    tab.said.clear()
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
    expect(page.locator("#pulse")).to_have_text("live")
    page = tab.open("/queue")
    page.get_by_role("button", name=f"Hold {one}").click()
    expect(page.locator(f"#row-{one} .pill")).to_have_text("Held")
    expect(page.locator(f"#row-{one}")).to_contain_text("by ann")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.context.cookies() == []
