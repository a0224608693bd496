"""The live page in a browser, for people with a mouse, a phone or a screen reader."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from balajoin.config.address import Address
from balajoin.observe.live.hub import Hub
from balajoin.observe.live.moment import SkewedKey
from balajoin.observe.live.server import LivePage
from debian_tools import tool
from live_data import BEGIN_MS, moment, served

_PATIENCE_S = 30
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
PHONE, DESKTOP = (375, 700), (1280, 800)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = tool("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in (*_OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(option)
    running = webdriver.Chrome(options=options, service=Service(tool("chromedriver")))
    yield running
    running.quit()


class Page:
    def __init__(self, chromium: webdriver.Chrome) -> None:
        self.chromium = chromium
        self._wait = WebDriverWait(chromium, _PATIENCE_S, poll_frequency=0.05)

    def open(self, url: str, size: tuple[int, int] = DESKTOP, **media: str) -> None:
        """`media` has the user's preferences, written with underscores: `prefers_color_scheme="dark"`."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.chromium.get(url)

    def all(self, selector: str) -> list[WebElement]:
        return self.chromium.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return [each.text for each in self.all(selector)]

    def until(self, holds: Callable[[], bool]) -> None:
        self._wait.until(lambda _: holds())

    def has_drawn(self, joins: int = 1) -> None:
        self.until(lambda: len(self.all("article")) == joins)

    def run(self, script: str) -> Any:
        return self.chromium.execute_script(script)  # type: ignore[no-untyped-call]

    def spoken(self) -> list[tuple[str, str]]:
        """The role and name of each element that a screen reader finds."""
        nodes = self.chromium.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        ]


@pytest.fixture
def page(chromium: webdriver.Chrome) -> Iterator[Page]:
    opened = Page(chromium)
    yield opened
    complaints = [entry for entry in chromium.get_log("browser") if "ERR_" not in entry["message"]]  # type: ignore[no-untyped-call]
    chromium.get("about:blank")
    assert complaints == []  # no script failed, and the content security policy blocked nothing


def test_it_shows_what_the_batches_did(page: Page) -> None:
    past = [moment(batch, ended_ms=BEGIN_MS + batch * 1000) for batch in range(3)]
    with served(*past) as (_, url):
        page.open(url)
        page.has_drawn()
        assert page.texts(".join-name") == ["clicks"]
        assert page.texts(".policy") == ["bala-join, 2 nodes, batch 2"]
        assert page.texts("ol.bars li") == ["node 0\n180, 60 %", "node 1\n120, 40 %"]
        widths = [float(bar.get_attribute("style").split()[1].rstrip("%;")) for bar in page.all(".fill")]  # type: ignore[union-attr]
        assert widths == pytest.approx([100, 200 / 3])
        assert page.texts(".kinds li") == [
            "probe\n15.0 kB, 88 %",
            "build\n1.8 kB, 11 %",
            "replica\n210 B, 1.2 %",
            "signal\n24 B, 0.1 %",
        ]
        assert page.texts("tbody tr") == ["user-1 40 %\nyes\nhome"]
        assert [page.texts(f".b-{name}") for name in ("skewed", "all", "epsilon")] == [["0.07"], ["0.33"], ["0.20"]]
        assert page.texts(".balance-word") == ["within ε"]
        assert page.texts("#status") == ["Live."]


def test_work_has_no_limit_to_be_above(page: Page) -> None:
    with served(moment(0, b_skewed=0.5, epsilon=None)) as (_, url):
        page.open(url)
        page.has_drawn()
        assert page.texts(".balance-word") == ["of work"]
        assert page.texts(".b-epsilon") == ["–"]
        assert page.texts("#status") == ["Live."]


def test_it_follows_each_batch_and_says_once_that_balance_is_lost(page: Page) -> None:
    with served(moment(0)) as (hub, url):
        page.open(url)
        page.has_drawn()
        page.run(
            "window.heard = []; new MutationObserver(() => heard.push(document.getElementById('status').textContent))"
            ".observe(document.getElementById('status'), {childList: true, characterData: true, subtree: true})"
        )
        for batch in range(1, 4):
            hub.add(moment(batch, b_skewed=0.5, node_rows=(95, 5), stored_rows=7_000 + batch))
        page.until(lambda: page.texts(".policy") == ["bala-join, 2 nodes, batch 3"])
        assert page.texts(".balance-word") == ["above ε"]
        assert page.texts("ol.bars li.over") == ["node 0\n345, 86 %, 1.7×"]
        hub.add(moment(4))
        page.until(lambda: page.texts("#status") == ["Live."])
        assert page.run("return heard") == ["Live. B is above ε: clicks.", "Live."]


def test_the_window_of_nodes_and_traffic_can_be_chosen(page: Page) -> None:
    with served(*[moment(batch) for batch in range(90)]) as (_, url):
        page.open(url)
        page.has_drawn()
        choice = Select(page.all("#window")[0])
        told = {}
        for chosen in ("batch", "minute", "all"):
            choice.select_by_value(chosen)
            told[chosen] = page.texts("ol.bars li")[0]
        assert told == {"batch": "node 0\n60, 60 %", "minute": "node 0\n3.6K, 60 %", "all": "node 0\n5.4K, 60 %"}


