"""Renew the pictures of the documentation.

    python -m fedcome_ray.ui --output results          # in another terminal
    python -m tests.analysis.make_screenshots --report results/analysis/report.html

Needs Chromium and the extra `dev`. The report must hold the grids `full_participation` and
`partial_participation`.
"""

import argparse
import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from fedcome_ray.views import CURVES, TABLE, view_url
from tests.analysis import browser

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PATIENCE = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--server", default="http://127.0.0.1:5000")
    args = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    with browser.chromium(1200, 1000) as driver:
        shoot_report(driver, args.report.resolve().as_uri())
    with browser.chromium(1500, 950) as driver:
        shoot_mlflow(driver, args.server)


def shoot_report(driver: Any, address: str) -> None:
    for theme in ("light", "dark"):
        browser.set_theme(driver, theme)
        driver.get(address)
        driver.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
        scroll(driver, "summary")
        driver.save_screenshot(str(IMAGES / f"report_summary_{theme}.png"))
        scroll(driver, "full_participation")
        driver.save_screenshot(str(IMAGES / f"report_tables_{theme}.png"))


def scroll(driver: Any, section: str) -> None:
    driver.execute_script(f"document.getElementById('{section}').scrollIntoView()")
    time.sleep(0.5)


def shoot_mlflow(driver: Any, server: str) -> None:
    experiment_id = find_experiment(server, "full_participation")
    for view in (TABLE, CURVES):
        driver.get(view_url(server, experiment_id, view))
        wait_for(driver, "canvas, .js-plotly-plot" if view == CURVES else ".ag-row")
        driver.save_screenshot(str(IMAGES / f"mlflow_{view.removeprefix('fedcome-')}.png"))


def find_experiment(server: str, grid: str) -> str:
    url = f"{server}/api/2.0/mlflow/experiments/get-by-name?experiment_name={grid}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(json.load(answer)["experiment"]["experiment_id"])


def wait_for(driver: Any, selector: str) -> None:
    end = time.monotonic() + PATIENCE
    while not driver.find_elements("css selector", selector):
        if time.monotonic() > end:
            raise TimeoutError(f"nothing like `{selector}` at {driver.current_url}")
        time.sleep(0.5)
    time.sleep(3)  # until curves and fonts have settled


if __name__ == "__main__":
    main()
