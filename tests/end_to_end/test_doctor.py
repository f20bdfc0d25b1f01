"""The doctor on this machine, and results that are portable."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedcome_ray.numerics.environment import portable_obstacle
from tests.docs.pages import DOCS
from tests.end_to_end.commands import run

SMALL = ["--set", "rounds=2", "--set", "data.num_clients=5", "--set", "model.hidden=[8]"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doctor") / "results"


@pytest.fixture(scope="module")
def found(output: Path) -> Any:
    done = run("fedcome_ray.doctor", "--output", str(output), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_this_machine_is_fit(found: Any, output: Path) -> None:
    assert {line["mark"] for line in found["verdicts"]} <= {"good", "doubtful"}
    (node,) = found["nodes"]
    assert set(node["plain"]["fingerprints"]) == {"dense", "convolutional", "fedcome"}
    assert node["plain"]["dependent_kinds"] == []
    assert all(rate > 0 for rate in node["plain"]["examples_per_second"].values())
    assert not output.exists()  # it looks, and leaves nothing


@pytest.mark.skipif(portable_obstacle() is not None, reason="not a machine for --portable")
@pytest.mark.parametrize("page", ["is_my_machine_fit.md", "same_bits.md"])
def test_the_documentation_shows_the_fingerprints_of_this_code(found: Any, page: str) -> None:
    """Those of `--portable`, which are the same on every machine with the same libraries."""
    (node,) = found["nodes"]
    versions = node["portable"]["versions"]
    shown = (DOCS / "how_to" / "is_my_machine_fit.md").read_text(encoding="utf-8")
    if not all(f"{name} {versions[name]}," in shown for name in ("torch", "numpy")):
        pytest.skip("other libraries than those of the documentation")
    fingerprints = "-".join(node["portable"]["fingerprints"].values())
    assert f"portable {fingerprints}\n" in (DOCS / "how_to" / page).read_text(encoding="utf-8")


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
