"""The examination of a GPU, tried on the processor; `tests.pretend_rounds` has it on a device."""

import json

import pytest

from fedcome_ray.health import gpu
from fedcome_ray.health.verdicts import verdicts
from fedcome_ray.numerics.device import CPU
from tests.unit.health.test_verdicts import node

RATES = {"engine": 4000.0, "captured": 6000.0, "loop": 1000.0}
FOUND: gpu.Gpu = {
    "name": "a card",
    "memory": 24 * 2**30,
    "distances": {"mlp": 1e-6, "scaffold": 2e-5},
    "not_repeated": [],
    "dependent_kinds": ["convolutional"],
    "examples_per_second": {"dense": RATES},
    "sharing_problem": None,
}


def test_every_model_and_method_is_compared() -> None:
    names = set(gpu.compared())
    assert {"mlp", "logistic", "conv2", "conv4", "mcmahan"} <= names
    assert {"fedavg", "scaffold", "feddc", "fedcome", "qffl", "fedfv"} <= names
    assert set(gpu.repeated()) <= names


def test_the_processor_is_at_no_distance_from_itself_and_repeats_itself() -> None:
    trial = gpu.compared()["scaffold"]
    assert gpu.distance(trial, CPU) == 0
    assert gpu.repeats(trial, CPU)


def test_a_loop_over_modules_trains_what_the_engine_trains(monkeypatch) -> None:
    monkeypatch.setattr(gpu, "SPEED_SECONDS", 0.01)
    monkeypatch.setattr(gpu, "TIMED", {name: (s, 2) for name, (s, _) in gpu.TIMED.items()})
    for kind in gpu.TIMED:
        assert min(gpu.speeds(kind, CPU).values()) > 0


def test_a_good_gpu_has_good_lines_and_a_table() -> None:
    assert gpu.faults(FOUND) == []
    numbers, speed = verdicts([node(gpu=FOUND)])[-2:]
    assert (numbers.mark, numbers.text.split(",")[0]) == ("good", "within 2e-05 of the processor")
    assert "4,000, 4.0 x a plain loop" in speed.text
    assert "| dense | 4,000 |  |  | 6,000 | 1,000 |" in gpu.table(FOUND)
    assert "WRONG" not in gpu.table(FOUND)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"distances": {"conv2": 0.5}}, "far from the processor: conv2 by 5.0e-01"),
        ({"distances": {"conv2": float("nan")}}, "far from the processor: conv2"),
        ({"not_repeated": ["mlp"]}, "other bits the second time: mlp"),
        ({"sharing_problem": "out of memory"}, "4 processes cannot share it: out of memory"),
    ],
)
def test_what_is_wrong_is_named(change, said) -> None:
    found = {**FOUND, **change}
    assert f"WRONG: {said}" in gpu.table(found)
    (verdict,) = [line for line in verdicts([node(gpu=found)]) if line.topic == "GPU"]
    assert verdict.mark == "bad"
    assert said in verdict.text


def test_an_examination_that_failed_is_bad() -> None:
    (verdict,) = [line for line in verdicts([node(gpu_problem="it broke")]) if line.topic == "GPU"]
    assert (verdict.mark, verdict.text) == ("bad", "it broke")


def test_without_a_gpu_it_says_why_and_ends_with_2(monkeypatch, capsys) -> None:
    monkeypatch.setattr(gpu.device, "usable_gpus", list)
    assert gpu.main(["--json"]) == 2
    assert "no GPU to examine: PyTorch" in capsys.readouterr().err
    json.dumps(FOUND)  # what is found travels as JSON
