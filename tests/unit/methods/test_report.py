import weakref

import torch

from fedcome_ray.methods.method import Report
from tests.unit.methods.quadratics import column

RNG = torch.Generator().manual_seed(2)


def report(size: int) -> Report:
    return Report(
        update=torch.randn(size, 40, generator=RNG),
        loss=torch.rand(size, 1, generator=RNG),
        total_lr=torch.rand(size, 1, generator=RNG) + 0.1,
        num_examples=torch.arange(1.0, size + 1).unsqueeze(-1),
    )


def test_the_mean_gradient_followed_along_the_path_gives_the_update() -> None:
    reports = report(3)
    torch.testing.assert_close(-reports.total_lr * reports.mean_gradient, reports.update)


def test_weights_are_shares_of_the_examples() -> None:
    ones = column(1, 1)
    assert Report(ones, ones, ones, column(30, 10)).weights.tolist() == [0.75, 0.25]


def test_inner_products_are_formed_in_float64() -> None:
    reports = report(5)
    exact = reports.update.double()
    torch.testing.assert_close(reports.gram, exact @ exact.T, rtol=1e-14, atol=1e-14)


def test_inner_products_are_formed_once() -> None:
    reports = report(5)
    assert reports.gram is reports.gram


def test_reports_of_several_shards_are_joined_in_the_order_given() -> None:
    first, second = report(2), report(3)
    joint = Report.join([first, second])
    assert torch.equal(joint.update[2:], second.update)
    assert joint.num_examples.squeeze(-1).tolist() == [1, 2, 1, 2, 3]


def test_a_report_is_let_go_when_it_has_been_joined() -> None:
    """Else a server would hold all updates twice."""
    parts = [report(2), report(3)]
    watched = [weakref.ref(part.update) for part in parts]
    joint = Report.join(parts)
    assert not parts
    assert [reference() for reference in watched] == [None, None]
    assert len(joint.update) == 5
