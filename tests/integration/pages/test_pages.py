"""What the pages show, drawn in this process."""

from __future__ import annotations

import csv
import io

import pytest

from service.store import board
from service.store.tables import utc_now
from tests.integration.api.service import problem
from tests.integration.pages.reading import Browser, Page

EVERY = (
    "/", "/queue", "/queue?status=finished", "/queue?status=running", "/e/1", "/e/2", "/e/3", "/e/4", "/e/5", "/e/6", "/compare",
    "/compare?base=1&ids=2", "/compare?base=1&ids=2&all=true", "/timeline", "/timeline?from=18:00", "/hosts", "/deliveries", "/night",
    "/night?of=2020-01-01",
)  # fmt: skip


def test_every_page_is_whole_small_and_its_links_lead_somewhere(night: Browser) -> None:
    links: set[str] = set()
    for path in EVERY:
        answer = night.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert len(answer.content) < 150_000
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        page = Page(answer.text)
        links |= {link.partition("#")[0] for link in (*page.links, *page.sources)}
        assert page.inline == [], path
        assert all(source.startswith("/static/") for source in page.sources), path
        assert len(set(page.ids)) == len(page.ids), path
        assert "<script>alert" not in page.html, path
    inside = {link for link in links - set(EVERY) if link.startswith("/")}
    assert len(inside) > 20
    for link in sorted(inside):
        answer = night.get(link)
        assert answer.status_code == 200, link
        assert ("immutable" in answer.headers["cache-control"]) == link.startswith("/static/"), link


def test_tonight_says_what_runs_what_waits_and_what_ended(night: Browser) -> None:
    text = night.page("/").text
    assert "1 running, 1 waiting, 2 done since" in text
    assert "4 loads" in text
    assert "1 ahead on its host" in text
    assert "+48.0 % vs 1" in text or "+49" in text
    assert "Failed in load: the engine ran out of GPU memory" in text


def test_a_page_of_nothing_says_how_to_begin(browser: Browser) -> None:
    assert "expctl submit FILE" in browser.page("/").text
    assert "expctl submit FILE" in browser.page("/queue").text
    assert "Nothing ran since then" in browser.page("/timeline").text
    assert "Nothing ended in this night" in browser.page("/night").text
    assert "Nothing has been measured yet" in browser.page("/compare").text


def test_the_queue_offers_only_what_is_valid(night: Browser) -> None:
    actions = night.page("/queue").actions
    assert {action for action in actions if action.startswith("/e/4/")} == {"/e/4/cancel"}
    assert {action for action in actions if action.startswith("/e/5/")} == {"/e/5/cancel", "/e/5/hold", "/e/5/move"}
    assert {action for action in actions if action.startswith("/e/6/")} == {"/e/6/cancel", "/e/6/release", "/e/6/move"}
    assert set(night.page("/e/3").actions) == {"/e/3/retry"}
    assert set(night.page("/e/1").actions) == {"/e/1/retry", "/e/1/baseline"}


def test_the_queue_is_filtered_by_its_address(night: Browser) -> None:
    text = night.page("/queue?status=held&host=local").text
    assert "kept" in text
    assert "loads" not in text
    assert "by anonymous: after the driver update" in text


def test_an_experiment_shows_why_it_ended_and_the_end_of_its_log(night: Browser) -> None:
    page = night.page("/e/3")
    for words in ("the engine ran out of GPU memory", "no room", "the line", "What to do:", "CUDA out of memory <b>"):
        assert words in page.text
    assert night.get("/e/3/log.txt").text == "one line\ntwo lines\nCUDA out of memory <b>\n"
    assert "data-follow" not in page.html
    assert "one line" not in night.page("/e/3?step=warm").text
    running = night.page("/e/4")
    assert "/v1/experiments/4/logs/stream?after=" in running.html
    assert "reading weights" in running.text


def test_comparing_says_what_the_api_says(night: Browser) -> None:
    found = night.api.get("/v1/compare", base=1, ids="2").json()
    text = night.page("/compare?base=1&ids=2").text
    [phase] = found["bench_phases"]
    for row in phase["prompts"]:
        assert f"{row['tps'][0]:.1f} {row['tps'][1]:.1f}" in text
    assert f"Better: +{100 * (phase['effect']['tps_ratio'] - 1):.1f} % tok/s" in text
    assert f"{phase['effect']['tps_ratio']:.3f}" in text
    assert "p99 of all prompts (n=" in text
    assert "The same everywhere" not in text
    everything = night.page("/compare?base=1&ids=2&all=true").text
    assert "The same everywhere" in everything
    shared = night.api.get("/v1/compare", base=1, ids="2", all_fields="true").json()["spec_equal"]
    assert all(path in everything for path in shared)
    assert len(shared) == found["equal_fields"] > 0


