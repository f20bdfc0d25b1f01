"""Renew the pictures of the documentation.

    python -m tests.analysis.make_screenshots --report results/analysis/report.html
    python -m fedcome_ray.ui --output results          # in another terminal, for MLflow's pages
    python -m tests.analysis.make_screenshots --report results/analysis/report.html \\
        --server http://127.0.0.1:5000

Needs Chromium and the extra `dev`. The report must hold the grids `full_participation`,
`partial_participation`, `client_loss` and `fairness`. Without a server MLflow's pictures stay.
"""

import argparse
import io
import time
from pathlib import Path
from typing import Any

from PIL import Image

from tests.analysis import browser

IMAGES = Path(__file__).parents[2] / "docs" / "images"
FIGURES = {
    "full_participation_convergence.png": "figure_convergence",
    "client_loss_client_loss.png": "figure_client_loss",
    "partial_participation_similarity.png": "figure_similarity",
    "fairness_sorted_accuracy.png": "figure_sorted_accuracy",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    for source, name in FIGURES.items():
        save((args.report.parent / "figures" / source).read_bytes(), name)
    with browser.chromium(1200, 1000) as driver:
        shoot_report(driver, args.report.resolve().as_uri())


def shoot_report(driver: Any, address: str) -> None:
    for theme in ("light", "dark"):
        browser.set_theme(driver, theme)
        driver.get(address)
        scroll(driver, "found")
        save(driver.get_screenshot_as_png(), f"report_summary_{theme}")
        scroll(driver, "full_participation")
        save(driver.get_screenshot_as_png(), f"report_tables_{theme}")


def scroll(driver: Any, section: str) -> None:
    driver.execute_script(f"document.getElementById('{section}').scrollIntoView()")
    time.sleep(0.5)


def save(png: bytes, name: str) -> None:
    """As PNG of 128 colours: nobody sees the difference, and the repository stays small."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(128).save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
