"""Nothing in the documentation points into the void."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, PAGES, READABLE, ROOT, anchors, links, name_of


@pytest.mark.parametrize("page", READABLE, ids=name_of)
def test_every_link_has_a_target(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_there = target.exists()
        if is_there and anchor and target.suffix == ".md":
            is_there = anchor in anchors(target)
        if not is_there:
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_link_to_nothing_outside_of_the_site(page: Path) -> None:
    paths = [path for link in links(page) if (path := link.partition("#")[0])]
    assert [p for p in paths if DOCS not in (page.parent / p).resolve().parents] == []


def test_every_page_is_in_the_navigation_once() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = sorted(_leaves(settings["nav"]))
    assert named == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


def _leaves(item: Any) -> list[str]:
    if isinstance(item, str):
        return [item]
    children = item.values() if isinstance(item, dict) else item
    return [leaf for child in children for leaf in _leaves(child)]
