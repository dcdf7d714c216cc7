"""What forms do, who may send them, and how a browser signs in."""

from __future__ import annotations

import pytest

from service.domain.access import Scope
from service.store import hosts
from service.store.database import Database
from tests.integration.api.team import Team
from tests.integration.pages.reading import Browser

HOME = "http://127.0.0.1"


def test_buttons_do_what_they_say(night: Browser) -> None:
    answer = night.send("/e/5/hold", back="/queue?host=local", because="later")
    assert (answer.status_code, answer.headers["location"]) == (303, "/queue?host=local")
    assert night.api.get("/v1/experiments/5").json()["status"] == "held"
    for verb, status in (("release", "queued"), ("cancel", "finished")):
        assert night.send(f"/e/5/{verb}", back="/").status_code == 303
        assert night.api.get("/v1/experiments/5").json()["status"] == status
    again = night.send("/e/5/retry").headers["location"]
    assert night.api.get(f"/v1/experiments{again.removeprefix('/e')}").json()["retry_of"] == 5
    assert night.send("/e/2/baseline").status_code == 303
    assert night.api.get("/v1/baselines").json()[0]["experiment_id"] == 2
    assert night.send("/e/2/baseline", pin="no").status_code == 303
    assert night.api.get("/v1/baselines").json() == []


def test_moving_goes_to_the_front_to_the_end_and_before_another(night: Browser) -> None:
    assert night.send("/e/6/release").status_code == 303

    def order() -> list[int]:
        rows = [one for one in night.page("/queue").ids if one.startswith("row-")]
        return [int(one.removeprefix("row-")) for one in rows]

    assert order() == [4, 5, 6]
    for to, expected in (("first", [4, 6, 5]), ("last", [4, 5, 6]), ("5", [4, 6, 5])):
        assert night.send("/e/6/move", to=to).status_code == 303
        assert order() == expected
    assert night.send("/e/6/move", to="nowhere").status_code == 422


def test_hosts_are_steered(night: Browser) -> None:
    assert night.send("/hosts/local/pause", back="/hosts").headers["location"] == "/hosts"
    assert "paused" in night.page("/hosts").text
    assert night.send("/hosts/local/resume").status_code == 303
    assert night.send("/hosts/local/check").status_code == 303
    assert "check asked by" in night.page("/hosts").text
    assert night.send("/hosts/local/explode").status_code == 422


def test_what_is_no_longer_possible_is_said(night: Browser) -> None:
    answer = night.send("/e/1/cancel", back="/")
    assert answer.status_code == 409
    assert "has already finished" in answer.text


def test_only_our_own_pages_send_forms(night: Browser) -> None:
    for origin in (None, "null", "http://evil.example", "http://127.0.0.1:3000", "https://127.0.0.1.evil.example"):
        assert night.send("/e/5/cancel", origin).status_code == 403, origin
    assert night.api.get("/v1/experiments/5").json()["status"] == "queued"


def test_a_form_never_leads_to_another_site(night: Browser) -> None:
    for back in ("//evil.example/", "https://evil.example/", "/\\evil.example", ""):
        assert night.send("/e/5/hold", back=back).headers["location"] == "/", back


@pytest.fixture
def team(database: Database) -> Browser:
    with database.write() as session:
        hosts.register(session, "local", "local", {"simulated": True})
    made = Team(database)
    for who, scope in (("ann", Scope.SUBMIT), ("eve", Scope.READ), ("root", Scope.ADMIN)):
        made.give(who, scope)
    made.queued("ann", name="hers")
    return Browser(made)


def tokens(browser: Browser) -> dict[str, str]:
    assert isinstance(browser.api, Team)
    return browser.api.tokens


def test_pages_ask_for_a_token_and_a_cookie_keeps_it(team: Browser) -> None:
    for path in ("/", "/queue", "/e/1", "/compare?base=1&ids=2", "/timeline", "/hosts", "/deliveries", "/night"):
        page = team.page(path, 401)
        assert page.actions == ["/signin"], path
        assert "hers" not in page.html
    answer = team.send("/signin", token=tokens(team)["ann"], onward="/queue")
    assert (answer.status_code, answer.headers["location"]) == (303, "/queue")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "max-age" not in cookie
    team.cookie = tokens(team)["ann"]
    assert "hers" in team.page("/queue").text
    assert "Sign out" in team.page("/").text
    gone = team.send("/signout")
    assert 'expctl_token=""' in gone.headers["set-cookie"]


def test_tokens_that_are_no_good_are_refused_with_the_reason(team: Browser) -> None:
    answer = team.send("/signin", token="expctl_short")  # noqa: S106 - the test is that it is none
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    team.cookie = tokens(team)["ann"][:-1]
    assert "this is no whole token" in team.page("/", 401).text
    assert team.send("/signin", "http://evil.example", token=tokens(team)["ann"]).status_code == 403


def test_buttons_are_for_those_who_may(team: Browser) -> None:
    team.cookie = tokens(team)["eve"]
    assert team.page("/queue").actions == ["/signout"]
    assert team.send("/e/1/cancel").status_code == 403
    assert team.send("/hosts/local/pause").status_code == 403
    team.cookie = tokens(team)["ann"]
    assert "/e/1/cancel" in team.page("/queue").actions
    assert team.page("/hosts").actions == ["/signout"]
    assert team.send("/e/1/hold").status_code == 303
    with team.api.database.read() as session:
        assert hosts.by_name(session, "local").paused is False


def test_a_cookie_reads_the_api_but_changes_it_only_from_our_own_pages(team: Browser) -> None:
    team.cookie = tokens(team)["ann"]
    assert team.get("/v1/experiments").status_code == 200
    for origin in (None, "http://evil.example"):
        assert team.send("/v1/experiments/1/cancel", origin).status_code == 403
    assert team.get("/v1/experiments/1").json()["status"] == "queued"
    assert team.send("/v1/experiments/1/cancel", HOME).status_code == 200


def test_a_service_without_tokens_needs_no_sign_in(browser: Browser) -> None:
    assert browser.get("/signin").headers["location"] == "/"
