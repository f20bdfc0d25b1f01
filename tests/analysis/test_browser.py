"""The report and MLflow's saved views in a real browser."""

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from fedcome_ray.tracking.views import TABLE
from tests.analysis import browser

WHY_NOT = browser.why_not()
pytestmark = [
    pytest.mark.skipif(WHY_NOT is not None, reason=f"no browser: {WHY_NOT}"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser.chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(store: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    output = tmp_path_factory.mktemp("report")
    words = ["--grid", "all", "--tracking-uri", store, "--output", str(output)]
    assert main([*words, "--format", "html", "--no-log"]) == 0
    return (output / "analysis" / "report.html").as_uri()


@pytest.fixture
def page(driver: Any, address: str) -> Any:
    browser.set_theme(driver, "light")
    driver.get(address)
    return driver


def curves(page: Any) -> list[Any]:
    return page.find_elements("css selector", "[data-grid=full_participation] path.curve")


def legend(page: Any, label: str) -> Any:
    buttons = page.find_elements("css selector", "[data-grid=full_participation] .legend button")
    return next(button for button in buttons if button.text == label)


def readout(page: Any) -> str:
    return page.find_element("css selector", "[data-grid=full_participation] .readout").text


def test_it_opens_without_a_message_on_the_console_and_asks_for_nothing(page: Any) -> None:
    assert page.get_log("browser") == []
    loaded = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_curves_are_drawn_and_can_be_switched_off_and_on(page: Any) -> None:
    assert [c.get_attribute("data-label") for c in curves(page)] == ["FedAvg", "FedFV", "FedCOME"]
    legend(page, "FedFV").click()
    assert [c.get_attribute("data-label") for c in curves(page)] == ["FedAvg", "FedCOME"]
    assert legend(page, "FedFV").get_attribute("aria-pressed") == "false"
    legend(page, "FedFV").click()
    assert len(curves(page)) == 3


def test_switching_everything_off_is_no_error(page: Any) -> None:
    for label in ("FedAvg", "FedFV", "FedCOME"):
        legend(page, label).click()
    assert readout(page) == "All curves are switched off."
    assert page.get_log("browser") == []


def test_another_metric_can_be_chosen(page: Any) -> None:
    box = page.find_element("css selector", "[data-grid=full_participation] select")
    before = curves(page)[0].get_attribute("d")
    box.send_keys("test loss")
    assert curves(page)[0].get_attribute("d") != before


def test_the_pointer_and_the_arrow_keys_read_values(page: Any) -> None:
    from selenium.webdriver import ActionChains, Keys

    chart = page.find_element("css selector", "[data-grid=full_participation] > svg")
    ActionChains(page).scroll_to_element(chart).move_to_element_with_offset(chart, 300, 0).perform()
    assert re.search(r"round 2: .*FedCOME 72.0 ± 2.00", readout(page))
    chart.send_keys(Keys.ARROW_LEFT)
    assert readout(page).startswith("round 1:")


def test_the_theme_follows_the_system_until_the_reader_chooses(page: Any) -> None:
    def theme() -> str:
        time.sleep(0.2)  # the page hears of the system's choice a little later
        return page.execute_script("return document.documentElement.dataset.theme")

    browser.set_theme(page, "dark")
    assert theme() == "dark"
    browser.set_theme(page, "light")
    assert theme() == "light"
    page.find_element("id", "theme").click()
    page.find_element("id", "theme").click()
    assert theme() == "dark"
    page.find_element("id", "theme").click()
    assert theme() == "light"


def test_every_link_has_a_target_and_a_run_opens_its_list(page: Any) -> None:
    dead = page.execute_script(
        "return [...document.querySelectorAll('a')].map(a => a.getAttribute('href'))"
        ".filter(h => !h.startsWith('#') || !document.getElementById(h.slice(1)))"
    )
    assert dead == []
    page.execute_script("document.querySelectorAll('.claim').forEach(claim => claim.open = true)")
    link = page.find_element("css selector", ".claim a")
    page.execute_script("arguments[0].click()", link)
    time.sleep(0.2)
    row = page.find_element(
        "css selector", link.get_attribute("href").replace(page.current_url.split("#")[0], "")
    )
    assert row.is_displayed()


def test_everything_can_be_reached_with_the_tab_key(page: Any) -> None:
    from selenium.webdriver import ActionChains, Keys

    reached = set()
    for _ in range(60):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.add(page.execute_script("return document.activeElement.tagName.toLowerCase()"))
    assert {"a", "button", "summary", "select", "svg"} <= reached


def test_pictures_are_loaded(page: Any) -> None:
    page.execute_script("document.querySelectorAll('img').forEach(i => i.loading = 'eager')")
    time.sleep(1)
    widths = page.execute_script("return [...document.images].map(image => image.naturalWidth)")
    assert widths
    assert min(widths) > 300


@pytest.fixture(scope="module")
def links(store: str) -> Iterator[dict[str, str]]:
    """What `python -m fedcome_ray.ui` prints: the view of every grid."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    folder = str(Path(store.removeprefix("sqlite:///")).parent)
    command = [sys.executable, "-m", "fedcome_ray.ui", "--output", folder, "--port", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        yield dict(re.findall(r"^(\w+) +(http\S+)", "".join(lines), re.MULTILINE))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def wait_for_text(page: Any, *words: str) -> str:
    end = time.monotonic() + 90
    text = ""
    while time.monotonic() < end:
        text = page.find_element("css selector", "body").text
        if all(word in text for word in words):
            return text
        time.sleep(0.5)
    raise AssertionError(f"expected {words} in:\n{text}")


def test_mlflow_opens_on_the_curves_of_a_grid(driver: Any, links: dict[str, str]) -> None:
    driver.get(links["full_participation"])
    wait_for_text(driver, "Mean over seeds", "Overview\n(4)", "Group by: fedcome.condition")


def test_mlflow_opens_on_the_table_of_a_grid(driver: Any, links: dict[str, str]) -> None:
    url = re.sub("fedcome-seeds.*", f"{TABLE}&compareRunsMode=TABLE", links["full_participation"])
    driver.get(url)
    text = wait_for_text(driver, "Trials by accuracy", "accuracy/test", "10 matching runs")
    assert "Sort: accuracy/test" in text
