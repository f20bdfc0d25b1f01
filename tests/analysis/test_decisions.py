"""The error rates that are promised, by simulation of the code that decides."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis import decisions
from analysis.decisions import DECIDED, LEANING, Array

STUDIES = 20_000
NOISE = 4 * (DECIDED * (1 - DECIDED) / STUDIES) ** 0.5  # of a simulated share, four deviations


def simulate(means: Array, num_seeds: int, correlation: float = 0.0) -> Array:
    """Differences of many studies, `[study, comparison, seed]`.

    Comparisons have unlike spreads, and share the seeds' luck if they are correlated.
    """
    rng = np.random.default_rng(7)
    num = len(means)
    own = rng.standard_normal((STUDIES, num, num_seeds))
    shared = rng.standard_normal((STUDIES, 1, num_seeds))
    noise = (1 - correlation) ** 0.5 * own + correlation**0.5 * shared
    spreads = np.geomspace(0.2, 2.0, num)[:, None]
    return spreads * noise + means[:, None]


def shares(found: np.ndarray) -> dict[str, float]:
    words, counts = np.unique(found, return_counts=True)
    return dict(zip(words.tolist(), (counts / STUDIES).tolist(), strict=True))


def everywhere(differences: Array) -> dict[str, float]:
    return shares(decisions.decide(decisions.everywhere(decisions.compare(differences))))


def on_average(differences: Array) -> dict[str, float]:
    return shares(decisions.decide(decisions.on_average(differences)))


@pytest.mark.parametrize("num_seeds", [3, 10])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_28_true_comparisons_are_rarely_refuted(num_seeds: int, correlation: float) -> None:
    found = everywhere(simulate(np.zeros(28), num_seeds, correlation))
    assert found.get("fails", 0.0) <= DECIDED + NOISE
    assert found.get("fails", 0.0) + found.get("leans against", 0.0) <= LEANING + NOISE


def test_the_correction_is_no_more_careful_than_it_must_be() -> None:
    assert everywhere(simulate(np.zeros(28), 3))["fails"] > 0.8 * DECIDED


@pytest.mark.parametrize("num_seeds", [3, 10])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_one_false_comparison_among_28_is_rarely_overlooked(
    num_seeds: int, correlation: float
) -> None:
    means = np.array([0.0, *[50.0] * 27])  # the boundary where it is overlooked most often
    found = everywhere(simulate(means, num_seeds, correlation))
    assert 0.8 * DECIDED < found["holds"] <= DECIDED + NOISE
    assert found["holds"] + found["leans for"] <= LEANING + 2 * NOISE


@pytest.mark.parametrize("num_seeds", [3, 10])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_no_difference_on_average_is_rarely_taken_for_one(
    num_seeds: int, correlation: float
) -> None:
    means = np.array([-1.0, 1.0] * 14)
    found = on_average(simulate(means, num_seeds, correlation))
    for decided, leaning in (("holds", "leans for"), ("fails", "leans against")):
        assert 0.8 * DECIDED < found[decided] <= DECIDED + NOISE
        assert found[decided] + found[leaning] <= LEANING + 2 * NOISE


def test_two_seeds_lean_at_most() -> None:
    for mean in (-50.0, 50.0):
        assert not {"holds", "fails"} & set(on_average(simulate(np.full(3, mean), 2)))
        assert not {"holds", "fails"} & set(everywhere(simulate(np.full(3, mean), 2)))


def test_p_values_are_those_of_the_t_test() -> None:
    values = np.array([1.0, 2.0, 4.0])
    found = decisions.compare(values)
    assert found.holds == pytest.approx(stats.ttest_1samp(values, 0, alternative="greater").pvalue)
    assert found.fails == pytest.approx(stats.ttest_1samp(values, 0, alternative="less").pvalue)


def test_the_interval_is_that_of_the_t_test() -> None:
    values = np.array([1.0, 2.0, 4.0])
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert decisions.interval(values) == pytest.approx((expected.low, expected.high))
    assert decisions.effect_of(values) == pytest.approx((7 / 3) / values.std(ddof=1))


def test_holm_by_hand() -> None:
    found = decisions.refuted(np.array([0.03, 0.01, 0.04]))
    assert found == pytest.approx([0.06, 0.03, 0.06])


@pytest.mark.parametrize(
    ("values", "decision"),
    [
        ((1.0, 1.1, 0.9), "holds"),
        ((-1.0, -1.1, -0.9), "fails"),
        ((1.0, 0.2, 0.4), "leans for"),
        ((-1.0, -0.2, -0.4), "leans against"),
        ((1.0, -1.0, 0.5), "open"),
        ((2.0, 2.0, 2.0), "holds"),
        ((0.0, 0.0, 0.0), "open"),
        ((1.0, 1.1, math.nan), "open"),
        ((1.0, 1.1), "leans for"),
        ((1.0,), "open"),
        ((), "open"),
    ],
)
def test_decisions_of_one_comparison(values: tuple[float, ...], decision: str) -> None:
    assert decisions.decide(decisions.compare(np.array(values))).item() == decision


@pytest.mark.parametrize("effect", [0.5, 1.0, 3.0, -1.0])
def test_the_seeds_that_would_decide_do_so_four_times_out_of_five(effect: float) -> None:
    num = decisions.seeds_to_decide(effect)
    rng = np.random.default_rng(3)

    def chance(seeds: int) -> float:
        found = decisions.compare(abs(effect) + rng.standard_normal((STUDIES, seeds)))
        return float((found.holds <= DECIDED).mean())

    assert chance(int(num)) > 0.79
    assert num == 3 or chance(int(num) - 1) < 0.81


def test_the_seeds_of_a_conjunction_are_those_of_its_weakest_comparison() -> None:
    assert decisions.seeds_for_all([3.0, 1.0, 2.0]) == decisions.seeds_to_decide(1.0)
    assert decisions.seeds_for_all([3.0, -1.0]) == decisions.seeds_to_decide(-1.0, DECIDED / 2)
    assert math.isnan(decisions.seeds_for_all([1.0, math.nan]))
    assert math.isinf(decisions.seeds_for_all([1.0, 0.01]))