def test_keys_and_names_are_never_more_than_text(page: Page) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\">"
    script = "</script><script>document.title='owned'</script>"
    keys = tuple(SkewedKey(key=text, share=0.2, nodes=(0,)) for text in (evil, script, "&lt;b&gt;"))
    with served(moment(0, evil[:60], policy=script[:60], hot_keys=keys)) as (hub, url):
        page.open(url)
        page.has_drawn()
        hub.add(moment(1, evil[:60], policy=script[:60], hot_keys=keys))
        page.until(lambda: "batch 1" in page.texts(".policy")[0])
        assert [name.get_attribute("textContent") for name in page.all("tbody th")] == [evil, script, "&lt;b&gt;"]
        assert page.texts(".join-name") == [evil[:60]]
        assert page.all("article img, article script") == []
        assert page.chromium.title == "balajoin"


def test_several_joins_stand_side_by_side_and_on_a_phone_below_each_other(page: Page) -> None:
    with served(moment(0, "orders"), moment(0, "clicks")) as (_, url):
        page.open(url)
        page.has_drawn(2)
        assert page.texts(".join-name") == ["clicks", "orders"]
        left, right = (each.rect for each in page.all("article"))
        assert left["y"] == right["y"]
        page.open(url, PHONE)
        page.has_drawn(2)
        first, second = (each.rect for each in page.all("article"))
        assert second["y"] > first["y"] + first["height"]


@pytest.mark.parametrize("nodes", [1, 4, 24, 256])
@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_nothing_sticks_out(page: Page, size: tuple[int, int], nodes: int) -> None:
    rows = tuple(range(1_000_000, 1_000_000 + nodes))
    everywhere = tuple(range(nodes))
    keys = tuple(SkewedKey(key=f"{number}-{'long' * 20}", share=0.05, nodes=everywhere) for number in range(14))
    with served(moment(0, "a-join-with-a-name-that-is-longer-than-most", node_rows=rows, hot_keys=keys)) as (_, url):
        page.open(url, size)
        page.has_drawn()
        width = page.run("return document.documentElement.scrollWidth")
        assert width == size[0]
        cut = page.run(
            "return [...document.querySelectorAll('article h2, article dd, ol.bars span, .kinds li, header *')]"
            ".filter((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== 'inline')"
            ".map((each) => each.outerHTML)"
        )
        assert cut == []


def test_a_screen_reader_finds_words_for_all_that_is_drawn(page: Page) -> None:
    with served(*[moment(batch, b_skewed=0.3) for batch in range(3)]) as (_, url):
        page.open(url)
        page.has_drawn()
        spoken = page.spoken()
    roles = [role for role, _ in spoken]
    assert [name for role, name in spoken if role == "heading"] == [
        "balajoin",
        "clicks bala-join, 2 nodes, batch 2",
        "Throughput",
        "Balance above ε",
        "Rows by node last 3 batches",
        "Skewed keys and their U(x)",
        "Traffic between nodes last 3 batches",
    ]
    pictures = [name for role, name in spoken if role == "image"]
    assert any("up to 100 rows in and 250 rows out per second" in name for name in pictures)
    assert any("0.30 for what is balanced, 0.33 for all rows; ε is 0.2, above ε." in name for name in pictures)
    assert all(pictures)
    assert {"main", "status", "table", "columnheader", "rowheader"} <= set(roles)
    assert ("columnheader", "node 1") in spoken
    assert roles.count("status") == 1  # screen readers announce nothing else
    assert page.run("return document.querySelectorAll('[aria-live]').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_signs_stand_out_in_light_and_in_dark(page: Page, scheme: str) -> None:
    """WCAG requires a contrast of 4.5 for text and 3 for graphics."""
    with served(moment(node_rows=(90, 10))) as (_, url):
        page.open(url, prefers_color_scheme=scheme)
        page.has_drawn()
        names = ("ground", "card", "text", "quiet", "first", "second", "third", "fourth", "limit")
        colours = dict(
            zip(
                names,
                page.run(
                    f"const style = getComputedStyle(document.documentElement);"
                    f"return {list(names)}.map((name) => style.getPropertyValue('--' + name).trim())"
                ),
                strict=True,
            )
        )
        assert (luminance(colours["card"]) > 0.5) == (scheme == "light")
        for text in ("text", "quiet", "limit"):
            for ground in ("ground", "card"):
                assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for drawn in ("first", "second", "third", "fourth"):
            assert contrast(colours[drawn], colours["card"]) >= 3, drawn


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_who_wants_no_motion_gets_none(page: Page) -> None:
    with served(moment()) as (_, url):
        page.open(url, prefers_reduced_motion="reduce")
        page.has_drawn()
        assert page.run("return getComputedStyle(document.querySelector('.fill')).transitionDuration") == "0s"


def test_it_says_that_the_service_is_gone_and_goes_on_when_it_is_back(page: Page) -> None:
    with LivePage(Address("127.0.0.1", 0), Hub()) as first:
        address = first.address
        page.open(first.url)
        page.until(lambda: page.texts("#status") == ["Connected; no batch has ended yet."])
    page.until(lambda: page.texts("#status")[0].startswith("The service does not answer"))
    hub = Hub()
    hub.add(moment(7))
    with LivePage(address, hub):
        page.until(lambda: page.texts("#status") == ["Live."])
        assert page.texts(".policy") == ["bala-join, 2 nodes, batch 7"]


def test_it_keeps_no_more_batches_than_the_service(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("balajoin.observe.live.server.KEPT_BATCHES", 3)
    with served(*[moment(batch) for batch in range(3)]) as (hub, url):
        page.open(url)
        page.has_drawn()
        for batch in range(3, 9):
            hub.add(moment(batch))
        page.until(lambda: "batch 8" in page.texts(".policy")[0])
        assert page.run("return joins.get('clicks').batches.map((batch) => batch.batch)") == [6, 7, 8]
