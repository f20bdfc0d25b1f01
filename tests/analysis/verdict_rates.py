"""How often which verdict comes out if the paper's tables are the truth.

    python -m tests.analysis.verdict_rates      # writes the table into docs/analysis.md

Every cell of a table is taken as a normal distribution with the paper's mean and deviation; a
study draws seeds from it and is judged by the code that judges real ones. Methods are drawn
independently, since the paper does not tell how they go together; where seeds are shared,
differences spread less. The paper's table of sensitivity has no deviations: there it is that of
the same setting in the table of partial participation.
"""

import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import decisions
from analysis.contents import CONTENTS
from analysis.decisions import Array
from analysis.study import LAYOUTS, Study
from analysis.tables import paper_table
from analysis.verdicts import Claim, part_about
from tests.analysis.conftest import trial

DOCUMENT = Path(__file__).parents[2] / "docs" / "analysis.md"
TABLES = ("full_participation", "heterogeneity", "partial_participation", "sensitivity")
SEEDS = (3, 5, 10)
STUDIES = 4000
WORDS = ("holds", "leans for", "open", "leans against", "fails")
UNKNOWN_STD = 0.43  # FedCOME, similarity sampler, 20 %


@cache
def cells(grid: str) -> pd.DataFrame:
    """The cells of a table of the paper, each as the trial that it is about."""
    table = paper_table(grid)
    assert table is not None
    keys = [name for name in table if not name.startswith("paper")]
    frames = []
    for _, row in table.fillna({"paper_std": UNKNOWN_STD}).iterrows():
        settings = {key.replace(".", "__"): row[key] for key in keys if key != "method.name"}
        own = trial(row.get("method.name", "fedcome"), 0, row["paper"], grid=grid, **settings)
        frames.append(own.assign(std=row["paper_std"]))
    return pd.concat(frames, ignore_index=True)


@cache
def linear(grid: str, name: str) -> tuple[Array, Array]:
    """The comparisons of a claim as a linear function of the cells, and what it adds.

    Found by asking: seed k has accuracy 1 in cell k and 0 elsewhere, and one more seed 0 in all.
    """
    claim = next(own for own in CONTENTS[grid].claims if own.name == name)
    table = cells(grid).drop(columns="std")
    num = len(table)
    unit = [
        table.assign(
            seed=k,
            run_id=table["run_id"] + f"-{k}",
            **{"accuracy/test": (np.arange(num) == k) / 100},
        )
        for k in range(num + 1)
    ]
    frame = pd.concat(unit, ignore_index=True)
    study = Study(grid, "paper", LAYOUTS[grid], frame, aside=frame.iloc[:0])
    meant, is_complete = part_about(study, claim.about)
    assert is_complete
    found = np.array([own.differences.sort_index() for own in claim.compare(meant)])
    return found[:, :num] - found[:, num:], found[:, num:]


def rates(claim: Claim, grid: str, num_seeds: int) -> dict[str, float]:
    """The share of studies with each decision."""
    table = cells(grid)
    weights, offset = linear(grid, claim.name)
    rng = np.random.default_rng(num_seeds)
    noise = rng.standard_normal((STUDIES, len(table), num_seeds))
    mean, std = (table[name].to_numpy()[:, None] for name in ("accuracy/test", "std"))
    differences = weights @ (100 * mean + std * noise) + offset
    if claim.kind == "on average":
        evidence = decisions.on_average(differences)
    else:
        evidence = decisions.everywhere(decisions.compare(differences))
    found = decisions.decide(evidence)
    return {word: float((found == word).mean()) for word in WORDS}


def table_claims() -> list[tuple[str, Claim]]:
    return [
        (grid, claim)
        for grid in TABLES
        for claim in CONTENTS[grid].claims
        if claim.source is not None and "table" in claim.source
    ]


def markdown() -> str:
    lines = [
        f"| claim | {' | '.join(f'{num} seeds' for num in SEEDS)} |",
        f"| --- |{' --- |' * len(SEEDS)}",
    ]
    for grid, claim in table_claims():
        found = (rates(claim, grid, num) for num in SEEDS)
        texts = [" / ".join(f"{100 * own[word]:.0f}" for word in WORDS) for own in found]
        lines.append(f"| `{claim.name}` | {' | '.join(texts)} |")
    return "\n".join(lines)


def in_document() -> re.Match[str]:
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.search(r"(?<=<!-- verdict rates -->\n\n).*?(?=\n\n<!-- end -->)", text, re.DOTALL)
    assert found is not None
    return found


def main() -> int:
    place = in_document()
    text = place.string[: place.start()] + markdown() + place.string[place.end() :]
    DOCUMENT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
