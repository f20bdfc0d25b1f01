"""The report and MLflow's saved views in a real browser."""

import base64
import io
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from analysis import report, style
from analysis.__main__ import main
from analysis.publish import page_of, section_of
from fedcome_ray.methods import PAPER
from fedcome_ray.tracking.views import TABLE
from tests.analysis import browser, synthetic

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
def written(store: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("report")
    words = ["--grid", "all", "--tracking-uri", store, "--output", str(output)]
    assert main([*words, "--format", "html,csv", "--no-log"]) == 0
    return output / "analysis"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report with the paper's own tables, which are as wide as any."""
    grids = ("full_participation", "partial_participation", "sensitivity", "fairness")
    studies = [synthetic.study(grid, seeds=2, rounds=10) for grid in grids]
    sections = [section_of(study, "last") for study in studies]
    path = tmp_path_factory.mktemp("large") / "report.html"
    report.write(path, page_of(sections, {"store": "none"}, is_all=True))
    return path.as_uri()


@pytest.fixture
def page(driver: Any, written: Path) -> Any:
    browser.set_theme(driver, "light")
    driver.get((written / "report.html").as_uri())
    return driver


@pytest.fixture
def large_page(driver: Any, large: str) -> Any:
    browser.set_theme(driver, "light")
    driver.get(large)
    return driver


def wait_until(is_so: Callable[[], Any]) -> None:
    """A page hears of things a little later than they happen; much later where others work too."""
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def show_theme(page: Any, theme: str) -> None:
    browser.set_theme(page, theme)
    wait_until(lambda: theme_of(page) == theme)


def theme_of(page: Any) -> str:
    return page.execute_script("return document.documentElement.dataset.theme")


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
    assert re.search(r"round 500: .*FedCOME 72.0 ± 2.00", readout(page))
    chart.send_keys(Keys.ARROW_LEFT)
    assert readout(page).startswith("round 250:")


def test_the_theme_follows_the_system_until_the_reader_chooses(page: Any) -> None:
    show_theme(page, "dark")
    show_theme(page, "light")
    for expected in ("light", "dark", "light"):  # chosen light, chosen dark, automatic
        page.find_element("id", "theme").click()
        wait_until(lambda expected=expected: theme_of(page) == expected)


LAND = """
const [link, done] = arguments;
scrollTo(0, 0);
link.click();
const end = () => Math.abs(scrollY + innerHeight - document.documentElement.scrollHeight) < 2;
const target = () => document.getElementById(link.hash.slice(1));
// Three frames later nothing moves any more, what is drawn only when in sight included.
requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => {
  const box = target().getBoundingClientRect();
  const fold = target().closest("details");
  done({ top: box.top, height: box.height, isAtEnd: end(), isOpen: !fold || fold.open });
})));
"""


def test_every_link_lands_on_what_it_names(large_page: Any) -> None:
    links = large_page.find_elements("css selector", "a[href^='#']:not([download])")
    by_target = {link.get_attribute("href"): link for link in links}
    runs = [target for target in by_target if "#run-" in target]
    assert runs
    far = [by_target[target] for target in by_target if target not in runs[3:]]
    for link in far:
        landed = large_page.execute_async_script(LAND, link)
        words = f"{link.get_attribute('href')}: {landed}"
        assert landed["height"] > 0, words
        assert landed["isOpen"], words
        assert landed["isAtEnd"] or 0 <= landed["top"] < 40, words
    assert large_page.get_log("browser") == []


PLACES = """
const done = arguments[0];
const places = () => [...document.querySelectorAll("main > section, figure")]
  .map((part) => Math.round(part.getBoundingClientRect().top + scrollY));
const before = places();
const end = document.documentElement.scrollHeight;
const down = (y) => {
  scrollTo(0, y);
  if (y > end) return done([before, places()]);
  requestAnimationFrame(() => requestAnimationFrame(() => down(y + innerHeight)));
};
down(0);
"""


def test_nothing_moves_while_one_reads(large_page: Any) -> None:
    before, after = large_page.execute_async_script(PLACES)
    assert len(before) > 20
    assert before == after


def test_an_address_with_a_target_opens_there(driver: Any, large: str) -> None:
    for target in ("sensitivity", "figure-fairness_sorted_accuracy", "claim-stable"):
        driver.get("about:blank")
        driver.get(f"{large}#{target}")
        wait_until(lambda target=target: 0 <= top_of(driver, target) < 40)


def top_of(page: Any, target: str) -> float:
    return page.execute_script(
        "return document.getElementById(arguments[0]).getBoundingClientRect().top", target
    )


def test_trials_are_listed_when_asked_for(large_page: Any) -> None:
    def count_rows() -> int:
        return len(large_page.find_elements("css selector", "#trials-table tbody tr"))

    assert count_rows() == 0
    large_page.execute_script("document.querySelector('.runs a').click()")
    assert count_rows() == 56 + 112 + 50 + 12
    link = large_page.find_element("css selector", ".runs a")
    run = link.get_attribute("href").split("#")[1]
    assert large_page.find_element("id", run).is_displayed()


def test_what_we_found_comes_first(large_page: Any) -> None:
    sections = large_page.find_elements("css selector", "main > section")
    assert sections[0].get_attribute("id") == "found"
    assert "Profile paper: MNIST, FEMNIST, CIFAR-10, CIFAR-100" in sections[0].text


def test_curves_of_several_seeds_have_bands(large_page: Any) -> None:
    charts = "[data-grid=full_participation]"
    assert len(large_page.find_elements("css selector", f"{charts} path.band")) == 7


def test_everything_can_be_reached_with_the_tab_key(page: Any) -> None:
    from selenium.webdriver import ActionChains, Keys

    reached: set[str] = set()
    expected = {"a", "button", "summary", "select", "svg"}
    for _ in range(300):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.add(page.execute_script("return document.activeElement.tagName.toLowerCase()"))
        if expected <= reached:
            break
    assert expected <= reached


def picture_of(page: Any, element: Any) -> np.ndarray:
    """Its pixels: rows, columns, red, green and blue."""
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    with Image.open(io.BytesIO(element.screenshot_as_png)) as image:
        return np.asarray(image.convert("RGB"), dtype=int)


def test_methods_have_the_same_colours_in_both_themes(large_page: Any) -> None:
    """In figures as in curves, pixel by pixel: nothing is turned into another method's colour."""
    selectors = (
        "#figure-full_participation_convergence .drawing",
        "#figure-full_participation_rounds_to_target .drawing",
        "[data-grid=full_participation] > svg",
    )
    for theme in ("light", "dark"):
        show_theme(large_page, theme)
        for selector in selectors:
            pixels = picture_of(large_page, large_page.find_element("css selector", selector))
            for method in PAPER:
                colour = np.array(
                    [int(style.LOOKS[method].colour[i : i + 2], 16) for i in (1, 3, 5)]
                )
                is_near = np.abs(pixels - colour).max(axis=2) < 8
                assert is_near.sum() > 20, f"{method} in {selector}, {theme}"


def test_figures_have_the_ground_and_the_ink_of_the_theme(large_page: Any) -> None:
    figure = large_page.find_element(
        "css selector", "#figure-full_participation_convergence .drawing"
    )
    brightness = {}
    for theme in ("light", "dark"):
        show_theme(large_page, theme)
        values = picture_of(large_page, figure).mean(axis=2)
        brightness[theme] = float(np.median(values)), float(values.min()), float(values.max())
    assert brightness["light"][0] == 255
    assert brightness["light"][1] < 40  # dark ink
    assert brightness["dark"][0] < 30
    assert brightness["dark"][2] > 220  # light ink


@pytest.fixture
def narrow(large_page: Any) -> Iterator[Any]:
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    large_page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    large_page.refresh()
    large_page.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    yield large_page
    large_page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_at_400_pixels_only_boxes_scroll_sideways(narrow: Any) -> None:
    assert narrow.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [
        400,
        400,
    ]
    too_wide = narrow.execute_script(
        "return [...document.querySelectorAll('main *')]"
        ".filter(e => !e.closest('.scroll > *') && e.getBoundingClientRect().right > 400)"
        ".map(e => e.outerHTML.slice(0, 200))"
    )
    assert too_wide == []
    tables = narrow.find_elements("css selector", "table")
    boxes = narrow.find_elements("css selector", ".scroll > table")
    assert len(tables) == len(boxes) > 10


def test_words_of_a_chart_stay_legible_at_400_pixels(narrow: Any) -> None:
    heights = narrow.execute_script(
        "return [...document.querySelectorAll('.chart > svg text')]"
        ".map(text => text.getBoundingClientRect().height)"
    )
    assert min(heights) > 10


def column(page: Any, table: str, place: int) -> list[str]:
    return page.execute_script(
        f"return [...document.querySelector('{table}').querySelectorAll('tbody tr')]"
        f".map(row => row.cells[{place}].textContent)"
    )


def test_a_header_sorts_its_column_and_gives_the_order_back(page: Any) -> None:
    from selenium.webdriver import Keys

    table = "#full_participation table"
    head = page.find_element("css selector", f"{table} th:nth-child(2)")
    button = head.find_element("css selector", "button")
    before = column(page, table, 1)
    assert "not run" in before
    numbers = [text for text in before if text[0].isdigit()]
    button.click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column(page, table, 1)[: len(numbers)] == sorted(numbers, key=float_in, reverse=True)
    assert not column(page, table, 1)[-1][0].isdigit()
    button.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(page, table, 1)[: len(numbers)] == sorted(numbers, key=float_in)
    assert not column(page, table, 1)[-1][0].isdigit()
    button.send_keys(Keys.SPACE)
    assert head.get_attribute("aria-sort") is None
    assert column(page, table, 1) == before


def float_in(text: str) -> float:
    return float(text.split()[0])


def test_only_one_column_is_marked_as_sorted(large_page: Any) -> None:
    table = "#partial_participation table"
    for place in (1, 4):
        large_page.find_element("css selector", f"{table} th:nth-child({place}) button").click()
    marked = large_page.find_elements("css selector", f"{table} [aria-sort]")
    assert [head.text for head in marked] == ["tail"]
    assert column(large_page, table, 0) != sorted(column(large_page, table, 0))


def test_minus_signs_and_decimals_are_sorted_as_numbers(large_page: Any) -> None:
    table = "#full_participation table"
    place = 1 + column_names(large_page, table).index("Δ")
    large_page.find_element("css selector", f"{table} th:nth-child({place}) button").click()
    shown = [float(text.replace("−", "-")) for text in column(large_page, table, place - 1)]
    assert min(shown) < 0
    assert shown == sorted(shown, reverse=True)


def column_names(page: Any, table: str) -> list[str]:
    heads = page.find_element("css selector", table).find_elements("css selector", "thead th")
    return [head.text for head in heads]


def test_every_table_can_be_downloaded(page: Any, written: Path, tmp_path: Path) -> None:
    page.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    page.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    links = page.find_elements("css selector", "a[download]")
    for link in links:
        page.execute_script("arguments[0].click()", link)
        time.sleep(0.2)
    names = {link.get_attribute("download") for link in links}
    end = time.monotonic() + 30
    while {path.name for path in tmp_path.iterdir()} != names and time.monotonic() < end:
        time.sleep(0.1)
    assert {path.name for path in tmp_path.iterdir()} == names
    stored = {path.name: path for path in (written / "tables").glob("*.csv")}
    assert set(stored) <= names
    for name, path in stored.items():
        assert (tmp_path / name).read_bytes() == path.read_bytes(), name
    lines = (tmp_path / "trials.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 2 * 10
    assert lines[0].startswith("run,grid,method,seed")


def test_every_table_has_a_download(large_page: Any) -> None:
    """Those of claims have one together; the list of grids says what captions say."""
    without = large_page.execute_script(
        "return [...document.querySelectorAll('table')]"
        ".filter(table => !table.closest('#grids, .claim, #trials'))"
        ".filter(table => !table.closest('section, details').querySelector('a[download]')).length"
    )
    assert without == 0
    names = [a.get_attribute("download") for a in large_page.find_elements("css selector", ".csv")]
    assert {"claims.csv", "comparisons.csv", "trials.csv"} <= set(names)
    assert len(names) == len(set(names))


def print_to(page: Any, path: Path) -> None:
    settings = {"preferCSSPageSize": True, "printBackground": False}
    printed = page.execute_cdp_cmd("Page.printToPDF", settings)
    path.write_bytes(base64.b64decode(printed["data"]))


NUMBER = re.compile(r"[+−]?\d+\.\d+")
needs_poppler = pytest.mark.skipif(
    shutil.which("pdftotext") is None, reason="pdftotext of poppler-utils not found"
)


@pytest.fixture(scope="module")
def printed(driver: Any, large: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    browser.set_theme(driver, "dark")
    driver.get(large)
    path = tmp_path_factory.mktemp("printed") / "report.pdf"
    print_to(driver, path)
    return path


def words_on_paper(path: Path) -> Counter[str]:
    """The words of a PDF that are wholly between the margins of their page."""
    listed = subprocess.run(
        ["pdftotext", "-bbox", str(path), "-"], capture_output=True, text=True, check=True
    ).stdout
    found: Counter[str] = Counter()
    width = 0.0
    pattern = r'<page width="([\d.]+)"|<word xMin="([\d.-]+)".*?xMax="([\d.-]+)".*?>(.*?)</word>'
    for page_width, left, right, word in re.findall(pattern, listed):
        if page_width:
            width = float(page_width)
            assert width == pytest.approx(595, abs=2)  # A4
        elif float(left) > 20 and float(right) < width - 20:
            found.update(NUMBER.findall(word) or [word])
    return found


@needs_poppler
def test_on_a4_no_column_is_cut(printed: Path, large_page: Any) -> None:
    on_paper = words_on_paper(printed)
    texts = large_page.execute_script(
        "return [...document.querySelectorAll('main > section table :is(th, td):not(.runs)')]"
        ".map(cell => cell.textContent)"
    )
    expected = Counter(word for text in texts for word in NUMBER.findall(text))
    assert len(expected) > 500
    assert expected - on_paper == Counter()
    for dataset in ("MNIST", "FEMNIST"):
        assert on_paper[dataset] >= 2


@needs_poppler
def test_paper_has_what_is_folded_away_but_nothing_to_click(printed: Path) -> None:
    text = subprocess.run(
        ["pdftotext", "-layout", str(printed), "-"], capture_output=True, text=True, check=True
    ).stdout
    assert "FedCOME − FedDC" in text
    assert "Other metrics" in text
    for word in ("Theme:", "Skip to", "Point at the chart", ".csv", "↕"):
        assert word not in text
    pages = text.split("\f")
    starts = [page for page in pages if page.lstrip().startswith("Full participation")]
    assert len(starts) == 1


def test_paper_is_white_in_the_dark_theme(large_page: Any) -> None:
    show_theme(large_page, "dark")
    large_page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    colours = large_page.execute_script(
        "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    )
    large_page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert colours == ["rgb(255, 255, 255)", "rgb(27, 31, 36)"]


def test_after_printing_the_page_is_as_before(large_page: Any, tmp_path: Path) -> None:
    state = (
        "return [document.querySelectorAll('details[open]').length,"
        "document.querySelector('.chart > svg').getAttribute('viewBox')]"
    )
    before = large_page.execute_script(state)
    print_to(large_page, tmp_path / "report.pdf")
    assert large_page.execute_script(state) == before


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
