"""A headless Chromium for the tests of pages and for the pictures of the documentation."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)


def why_not() -> str | None:
    """Why there is no browser here, None if there is one."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed (it is in the extra `dev`)"
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not found" if missing else None


@contextmanager
def chromium(width: int = 1200, height: int = 900) -> Iterator[Any]:
    """A browser that records what pages write to its console."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for switch in (*SWITCHES, f"--window-size={width},{height}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def set_theme(driver: Any, theme: str) -> None:
    """`light` or `dark`, as if it were the system's choice; and no motion, which takes time."""
    features = [
        {"name": "prefers-color-scheme", "value": theme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
