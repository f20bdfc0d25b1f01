import pickle

import pytest
import torch
from threadpoolctl import threadpool_info

from fedcome_ray.errors import UserError
from fedcome_ray.methods.method import OnlyParams
from fedcome_ray.numerics import device


def test_a_process_without_a_gpu_computes_on_the_cpu() -> None:
    assert device.pick(0) == torch.device("cpu")


@pytest.fixture
def gpu(monkeypatch) -> list[tuple]:
    """A machine with one GPU, as far as PyTorch tells: the limits that are set to its memory."""
    limits = []
    monkeypatch.setattr(device, "usable_gpus", lambda: [device.Gpu("a card", 24 * 2**30)])
    for switch in ("deterministic", "benchmark"):  # restored afterwards
        monkeypatch.setattr(torch.backends.cudnn, switch, getattr(torch.backends.cudnn, switch))
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda *limit: limits.append(limit)
    )
    return limits


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_share_of_a_gpu_is_a_limit_of_its_memory(gpu, share) -> None:
    assert device.pick(share) == torch.device("cuda", 0)
    ((limit, limited),) = gpu
    assert limited == torch.device("cuda", 0)
    assert share - 0.025 < limit < share  # a context of half a gigabyte is outside of it
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark


def test_a_process_takes_the_gpu_that_there_is_unless_the_user_says_otherwise(gpu) -> None:
    assert device.wished("auto") == device.wished("gpu") == torch.device("cuda", 0)
    assert device.wished("cpu") == device.CPU


def test_without_a_gpu_that_pytorch_can_use_there_is_none(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.usable_gpus() == []
    assert device.wished("auto") == device.CPU
    with pytest.raises(UserError, match="--device: no GPU to compute on: PyTorch"):
        device.wished("gpu")
    with pytest.raises(UserError, match=r"Ray gave this process 0.25 GPU, but PyTorch"):
        device.pick(0.25)


def test_the_cause_names_apples_gpu(monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert "Apple's GPU" in device.no_gpu_because()


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), True),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
            True,
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), True),
        (RuntimeError("HIP error: an illegal memory access was encountered"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), False),
        (RuntimeError("Expected all tensors to be on the same device"), False),
        (ValueError("CUDA error: only quoted"), False),
    ],
)
def test_errors_after_which_a_gpu_answers_no_more_are_known(error, is_lost) -> None:
    assert device.is_lost(error) == is_lost
    assert device.is_lost(pickle.loads(pickle.dumps(error))) == is_lost  # as it comes from a shard


def test_a_record_moves_with_its_tensors() -> None:
    moved = device.move(OnlyParams(torch.zeros(3)), torch.device("meta"))
    assert isinstance(moved, OnlyParams)
    assert moved.params.device.type == "meta"
    params = torch.zeros(3)
    assert device.move(OnlyParams(params), device.CPU).params is params


def test_the_cpu_is_exact_whatever_precision_a_trial_asks_for() -> None:
    x = torch.rand(8, 8)
    with device.precision(device.CPU, "bfloat16", can_autocast=True):
        product = x @ x
    assert torch.equal(product, x @ x)


def test_a_process_computes_with_one_thread() -> None:
    device.prepare_process()
    assert torch.get_num_threads() == 1
    blas = [info for info in threadpool_info() if info["user_api"] == "blas"]
    assert all(info["num_threads"] == 1 for info in blas)
