"""The page of plain sentences."""

from typing import Any

import pytest

from analysis.contents import check_claims
from analysis.found import HEADINGS, how_fedcome_did, markdown, what_we_found
from analysis.report import BADGES
from analysis.study import Study
from tests.analysis.conftest import join, opened, seeds


def study(*methods: tuple[str, float], **changes: Any) -> Study:
    """Methods with a mean accuracy; their differences have a deviation of 0.1 over three seeds."""
    luck = {"fedcome": (0.1, 0.0, -0.1)}
    frames = [
        seeds(name, *(mean + own for own in luck.get(name, (0.0, 0.0, 0.0))), **changes)
        for name, mean in methods
    ]
    return opened(join(*frames))


def test_fedcome_beside_fedavg_with_its_interval() -> None:
    (text,) = how_fedcome_did(study(("fedavg", 90.0), ("fedcome", 93.1), data__dataset="mnist"))
    assert text.startswith("With all clients, on MNIST (200 rounds, 3 seeds, profile paper), ")
    assert "FedCOME was ahead of FedAvg by 3.1 points (95 % interval 2.9 to 3.3)" in text
    assert "It was the best of 2 methods" in text


def test_it_is_told_where_fedcome_is_not_the_best() -> None:
    (text,) = how_fedcome_did(study(("fedavg", 90.0), ("feddc", 95.0), ("fedcome", 93.0)))
    assert "It was not the best of 3 methods: it was behind FedDC by 2.0 points" in text


def test_cells_that_others_won_are_named() -> None:
    cells = [
        seeds(method, accuracy, accuracy, grid="heterogeneity", data__partition__classes=classes)
        for classes, accuracies in ((2, (60.0, 70.0)), (3, (65.0, 64.0)), (4, (68.0, 66.0)))
        for method, accuracy in zip(("feddyn", "fedcome"), accuracies, strict=True)
    ]
    (text,) = how_fedcome_did(opened(join(*cells)))
    assert "It was the best of 2 methods in 1 of 3 cells." in text
    assert "FedDyn was ahead by 1.0 to 2.0 points at 3 classes; 4 classes." in text


def test_a_small_difference_is_called_level() -> None:
    (text,) = how_fedcome_did(study(("fedavg", 90.0), ("fedcome", 90.05)))
    assert "about level with FedAvg: +0.05 points (95 % interval −0.20 to +0.30)" in text


@pytest.mark.parametrize("others", [("fedavg", "feddc"), ("feddc",)])
def test_a_method_that_diverged_is_not_the_best(others: tuple[str, ...]) -> None:
    frame = join(seeds("fedcome", 70.0, 71.0), *(seeds(m, float("nan"), 99.0) for m in others))
    (text,) = how_fedcome_did(opened(frame))
    assert "not the best" not in text


def test_fedcome_itself_may_diverge() -> None:
    frame = join(seeds("fedcome", float("nan")), seeds("fedavg", 70.0))
    (text,) = how_fedcome_did(opened(frame))
    assert "no seed that both finished" in text
    assert text.endswith("It diverged.")


def test_claims_come_by_verdict_and_say_where_they_were_tried() -> None:
    studies = {"controls": study(("fedavg", 70.0), grid="controls")}
    own = study(("fedavg", 70.0), ("feddyn", 80.0), ("fedcome", 75.0), grid="heterogeneity")
    studies["heterogeneity"] = own
    groups = what_we_found(studies.values(), check_claims(studies))
    assert groups[0].verdict is None
    by_verdict = {group.verdict: group for group in groups}
    failed = next(
        s for s in by_verdict["not reproduced"].sentences if s.claim == "best-heterogeneous"
    )
    assert "the least favourable is 2 classes: FedCOME − FedDyn: −5.0 points" in failed.text
    assert "(CIFAR-10, 500 rounds, 3 seeds, profile paper.)" in failed.text
    unjudged = [sentence.text for sentence in by_verdict["not judged"].sentences]
    assert "Grid fairness has not been run: sharper." in unjudged
    text = markdown(groups)
    assert text.index("## How FedCOME did") < text.index("## Not judged")


def test_every_claim_is_on_the_page_once() -> None:
    findings = check_claims({})
    (group,) = what_we_found([], findings)
    text = " ".join(sentence.text for sentence in group.sentences)
    assert all(text.count(finding.claim.name) >= 1 for finding in findings)


def test_every_verdict_has_a_heading_and_a_badge() -> None:
    assert set(HEADINGS) == set(BADGES)
