"""The pages of the documentation, taken apart: headings, links, blocks of code, commands."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DEPLOY = sorted(path for path in (ROOT / "deploy").iterdir() if path.is_file())
READABLE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]

FENCE = re.compile(
    r"^(?P<mark><!-- executed -->\n)?"
    r"(?P<fence>`{3,})(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
SNIPPET = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
DEPLOYED = re.compile(r"python -m (fedcome_ray\.[^'\"`&\]\n]*)")
INLINE = re.compile(r"`(python -m [^`]+)`")


class Block(NamedTuple):
    """A fenced block of code."""

    language: str
    text: str
    is_executed: bool


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def content(page: Path) -> str:
    """The text as the site shows it: with the files that it includes."""
    return SNIPPET.sub(lambda match: (ROOT / match[1]).read_text("utf-8"), page.read_text("utf-8"))


def blocks(page: Path) -> list[Block]:
    return [
        Block(match["language"], match["text"], match["mark"] is not None)
        for match in FENCE.finditer(content(page))
    ]


def prose(page: Path) -> str:
    """What is between the blocks, without code in the line."""
    return re.sub(r"`[^`\n]*`", "code", FENCE.sub("", content(page)))


def links(page: Path) -> list[str]:
    """Targets of links and images, but for those in the world."""
    text = FENCE.sub("", content(page))
    return [link for link in LINK.findall(text) if not re.match(r"\w+:", link)]


def anchors(page: Path) -> set[str]:
    """Those of the headings, as the site and GitHub make them."""
    return {slug(heading) for heading in HEADING.findall(FENCE.sub("", content(page)))}


def slug(heading: str) -> str:
    words = re.sub(r"[^\w\s-]", "", heading).strip().lower()
    return re.sub(r"[-\s]+", "-", words)


def commands(page: Path) -> Iterator[list[str]]:
    """Every `python -m ...` of ours, as words: in blocks for the shell, and in the line."""
    for block in blocks(page):
        if block.language in {"", "bash", "console", "sh", "shell"}:
            yield from shell_commands(block)
    for command in INLINE.findall(FENCE.sub("", content(page))):
        yield _arguments(shlex.split(command.replace("\n", " ")))


def deployed_commands(path: Path) -> Iterator[list[str]]:
    """Those of a file in deploy/, in comments and code; in YAML one may take several lines."""
    text = path.read_text("utf-8")
    if path.suffix == ".sh":  # what it is given, or else runs
        text = re.sub(r'"(\$\w+)"', r"\1", text)
        given = re.search(r"arguments=\((--.*)\)", text)
        text = text.replace('"${arguments[@]}"', given[1] if given else "")
    if path.suffix == ".yaml":
        comments = [line for line in text.splitlines() if line.startswith("#")]
        text = "\n".join([*comments, *map(_values, yaml.safe_load_all(text))])
    for command in DEPLOYED.findall(text):
        yield shlex.split(command, comments=True)


def _values(found: object) -> str:
    """All texts in a document, one on a line."""
    if isinstance(found, dict):
        found = list(found.values())
    return "\n".join(map(_values, found)) if isinstance(found, list) else str(found)


def shell_commands(block: Block) -> Iterator[list[str]]:
    """Those of one block for the shell."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True) if "python -m" in line else []
        if words[:2] == ["python", "-m"]:
            yield _arguments(words)


def _arguments(words: list[str]) -> list[str]:
    """Without `python -m` and without where the shell sends the output."""
    return list(takewhile(lambda word: word not in {">", "|"}, words[2:]))
