"""Figures as part of a page."""

import re
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from analysis import figures, style, svg
from analysis.figures import Drawing
from tests.analysis import synthetic

SPACES = ' xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg"'


@pytest.fixture(scope="module")
def drawings() -> dict[str, Drawing]:
    study = synthetic.study("full_participation", seeds=2, rounds=10)
    plots = (figures.CONVERGENCE, figures.CONFLICTS, figures.ROUNDS_TO_TARGET)
    return {drawing.name.split("_", 2)[2]: drawing for drawing in figures.draw(study, plots)}


def inline(drawing: Drawing) -> str:
    return svg.inline(drawing.figure, drawing.name, drawing.caption)


def parse(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.replace("<svg", f"<svg{SPACES}", 1))


def words(drawing: Drawing) -> list[str]:
    return [node.text for node in parse(inline(drawing)).iter() if node.tag.endswith("}text")]


def test_words_are_words_and_numbers_keep_their_digits(drawings: dict[str, Drawing]) -> None:
    assert {"MNIST", "CIFAR-100", "FedCOME", "round"} <= set(words(drawings["convergence"]))
    axis = drawings["conflicts"].figure.axes[1]
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert any(re.fullmatch(r"\d\.\d{2,}", label) for label in labels)
    low, high = axis.get_ylim()
    seen = [t for t, tick in zip(labels, axis.get_yticks(), strict=True) if low <= tick <= high]
    assert set(seen) <= set(words(drawings["conflicts"]))


def test_ink_is_the_pages_and_methods_keep_their_colours(drawings: dict[str, Drawing]) -> None:
    text = inline(drawings["convergence"])
    assert style.INK not in text
    assert "currentColor" in text
    for look in style.LOOKS.values():
        assert f"stroke: {look.colour}" in text


def test_bands_stay_as_faint_as_they_were(drawings: dict[str, Drawing]) -> None:
    assert "fill-opacity: 0.15" in inline(drawings["convergence"])


def test_nothing_in_it_is_named_as_in_another_figure(drawings: dict[str, Drawing]) -> None:
    names = [re.findall(r'\bid="([^"]+)"', inline(drawing)) for drawing in drawings.values()]
    flat = [name for own in names for name in own]
    assert flat
    assert len(flat) == len(set(flat))


def test_everything_that_it_refers_to_is_there(drawings: dict[str, Drawing]) -> None:
    for drawing in drawings.values():
        text = inline(drawing)
        used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
        assert used <= set(re.findall(r'\bid="([^"]+)"', text))


def test_it_styles_nothing_but_itself(drawings: dict[str, Drawing]) -> None:
    assert not any("<style" in inline(drawing) for drawing in drawings.values())


def test_its_size_is_known_before_it_is_drawn(drawings: dict[str, Drawing]) -> None:
    figure = drawings["convergence"].figure
    width, height = figure.get_size_inches()
    assert svg.size_of(figure) == f"--width: 875px; aspect-ratio: {width:g} / {height:g}"


def test_files_for_print_have_a_white_ground_and_shapes_for_letters(
    drawings: dict[str, Drawing],
) -> None:
    text = figures.as_bytes(drawings["convergence"].figure, "svg").decode()
    assert "fill: #ffffff" in text
    assert "<text" not in text
    assert mpl.rcParams["svg.fonttype"] == mpl.rcParamsDefault["svg.fonttype"]