def test_a_comparison_is_a_file_too(night: Browser) -> None:
    found = night.api.get("/v1/compare", base=1, ids="2").json()
    answer = night.get("/compare.csv?base=1&ids=2")
    assert answer.headers["content-disposition"] == 'attachment; filename="compare-1-2.csv"'
    rows = list(csv.DictReader(io.StringIO("\n".join(line for line in answer.text.splitlines() if not line.startswith("#")))))
    assert [float(row["tps_candidate"]) for row in rows[:-1]] == [row["tps"][1] for row in found["bench_phases"][0]["prompts"]]
    assert float(rows[-1]["tps_change"]) == pytest.approx(found["bench_phases"][0]["effect"]["tps_ratio"] - 1, rel=1e-5)
    markdown = night.get("/compare.md?base=1&ids=2").text
    assert markdown.startswith("|  | 1 base (baseline) | 2 faster |")
    assert "**Concurrency 1**" in markdown


def test_errors_are_pages(night: Browser) -> None:
    assert "Experiment 99 does not exist" in night.page("/e/99", 404).text
    assert "this address is not as it should be" in night.page("/queue?status=odd", 422).text.lower()
    assert "is no time" in night.page("/timeline?from=odd", 422).text
    assert "is no date" in night.page("/night?of=odd", 422).text
    assert "nothing was measured" in night.page("/compare?base=1&ids=3", 409).text
    assert "these are no ids" in night.page("/compare?base=1&ids=a", 422).text.lower()
    assert "at most 8" in night.page("/compare?base=1&ids=2,3,4,5,6,7,8,9,10,11", 422).text
    assert "lies ahead" in night.page("/timeline?from=2999-01-01", 422).text
    assert "lies too far back" in night.page("/timeline?from=0001-01-01", 422).text
    assert night.get("/static/none.js").status_code == 404


def test_what_there_is_not_is_a_page_for_browsers_and_a_problem_for_programs(night: Browser) -> None:
    browsers = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = night.api.ask("GET", "/nowhere/<b>", headers=browsers)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    page = Page(answer.text)
    assert "There is nothing at /nowhere/<b>" in page.text
    assert "/queue" in page.links
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    problem(night.api.ask("GET", "/v1/nowhere", headers=browsers), 404, "not-found")
    problem(night.get("/nowhere"), 404, "not-found")
    assert night.api.ask("GET", "/e/5/hold", headers=browsers).status_code == 405


def test_a_page_says_where_its_numbers_are_for_programs(night: Browser) -> None:
    for path, twin in (("/", "/v1/night"), ("/timeline", "/v1/timeline"), ("/night", "/v1/report")):
        page = night.page(path)
        [link] = [link for link in page.links if link.startswith(twin)]
        answer = night.get(link)
        assert answer.status_code == 200, answer.text
        shown = answer.json()["ended"] if "ended" in answer.json() else answer.json()["hosts"][0]["experiments"]
        assert {one["experiment"]["id"] if "experiment" in one else one["id"] for one in shown} >= {1, 2, 3}, path


def test_the_digest_ranks_and_counts(night: Browser) -> None:
    text = night.page("/night").text
    assert "2 done, 1 failed" in text
    assert "1 because the engine ran out of GPU memory" in text
    assert text.index("faster") < text.index("base")


def test_files_are_sent_small_and_kept(browser: Browser) -> None:
    source = next(source for source in browser.page("/").sources if "htmx" in source)
    answer = browser.api.ask("GET", source, headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert "cache-control" in browser.get(source.partition("?")[0]).headers
    assert browser.get(source.partition("?")[0]).headers["cache-control"] == "no-store"


def test_the_last_event_before_a_moment_is_found_without_looking_at_all(night: Browser) -> None:
    with night.api.database.read() as session:
        events = night.api.get("/v1/experiments/3/events").json()
        assert board.since(session, utc_now()) >= events[-1]["id"]
        assert board.since(session, utc_now().replace(year=2000)) == 0
        for event in events:
            moment = type(utc_now()).fromisoformat(event["at"])
            assert board.since(session, moment) < event["id"]


def test_what_is_remembered_of_endings_is_forgotten_with_the_next(night: Browser) -> None:
    kept = board.Kept[str, float]()
    with night.api.database.read() as session:
        kept.of(session)["faster"] = 1.5
    with night.api.database.read() as session:
        assert kept.of(session) == {"faster": 1.5}
    assert night.api.post("/v1/experiments/5/cancel").status_code == 200
    with night.api.database.read() as session:
        assert kept.of(session) == {}
