"""What the documentation says about verdicts if the paper's tables are the truth."""

import re

import pytest

from analysis.verdicts import Claim
from tests.analysis.verdict_rates import SEEDS, in_document, markdown, rates, table_claims

NOISE = 0.015  # four deviations of a share of 5 % in the simulated studies
CLAIMS = [pytest.param(*item, id=item[1].name) for item in table_claims()]


@pytest.mark.parametrize(("grid", "claim"), CLAIMS)
def test_a_claim_that_the_papers_numbers_bear_out_rarely_fails(grid: str, claim: Claim) -> None:
    for num_seeds in SEEDS:
        found = rates(claim, grid, num_seeds)
        assert found["fails"] <= 0.05 + NOISE
        assert found["fails"] + found["leans against"] <= 0.25 + 2 * NOISE


@pytest.mark.parametrize(
    ("name", "num_seeds"), [("sampler-gain", 3), ("lead-grows", 3), ("best-full", 10)]
)
def test_what_the_papers_numbers_show_clearly_is_confirmed(name: str, num_seeds: int) -> None:
    grid, claim = next(item for item in table_claims() if item[1].name == name)
    assert rates(claim, grid, num_seeds)["holds"] > 0.8


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"(?<![\w-])\d+(?![\w-])", text)]


def test_the_documentation_has_these_numbers() -> None:
    """To a percent: on another machine a study or two of thousands may tip."""
    written, simulated = in_document()[0], markdown()
    assert re.findall("`.*`", written) == re.findall("`.*`", simulated)
    assert numbers(written) == pytest.approx(numbers(simulated), abs=1)
    assert len(numbers(written)) == 3 + 15 * len(CLAIMS)
