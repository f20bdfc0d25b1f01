"""A figure as part of a page: its words are text, and its ink is the page's, light or dark.

The colours of the curves stay what they are, so a method looks the same in every theme.
"""

import html
import re

from matplotlib.figure import Figure

from . import figures, style

INKS = {style.INK: "currentColor", style.FAINT: "var(--line)"}
USELESS = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<style.*?</style>"
    r"| font-family: [^;\"]*;?|(?<=<g) id=\"[^\"]*\"",
    re.DOTALL,
)
PLACES = re.compile(r' (?:d|x|y)="[^"]*"')
DECIMALS = re.compile(r"(\.\d)\d+")
POINTS_PER_INCH = 72  # matplotlib's own in an SVG
PIXELS_PER_INCH = 125  # of a page as wide as ours: the words are as large as those around


def inline(figure: Figure, name: str, words: str) -> str:
    """`name` keeps the names inside of it apart from those of other figures."""
    text = figures.as_bytes(figure, "svg", for_page=True).decode()
    for ink, pages in INKS.items():
        text = text.replace(ink, pages)
    text = USELESS.sub("", text)
    text = PLACES.sub(_shorten, text)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"\s+", " ", text).replace("> <", "><")
    return re.sub("<svg.*?>", lambda _: _opening(figure, words), text, count=1).strip()


def size_of(figure: Figure) -> str:
    """As CSS: a page that knows it need not draw what is out of sight, and never shifts."""
    width, height = figure.get_size_inches()
    return f"--width: {PIXELS_PER_INCH * width:.0f}px; aspect-ratio: {width:g} / {height:g}"


def _shorten(places: re.Match[str]) -> str:
    """A tenth of a point cannot be seen, and most of a figure is places."""
    return DECIMALS.sub(r"\1", places[0])


def _opening(figure: Figure, words: str) -> str:
    width, height = figure.get_size_inches()
    label = html.escape(words, quote=True)
    box = f"0 0 {POINTS_PER_INCH * width:g} {POINTS_PER_INCH * height:g}"
    return f'<svg viewBox="{box}" role="img" aria-label="{label}">'
