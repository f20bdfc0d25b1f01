import pytest

from analysis import labels


@pytest.mark.parametrize(
    ("setting", "raw", "text"),
    [
        ("method.name", "fedmgda_plus", "FedMGDA+"),
        ("method.name", "somebodys_plugin", "somebodys_plugin"),
        ("data.dataset", "cifar100", "CIFAR-100"),
        ("data.dataset", "digits", "digits"),
        ("data.dataset", "npz:my/file.npz", "npz:my/file.npz"),
        ("data.dataset", "npz:PATH", "npz:PATH"),
    ],
)
def test_methods_and_datasets_have_names_for_people(setting, raw, text) -> None:
    assert labels.value(setting, raw) == text


def test_datasets_are_in_the_papers_order() -> None:
    given = ["synthetic", "cifar100", "cifar10", "femnist", "mnist"]
    ordered = sorted(given, key=lambda name: labels.order("data.dataset", name))
    assert ordered == ["mnist", "femnist", "cifar10", "cifar100", "synthetic"]
