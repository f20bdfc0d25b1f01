import gc
import sys
import types

import torch

from fedcome_ray.datasets import torchvision_import
from fedcome_ray.datasets.torchvision_import import torchvision_datasets


def test_torchvision_imports_beside_this_torch_and_stays_imported() -> None:
    first = torchvision_datasets()
    gc.collect()
    assert torchvision_datasets() is first
    assert first.MNIST
    assert torch.ops.torchvision.nms


def test_a_torchvision_that_imports_is_left_alone(monkeypatch) -> None:
    fine = types.ModuleType("torchvision")
    fine.datasets = types.ModuleType("torchvision.datasets")
    monkeypatch.setitem(sys.modules, "torchvision", fine)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", fine.datasets)
    declared = list(torchvision_import._declared)
    assert torchvision_datasets() is fine.datasets
    assert torchvision_import._declared == declared
