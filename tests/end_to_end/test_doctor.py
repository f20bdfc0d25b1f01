"""The doctor on this machine, and results that are portable."""

import json
from pathlib import Path

import pytest

from fedcome_ray.numerics.environment import portable_obstacle
from tests.end_to_end.commands import run

SMALL = ["--set", "rounds=2", "--set", "data.num_clients=5", "--set", "model.hidden=[8]"]


def test_this_machine_is_fit(tmp_path: Path) -> None:
    done = run("fedcome_ray.doctor", "--output", str(tmp_path / "results"), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert {line["mark"] for line in found["verdicts"]} <= {"good", "doubtful"}
    (node,) = found["nodes"]
    assert set(node["plain"]["fingerprints"]) == {"dense", "convolutional", "fedcome"}
    assert node["plain"]["dependent_kinds"] == []
    assert all(rate > 0 for rate in node["plain"]["examples_per_second"].values())
    assert not (tmp_path / "results").exists()  # it looks, and leaves nothing


def test_a_broken_store_makes_it_end_with_1(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    done = run("fedcome_ray.doctor", "--output", str(tmp_path))
    assert done.returncode == 1
    assert "✗ MLflow" in done.stdout
    assert "fingerprints  plain" in done.stdout


def test_an_address_at_which_nothing_listens_is_a_wrong_request(tmp_path: Path) -> None:
    done = run("fedcome_ray.doctor", "--address", "127.0.0.1:1", "--output", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("error: --address: nothing listens")


@pytest.mark.skipif(portable_obstacle() is not None, reason="not a machine for --portable")
def test_portable_results_say_so_and_plain_ones_are_not_passed_off(tmp_path: Path) -> None:
    plain, portable = tmp_path / "plain", tmp_path / "portable"
    assert run("fedcome_ray.run", *SMALL, "--output", str(plain)).returncode == 0
    done = run("fedcome_ray.run", *SMALL, "--output", str(portable), "--portable")
    assert done.returncode == 0, done.stderr
    (file,) = portable.glob("trials/*/result.json")
    (record,) = json.loads(file.read_text())["computed_with"]
    assert record["portable"] == "true"
    assert record["company"] == "independent"
    refused = run("fedcome_ray.run", *SMALL, "--output", str(plain), "--portable")
    assert refused.returncode == 2
    assert "was computed without it" in refused.stderr
