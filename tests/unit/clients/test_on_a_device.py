"""Training and aggregation on a device that is not the CPU: a pretend one, see `tests.pretend`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import backend_registration

from fedcome_ray import methods, models

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason=f"PyTorch {torch.__version__} cannot register a device from Python",
)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return answers()


def answers(*words: str) -> dict[str, Any]:
    """What happened in a process that has the device."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.pretend_rounds", *words],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_tensors_of_the_device_and_of_the_cpu_do_not_mix(found) -> None:
    assert found["mixing"].endswith("mixes tensors of pretend and of the CPU")


def test_every_method_and_model_is_trained_aggregated_and_restored_there_as_on_the_cpu(
    found,
) -> None:
    cases = set(found["rounds"])
    assert cases >= {f"mlp, {method}" for method in methods.REGISTRY}
    assert cases >= {f"{model}, fedcome" for model in models.REGISTRY}
    for case, result in found["rounds"].items():
        assert result["distance"] < 1e-6, case


@pytest.mark.ray
def test_a_server_computes_on_the_device_of_its_first_shard_with_reports_of_others() -> None:
    found = answers("on-ray")
    assert found["device"] == "pretend"
    assert found["distance"] < 1e-6


@pytest.mark.parametrize("kind", ["talk", "static_talk"])
def test_the_host_neither_copies_nor_reads_more_when_there_are_more_steps(found, kind) -> None:
    for case, (one, two, five) in found[kind].items():
        assert one == two == five, case
        assert "read" not in one, case


def test_an_evaluation_copies_as_often_for_any_number_of_chunks(found) -> None:
    one, two, five = found["evaluation_talk"]
    assert one == two == five == {"to_device": 1, "to_host": 2}


def test_bfloat16_lowers_convolutions_and_leaves_dense_models_exact(found) -> None:
    lowered = found["lowered"]
    assert lowered["mlp"]["distance"] == lowered["logistic"]["distance"] == 0
    assert 0 < lowered["conv2"]["distance"] < 0.2
    assert all(one["dtypes"] == ["torch.float32", "float32"] for one in lowered.values())


def test_a_block_needs_the_memory_that_is_reckoned_with(found) -> None:
    for case, measured in found["block_memory"].items():
        assert 0.4 < measured["peak"] / measured["expected"] <= 1.0, case


def test_convolutions_of_a_block_take_the_form_of_their_shape_or_the_one_that_is_wanted(
    found,
) -> None:
    layers = {"conv2": 2, "conv4": 4, "mcmahan": 2}
    unfolded = {"auto": dict.fromkeys(layers, 1), "grouped": dict.fromkeys(layers, 0)}
    for form, cases in found["convolutions"].items():
        for model, case in cases.items():
            assert case["distance"] < 1e-4, (form, model)
            expected = unfolded.get(form, layers)[model]
            assert case["unfolded"] == expected, (form, model)
            assert case["convolved"] == layers[model] - expected, (form, model)


def test_the_time_of_a_calibration_ends_when_the_device_has_done_its_work(found) -> None:
    assert found["calibration"] >= 2  # a warm-up and an attempt


def test_a_shard_holds_only_the_examples_of_its_clients_and_those_it_scores(found) -> None:
    first, second = found["rows_held"]  # of 2000; chunks have 512
    assert first == {"train": 1000, "test": 1024}
    assert second == {"train": 1000, "test": 976}


def test_the_examination_of_a_gpu_finds_the_device_right(found) -> None:
    assert set(found["examined"]) == {"logistic", "conv2", "fedfv"}
    for case, (distance, is_repeated) in found["examined"].items():
        assert distance < 1e-5, case
        assert is_repeated, case
