"""The page in a real browser: a click, a hover, a switch of axis, a phone, the dark.

It needs Chromium and the extra `browser` (Playwright, without its own browsers); elsewhere it is skipped.
"""

import os
import shutil
import warnings
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install 'e3rl[browser]'")
PAGE = Path(__file__).parents[2] / "results" / "report.html"
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    found = os.environ.get("E3RL_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one in E3RL_BROWSER")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with playwright.sync_playwright() as started:
            opened = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
            yield opened
            opened.close()


@pytest.fixture
def show(browser):
    """Open the page; nothing may go wrong in it, and nothing may be fetched."""
    pages, troubles = [], []

    def opened(viewport=WIDE, **options):
        page = browser.new_page(viewport=viewport, **options)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda asked: troubles.append(asked.url) if asked.url.startswith("http") else None)
        page.goto(PAGE.as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert troubles == []


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_a_click_hides_an_algorithm_and_another_shows_it(show):
    chart = show().locator("#figure-2a-standard")
    lines = chart.locator('.log .series[data-name="PPO"]')
    assert lines.first.is_visible()
    chart.locator('.legend li[data-name="PPO"]').click()
    assert not lines.first.is_visible()
    assert chart.locator('.log .series[data-name="PPO+RND"]').first.is_visible()
    chart.locator('.legend li[data-name="PPO"]').click()
    assert lines.first.is_visible()


def test_confirmatory_seeds_go_and_come_together(show):
    chart = show().locator("#figure-2d")
    marks = chart.locator(".log .series.confirmatory circle")
    others = chart.locator(".log .series:not(.confirmatory) circle")
    assert marks.first.is_visible()
    chart.locator(".legend li.confirmatory").first.click()
    chart.locator("button.confirm").click()
    assert [mark.is_visible() for mark in marks.all()] == [False] * marks.count()
    assert others.first.is_visible()
    chart.locator("button.confirm").click()
    assert all(mark.is_visible() for mark in marks.all())


def test_the_axis_can_be_switched(show):
    chart = show().locator("#figure-2a-standard")
    assert (
        chart.locator(".scale.log").first.is_visible(),
        chart.locator(".scale.linear").first.is_visible(),
    ) == (
        True,
        False,
    )
    chart.locator("button.log-axis").click()
    assert (
        chart.locator(".scale.log").first.is_visible(),
        chart.locator(".scale.linear").first.is_visible(),
    ) == (
        False,
        True,
    )


def test_values_are_read_off_under_the_pointer(show):
    page = show()
    panel = page.locator("#figure-2a-standard svg.panel").first
    panel.scroll_into_view_if_needed()
    box = panel.bounding_box()
    tip = page.locator("#tip")
    assert not tip.is_visible()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"])
    assert "DQN, " in tip.inner_text()
    assert panel.locator(".guide").count() == 1
    page.mouse.move(2, 2)
    assert not tip.is_visible()


def test_claims_can_be_chosen_by_verdict(show):
    page = show()
    page.locator("#claims button", has_text="holds").click()
    assert page.locator("#claims tr.holds:visible").count() == 0
    assert page.locator("#claims tr.differs:visible").count() > 0


def test_on_a_phone_nothing_is_wider_than_the_screen(show, tmp_path):
    page = show(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    panel = page.locator("svg.panel").first.bounding_box()
    assert 300 <= panel["width"] <= PHONE["width"]
    page.screenshot(path=tmp_path / "phone.png")
    assert (tmp_path / "phone.png").stat().st_size > 20_000


def test_in_the_dark(show):
    light, dark = background(show()), background(show(color_scheme="dark"))
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 22, 26)")


def test_without_scripts_it_is_all_there(show):
    page = show(java_script_enabled=False)
    assert page.locator("#figure-2a-standard .log .line").first.is_visible()
    assert page.locator("#claims tr.holds").first.is_visible()
    assert page.locator("button").count() == 0
