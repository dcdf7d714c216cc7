"""Every page of a simulated night in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.acceptance.service import Service, wait_for
from tests.browser.conftest import MODEL, SHOWN, Night, ngram, submit
from tests.browser.looking import Looks

pytestmark = pytest.mark.browser

MOST_BYTES = 150_000
NO_PICTURE = {"choose", "failed", "delivery"}


def pages(night: Night) -> dict[str, str]:
    return {
        "tonight": "/",
        "queue": "/queue",
        "experiment": f"/e/{night.slow}",
        "failed": f"/e/{night.failed}",
        "choose": "/compare",
        "compare": f"/compare?base={night.base}&ids={night.fast},{night.slow}",
        "timeline": "/timeline",
        "hosts": "/hosts",
        "deliveries": "/deliveries",
        "delivery": "/deliveries/1",
        "digest": "/night",
    }


def test_every_page_is_light_and_accessible_in_both_themes_and_the_console_stays_quiet(night: Night, look: Looks) -> None:
    faults: dict[str, list[str]] = {}
    for name, path in pages(night).items():
        for scheme in ("light", "dark"):
            tab = look(color_scheme=scheme)
            tab.open(path)
            assert tab.loaded_bytes() < MOST_BYTES, name
            faults |= {f"{name}, {scheme}": found} if (found := tab.faults()) else {}
            dark = tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 19, 21)"
            assert dark == (scheme == "dark")
    assert faults == {}


def test_progress_moves_and_the_log_follows_without_a_reload(night: Night, idle: Service, look: Looks) -> None:
    del night
    one = submit(idle, "kimi-k2.5-int4 follow", {"model": MODEL}, {"concurrency": [1], "repeat": 2}, LOAD_SECONDS="6")
    tab, tonight = look(), look()
    tab.open(f"/e/{one}")
    tonight.open("/")
    for each in (tab, tonight):
        each.page.evaluate("window.stayed = true")
    bar = "document.querySelector('#live progress')"
    seen = []
    for step in ("load", "measure"):
        tab.until(f"document.querySelector('.strip .now')?.textContent.includes('{step}') && {bar}?.value > 0")
        seen.append(tab.page.evaluate(f"{bar}.value"))
        tab.until(f"{bar}?.value > {seen[-1]} || !{bar}")
        expect(tonight.page.locator(f"#now-{one}")).to_be_visible()
    lines = tab.page.evaluate("document.getElementById('log').textContent.split('\\n').length")
    tab.until(f"document.getElementById('log').textContent.split('\\n').length > {lines}")
    expect(tab.page.locator(".title .pill")).to_have_text("Succeeded", timeout=60_000)
    expect(tonight.page.locator(f"#ended-{one} .pill")).to_have_text("Succeeded", timeout=20_000)
    expect(tab.page.locator(".plot canvas").first).to_be_visible()
    assert tab.page.evaluate("window.stayed")
    assert tonight.page.evaluate("window.stayed")
    whole = idle.http.get(f"/e/{one}/log.txt").text.rstrip("\n")
    shown = tab.page.evaluate("document.getElementById('log').textContent")
    assert whole.endswith(shown.split("\n", 1)[1])
    assert "shutdown complete" in shown


def test_cancel_asks_first_and_another_tab_sees_it(night: Night, idle: Service, look: Looks) -> None:
    del night
    running = submit(idle, "kimi-k2.5-int4 long", ngram(5), {"max_tokens": 2000, "repeat": 9})
    waiting = submit(idle, "kimi-k2.5-int4 next", ngram(7))
    tab, other = look(), look()
    tab.open("/queue")
    other.open(f"/e/{waiting}")
    question = tab.page.locator(f"#cancel-{waiting}")
    tab.page.get_by_role("button", name=f"Cancel {waiting}", exact=True).click()
    expect(question).to_be_visible()
    tab.page.get_by_role("button", name="No, leave it").locator("visible=true").click()
    expect(question).to_be_hidden()
    assert idle.show(waiting)["status"] == "queued"
    tab.page.get_by_role("button", name=f"Hold {waiting}").click()
    expect(tab.page.locator(f"#row-{waiting} .pill")).to_have_text("Held")
    tab.page.get_by_role("button", name=f"Cancel {waiting}", exact=True).click()
    tab.page.get_by_role("button", name=f"Yes, cancel {waiting}").click()
    expect(tab.page.locator(f"#ended-{waiting} .pill")).to_have_text("Cancelled")
    expect(other.page.locator(".title .pill")).to_have_text("Cancelled")
    idle.at_step(running, "measure")
    tab.open(f"/e/{running}")
    tab.page.get_by_role("button", name=f"Cancel {running}", exact=True).click()
    tab.page.get_by_role("button", name=f"Yes, cancel {running}").click()
    expect(tab.page.locator(".title .pill")).to_have_text("Cancelled", timeout=60_000)


def test_a_question_stays_open_while_the_page_moves_on(night: Night, idle: Service, look: Looks) -> None:
    del night
    one = submit(idle, "kimi-k2.5-int4 asked", {"model": MODEL}, {"max_tokens": 2000, "repeat": 9})
    tab = look()
    tab.open("/queue")
    expect(tab.page.locator(f"#row-{one}")).to_be_visible()
    tab.page.get_by_role("button", name=f"Cancel {one}", exact=True).click()
    text = tab.page.locator(f"#cancel-{one} p").inner_text()
    idle.at_step(one, "measure")
    assert tab.page.locator(f"#cancel-{one}").is_visible()
    assert tab.page.locator(f"#cancel-{one} p").inner_text() == text
    tab.page.keyboard.press("Escape")
    expect(tab.page.locator(f"#row-{one} .pill")).to_have_text("Measuring")


def test_the_queue_is_steered_by_keyboard_alone(night: Night, idle: Service, look: Looks) -> None:
    del night
    assert idle.http.post("/v1/hosts/local/pause").is_success
    first, second = (submit(idle, f"kimi-k2.5-int4 key{n}", ngram(5)) for n in (1, 2))
    tab = look()
    tab.open("/queue")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the page"
    tab.page.get_by_role("button", name=f"Move {second}").focus()
    tab.page.keyboard.press("Enter")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "First"
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator(".queue tbody tr").first).to_have_id(f"row-{second}")
    order = [item["id"] for item in sorted(idle.newest(), key=lambda item: item["starts_at"] or "") if item["status"] == "queued"]
    assert {first, second} == set(order)


def test_comparing_shows_the_numbers_of_the_api(night: Night, look: Looks) -> None:
    found = night.service.http.get("/v1/compare", params={"base": night.base, "ids": f"{night.fast},{night.slow}"}).json()
    tab = look()
    page = tab.open(f"/compare?base={night.base}&ids={night.fast},{night.slow}")
    for number, level in enumerate(phase["concurrency"] for phase in found[0]["bench_phases"]):
        body = page.locator("tbody", has=page.get_by_role("rowheader", name=f"Concurrency {level}", exact=True))
        for key, title in (("tps", "tok/s"), ("ttft_ms", "TTFT ms"), ("tpot_ms", "TPOT ms")):
            for row in found[0]["bench_phases"][number]["prompts"]:
                shown = body.locator("tr", has=page.get_by_role("rowheader", name=f"{title}, {row['prompt']}", exact=True)).locator("td")
                figures = [text.replace("\N{NO-BREAK SPACE}", " ") for text in shown.all_inner_texts()]
                theirs = [next(r for r in one["bench_phases"][number]["prompts"] if r["prompt"] == row["prompt"]) for one in found]
                assert [figures[0], figures[1], figures[3]] == [
                    f"{value:.1f}" for value in (row[key][0], theirs[0][key][1], theirs[1][key][1])
                ]
        for place, one in enumerate(found):
            effect = one["bench_phases"][number]["effect"]
            shown = body.locator("tr", has=page.get_by_role("rowheader", name="decode tok/s, all prompts", exact=True)).locator("td")
            assert shown.nth(1 + 2 * place).inner_text() == f"\N{MULTIPLICATION SIGN} {effect['tps_ratio']:.3f}"
    assert page.locator("svg.forest").count() == 4
    assert page.locator(".bars rect").count() > 0
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert f"{night.slow}" in Path(download.value.path()).read_text()


def test_without_scripts_everything_can_be_read_and_done(night: Night, idle: Service, look: Looks) -> None:
    assert idle.http.post("/v1/hosts/local/pause").is_success
    one = submit(idle, "kimi-k2.5-int4 plain", ngram(5))
    tab = look(java_script_enabled=False)
    for path in pages(night).values():
        page = tab.open(path)
        assert page.locator("main").inner_text().strip()
    page = tab.open("/queue")
    page.get_by_role("button", name=f"Hold {one}").click()
    expect(page.locator(f"#row-{one} .pill")).to_have_text("Held")
    page.get_by_role("button", name=f"Cancel {one}", exact=True).click()
    page.get_by_role("button", name=f"Yes, cancel {one}").click()
    expect(page.locator(f"#ended-{one} .pill")).to_have_text("Cancelled")
    page = tab.open(f"/e/{night.slow}")
    assert "Application shutdown complete" in page.locator("#log").inner_text()
    page.get_by_text("The whole spec").click()
    expect(page.get_by_text('"num_speculative_tokens": 5')).to_be_visible()
    page = tab.open("/compare")
    page.get_by_role("radio", name=f"{night.base} as the baseline").check()
    page.get_by_role("checkbox", name=f"{night.slow} beside it").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".finding")).to_contain_text(re.compile("Worse|No difference"))


def test_the_theme_is_chosen_and_kept(night: Night, look: Looks) -> None:
    tab = look(color_scheme="light")
    page = tab.open(f"/e/{night.slow}")
    button = page.locator("#theme")
    expect(button).to_have_text("Theme: system")
    button.click()
    button.click()
    expect(button).to_have_text("Theme: dark")
    tab.open("/queue")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 19, 21)"


def test_a_message_is_replayed(night: Night, look: Looks) -> None:
    assert night.service.http.post("/v1/notifiers/team/test").is_success
    tab = look()
    page = tab.open("/deliveries?status=dead")

    def dead() -> bool:
        page.reload()
        return page.get_by_role("button", name=re.compile("^Replay")).count() > 0

    wait_for(dead, 60, every=0.5)
    page.get_by_role("button", name=re.compile("^Replay")).first.click()
    expect(page.get_by_role("heading", name="Deliveries")).to_be_visible()


def test_pictures_for_the_documents(night: Night, idle: Service, look: Looks, pictures: Path) -> None:
    running = submit(idle, "kimi-k2.5-int4 ngram k=4", ngram(4), LOAD_SECONDS="6")
    for tokens in (2, 6, 7, 8, 10, 11):
        waits = submit(idle, f"kimi-k2.5-int4 ngram k={tokens}", ngram(tokens))
    assert idle.http.post(f"/v1/experiments/{waits}/hold", json={"because": "after the driver update"}).is_success
    idle.at_step(running, "measure")
    for name, path in pages(night).items():
        if name in NO_PICTURE:
            continue
        for scheme in ("light", "dark"):
            tab = look(color_scheme=scheme, viewport={"width": 1180, "height": 740})
            tab.open(path)
            tab.until("!document.body.dataset.live || document.getElementById('pulse').textContent === 'live'")
            file = pictures / f"{name}-{scheme}.png"
            tab.page.screenshot(path=file)
            assert file.stat().st_size < MOST_BYTES
    assert {file.name for file in pictures.iterdir()} == {file.name for file in SHOWN.iterdir()}, "the documents show all of them"
