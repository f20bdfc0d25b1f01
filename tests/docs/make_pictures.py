"""Renew the pictures of docs/mlflow.md: runs a small grid, and looks at it in MLflow's pages.

    python -m tests.docs.make_pictures

Needs Chromium and the extra `dev`. What is run stays in the folder for the next time.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedcome_ray.tracking.views import METHODS, view_url
from tests.analysis import browser
from tests.analysis.make_screenshots import save
from tests.docs.pages import DOCS, ROOT, blocks

GRID = """\
description: Does a momentum that survives rounds help, and with which sampler?
base:
  data: {dataset: digits, partition: {name: classes_per_client, classes: 2}, num_clients: 50}
  model: {name: mlp, hidden: [64]}
  local: {lr: 0.1, epochs: 5, batch_size: 10}
  rounds: 60
axes:
  method: [{name: fedavg}, {name: fedcome}, {name: momentum, beta: 0.2}]
  sampler.name: [random, similarity]
  participation: [0.2, 0.4]
  seed: [0, 1, 2]
"""
# Of the page, which shows it as an example.
CONDITION = (
    "params.`method.name` != 'momentum' and "
    "params.`sampler.name` = 'similarity' and params.participation = '0.4'"
)
PATIENCE = 60.0
PORT = "5078"
SERVER = f"http://127.0.0.1:{PORT}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "first_day")
    folder = parser.parse_args().folder
    folder.mkdir(exist_ok=True)
    (folder / "my_grid.yaml").write_text(GRID)
    tutorial = blocks(DOCS / "adding_a_method.md")
    (folder / "momentum.py").write_text(tutorial[0].text)
    words = ["--plugin", "momentum.py", "--grid", "my_grid.yaml"]
    subprocess.run([*python("tune"), *words], cwd=folder, env=environment(), check=True)
    with pages(folder), browser.chromium(1400, 860) as driver:
        experiment = find_experiment("my_grid")
        shoot_comparison(driver, experiment)
        trial = find_run(experiment, "params.`method.name` = 'momentum' and params.seed = '0'")
        shoot(driver, f"{experiment}/runs/{trial}/artifacts/clients.parquet", "mlflow_client")
        shoot(driver, f"{experiment}/runs/{trial}", "mlflow_origin")


def python(command: str) -> list[str]:
    return [sys.executable, "-m", f"fedcome_ray.{command}"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@contextmanager
def pages(folder: Path) -> Iterator[None]:
    """MLflow's pages, while they are looked at."""
    command = [*python("ui"), "--port", PORT]
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "Ctrl-C" in line)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


def shoot_comparison(driver: Any, experiment: str) -> None:
    driver.get(view_url(SERVER, experiment, METHODS))
    wait_for(driver, ".js-plotly-plot")
    close_panels(driver)
    field = driver.find_element("css selector", "input[value*='fedcome.kind']")
    field.send_keys(f" and {CONDITION}\n")
    time.sleep(10)
    save(driver.get_screenshot_as_png(), "mlflow_compare")


def shoot(driver: Any, path: str, name: str) -> None:
    driver.get(f"{SERVER}/#/experiments/{path}")
    time.sleep(10)
    close_panels(driver)
    save(driver.get_screenshot_as_png(), name)


def find_run(experiment: str, condition: str) -> str:
    asked = {"experiment_ids": [experiment], "filter": condition, "max_results": 1}
    request = urllib.request.Request(
        f"{SERVER}/api/2.0/mlflow/runs/search",
        data=json.dumps(asked).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["runs"][0]["info"]["run_id"])


def find_experiment(grid: str) -> str:
    url = f"{SERVER}/api/2.0/mlflow/experiments/get-by-name?experiment_name={grid}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(json.load(answer)["experiment"]["experiment_id"])


def wait_for(driver: Any, selector: str) -> None:
    end = time.monotonic() + PATIENCE
    while not driver.find_elements("css selector", selector):
        if time.monotonic() > end:
            raise TimeoutError(f"nothing like `{selector}` at {driver.current_url}")
        time.sleep(0.5)
    time.sleep(3)  # until curves and fonts have settled


def close_panels(driver: Any) -> None:
    """MLflow opens with an assistant and a banner that take a third of the window."""
    for label in ("Close", "Hide banner"):
        for button in driver.find_elements("css selector", f"button[aria-label='{label}']"):
            button.click()
    time.sleep(2)


if __name__ == "__main__":
    main()
