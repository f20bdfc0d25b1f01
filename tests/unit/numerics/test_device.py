import pytest
import torch
from threadpoolctl import threadpool_info

from fedcome_ray.methods.method import OnlyParams
from fedcome_ray.numerics import device


def test_a_process_without_a_gpu_computes_on_the_cpu() -> None:
    assert device.pick(0) == torch.device("cpu")


@pytest.mark.parametrize(("share", "fraction"), [(0.25, 0.25), (1, 1.0), (2, 1.0)])
def test_a_share_of_a_gpu_is_a_limit_of_its_memory(monkeypatch, share, fraction) -> None:
    limits = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda *limit: limits.append(limit)
    )
    assert device.pick(share) == torch.device("cuda", 0)
    assert limits == [(fraction, torch.device("cuda", 0))]


def test_a_record_moves_with_its_tensors() -> None:
    moved = device.move(OnlyParams(torch.zeros(3)), torch.device("meta"))
    assert isinstance(moved, OnlyParams)
    assert moved.params.device.type == "meta"
    params = torch.zeros(3)
    assert device.move(OnlyParams(params), device.CPU).params is params


def test_the_cpu_is_exact_whatever_precision_a_trial_asks_for() -> None:
    x = torch.rand(8, 8)
    with device.precision(device.CPU, "bfloat16"):
        product = x @ x
    assert torch.equal(product, x @ x)


def test_a_process_computes_with_one_thread() -> None:
    device.prepare_process()
    assert torch.get_num_threads() == 1
    blas = [info for info in threadpool_info() if info["user_api"] == "blas"]
    assert all(info["num_threads"] == 1 for info in blas)
