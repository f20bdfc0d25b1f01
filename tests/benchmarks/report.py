"""How long a report of many trials takes to write and to open, and how large it is.

    python -m tests.benchmarks.report [--seeds N] [--rounds N]

The trials are invented: all grids of the profile `paper` with as many seeds as asked for, 1,182
trials with 100 recorded rounds each unless told otherwise. Reading a store is not part of it.
Needs Chromium. Times of opening are medians; process time is shown beside wall time, since other
work on the machine delays a report but does not make it longer.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis import report
from analysis.publish import page_of, section_of
from tests.analysis import browser, synthetic

TIMES_OPENED = 7
MEASURE = """
const [navigation] = performance.getEntriesByType("navigation");
const [paint] = performance.getEntriesByName("first-contentful-paint");
return JSON.stringify({
  first_paint: paint.startTime,
  content_loaded: navigation.domContentLoadedEventEnd,
  loaded: navigation.loadEventEnd,
  elements: document.querySelectorAll("*").length,
});
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=100, help="recorded of each trial")
    args = parser.parse_args()
    studies = synthetic.studies(args.seeds, args.rounds)
    print(f"trials            {sum(study.frame['run_id'].nunique() for study in studies):,}")
    sections = timed("tables, figures", lambda: [section_of(study, "last") for study in studies])
    page = timed("claims", lambda: page_of(sections, {"store": "invented"}, is_all=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        timed("the page", lambda: report.write(path, page))
        print(f"size              {path.stat().st_size / 1e6:.1f} MB")
        open_in_browser(path)


def timed(name: str, work: Callable[[], Any]) -> Any:
    wall, process = time.perf_counter(), time.process_time()
    result = work()
    wall, process = time.perf_counter() - wall, time.process_time() - process
    print(f"{name:<17} {process:.1f} s of CPU, {wall:.1f} s")
    return result


def open_in_browser(path: Path) -> None:
    measured = []
    with browser.chromium(1280, 900) as driver:
        for _ in range(TIMES_OPENED):
            driver.get("about:blank")
            driver.get(path.as_uri())
            time.sleep(1)
            measured.append(json.loads(driver.execute_script(MEASURE)))
    for name in ("first_paint", "content_loaded", "loaded"):
        values = sorted(one[name] for one in measured)
        print(f"{name:<17} {statistics.median(values):.0f} ms ({values[0]:.0f}–{values[-1]:.0f})")
    print(f"elements          {measured[0]['elements']:,}")


if __name__ == "__main__":
    main()
