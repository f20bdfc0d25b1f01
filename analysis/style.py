"""How curves look: one colour, marker and dash for each method, everywhere.

The colours are Okabe and Ito's, which the colour-blind can tell apart; markers and dashes do it in
grey. The paper's own method is the warm, heavy line.
"""

from typing import NamedTuple

from fedcome_ray.methods import PAPER

INK = "#1b1f24"  # of words and axes; a page may have another
FAINT = "#d7dce2"  # of lines that only guide the eye


class Look(NamedTuple):
    colour: str
    marker: str
    dash: tuple[int, ...] = ()  # lengths of lines and gaps; empty is a solid line
    width: float = 1.2

    @property
    def line(self) -> str | tuple[int, tuple[int, ...]]:
        """For matplotlib."""
        return (0, self.dash) if self.dash else "-"


LOOKS = {
    "fedavg": Look("#7a7a7a", "o"),
    "fedprox": Look("#56b4e9", "s", (5, 2)),
    "scaffold": Look("#e69f00", "^"),
    "feddyn": Look("#009e73", "D", (6, 2, 1, 2)),
    "fedfv": Look("#cc79a7", "v"),
    "feddc": Look("#0072b2", "P", (3, 1)),
    "fedcome": Look("#d55e00", "*", (), 2.0),
}
ANONYMOUS = [
    Look(look.colour, look.marker, dash)
    for dash in ((), (4, 2), (1, 2), (6, 2, 1, 2))
    for look in LOOKS.values()
]


def looks(methods: dict[str, str]) -> dict[str, Look]:
    """A look for each label, given the method behind it.

    Labels that are one method each look like it; settings of the same method get looks in turn.
    """
    if len(set(methods.values())) == len(methods):
        extras = [method for method in methods.values() if method not in PAPER]
        own = LOOKS | dict(zip(extras, ANONYMOUS[len(LOOKS) :], strict=False))
        return {label: own[method] for label, method in methods.items()}
    return {label: ANONYMOUS[i % len(ANONYMOUS)] for i, label in enumerate(methods)}
