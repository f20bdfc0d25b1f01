"""The site builds without a warning, and needs nothing from the network."""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT

NEEDED = ("mkdocs", "material", "mkdocstrings_handlers.python")


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


pytestmark = pytest.mark.skipif(
    not all(map(_is_installed, NEEDED)), reason="the extra `docs` is not installed"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    # Whoever asks a proxy that is not there gets no answer.
    nowhere = "http://127.0.0.1:9"
    offline = {"http_proxy": nowhere, "https_proxy": nowhere, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **offline}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Resources(HTMLParser):
    """Collects what a browser would fetch for a page; where links lead does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            is_fetched = name in {"src", "srcset", "data", "poster", "style"}
            if (is_fetched or (tag == "link" and name == "href")) and value:
                self.found.append(value)


def test_every_page_is_built(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in PAGES}
    built = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert built == pages | {"404.html"}


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    foreign = []
    for page in site.rglob("*.html"):
        resources = Resources()
        resources.feed(page.read_text(encoding="utf-8"))
        assert resources.found
        foreign += [f"{page.name}: {r}" for r in resources.found if re.search(r"(^|\W)//", r)]
        assert 'class="mermaid"' not in page.read_text(encoding="utf-8")  # comes from elsewhere
    assert not foreign


def test_styles_fetch_nothing_from_elsewhere(site: Path) -> None:
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", text), style.name


def test_the_reference_shows_public_names_only(site: Path) -> None:
    for page in (site / "reference").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r'id="fedcome_ray\.[\w.]*\._\w*"', text) == []
    assert 'id="fedcome_ray.federation.round.run_round"' in (
        site / "reference" / "federation.html"
    ).read_text(encoding="utf-8")


def test_the_commands_show_their_options(site: Path) -> None:
    text = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for word in ("fedcome_ray.tune", "fedcome_ray.doctor", "--max-concurrent", "--init-model"):
        assert word in text
