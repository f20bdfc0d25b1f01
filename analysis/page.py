"""The report as one page of Markdown: for a repository, where a table is read without a browser."""

from collections.abc import Iterator
from pathlib import Path

from . import claims, found, render
from .figures import CLIENT_LOSS, CONVERGENCE, SENSITIVITY, SORTED_ACCURACY, Drawing
from .profiles import scopes
from .report import Page, Section

SHOWN = (CONVERGENCE, SENSITIVITY, CLIENT_LOSS, SORTED_ACCURACY)
"""The figures of the page; the others are in the folder beside it."""
LOCAL = ("store",)
"""What means nothing to readers elsewhere."""


def write(path: Path, page: Page) -> None:
    """Figures are expected in the folder `figures` beside the page."""
    path.write_text("\n".join(_blocks(page)), encoding="utf-8")


def _blocks(page: Page) -> Iterator[str]:
    yield f"# {page.title}\n"
    for scope in scopes(section.study for section in page.sections):
        yield f"**{scope.what}.** {scope.meaning}\n"
    if page.found:
        yield found.markdown(page.found)
    if page.findings:
        yield "## Claims of the paper\n"
        yield render.markdown(claims.as_table(page.findings))
    for table in page.summary:
        yield render.markdown(table)
    for section in page.sections:
        yield from _section(section)
    yield "## Provenance\n\n| | |\n|---|---|"
    yield from (f"| {name} | {text} |" for name, text in page.origin.items() if name not in LOCAL)
    yield ""


def _section(section: Section) -> Iterator[str]:
    grid = section.study.grid
    yield f"## {section.study.layout.title}\n"
    yield f"Grid `{grid}`, profile {section.study.profile}.\n"
    for table in section.tables:
        yield render.markdown(table)
    shown = {f"{grid}_{plot.name}" for plot in SHOWN}
    for drawing in section.drawings:
        if drawing.name in shown:
            yield _figure(drawing)


def _figure(drawing: Drawing) -> str:
    return f"![{drawing.caption}](figures/{drawing.name}.png)\n\n*{drawing.caption}*\n"
