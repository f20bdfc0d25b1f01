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


def test_mean_gradients_are_added_and_averaged_without_being_formed() -> None:
    reports = report(3)
    vector = torch.randn(3, 40, generator=RNG)
    torch.testing.assert_close(reports.add_mean_gradient(vector), vector + reports.mean_gradient)
    torch.testing.assert_close(reports.cohort_gradient, reports.mean_gradient.mean(0))


def test_gradients_along_the_shortest_of_paths_have_a_mean() -> None:
    gradient, tiny = torch.randn(3, 40, generator=RNG), torch.full((3, 1), 1e-38)
    reports = Report(update=-tiny * gradient, loss=tiny, total_lr=tiny, num_examples=tiny)
    torch.testing.assert_close(reports.cohort_gradient, gradient.mean(0), rtol=1e-4, atol=1e-5)


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


def test_means_are_of_the_updates() -> None:
    reports = report(5)
    exact = reports.update.double()
    shares = torch.tensor([1, 2, 3, 4, 5]).double() / 15
    torch.testing.assert_close(reports.weighted_mean.double(), shares @ exact, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(reports.plain_mean.double(), exact.mean(0), rtol=1e-6, atol=1e-7)


def test_the_weighted_mean_is_formed_once() -> None:
    reports = report(5)
    assert reports.weighted_mean is reports.weighted_mean


def test_a_report_is_filled_in_the_memory_given() -> None:
    whole = Report.around(torch.empty(5, 40))
    part = whole.of(slice(2, 5))
    for field, given in zip(part.fields(), report(3).fields(), strict=True):
        field.copy_(given)
    assert whole.update[2:].data_ptr() == part.update.data_ptr()
    assert whole.num_examples[2:].squeeze(-1).tolist() == [1, 2, 3]
