"""What the doctor says of what was found."""

from typing import Any

from fedcome_ray.health.verdicts import Verdict, verdicts


def node(host: str = "one", **changes: Any) -> Any:
    names = ("cpu", "mkl", "onednn", "aten", "numpy", "numpy_blas", "numba", "threads")
    probe: dict[str, Any] = {
        "versions": {"torch": "2.13"},
        "arithmetic": {**dict.fromkeys(names, "x"), "mkl": "none"},
        "dependent_kinds": [],
        "fingerprints": {"dense": "aa", "convolutional": "bb"},
        "gpus": [],
        "examples_per_second": {"dense": 1000.0},
    }
    return {
        "host": host,
        "cores": 2,
        "memory_bytes": 2**33,
        "plain": probe | changes.pop("plain", {}),
        "portable": {"fingerprints": {"dense": "cc"}},
        "portable_obstacle": None,
        "output_problem": None,
        "free_bytes": 10**12,
        "gpu": None,
        "gpu_problem": None,
        **changes,
    }


def of(topic: str, *nodes: Any) -> Verdict:
    (found,) = [line for line in verdicts(nodes) if line.topic == topic]
    return found


def test_a_fit_machine_has_only_good_lines() -> None:
    assert {line.mark for line in verdicts([node()])} == {"good"}
    assert of("fingerprints", node()).text == "plain aa-bb  portable cc"


def test_bits_that_depend_on_company_are_bad() -> None:
    verdict = of("bits", node(plain={"dependent_kinds": ["dense"]}))
    assert verdict.mark == "bad"
    assert "DEPEND on company (dense)" in verdict.text


def test_nodes_with_different_versions_are_bad() -> None:
    verdict = of("versions", node(), node("two", plain={"versions": {"torch": "2.12"}}))
    assert verdict.mark == "bad"
    assert verdict.text.startswith("torch differ")


def test_nodes_may_differ_plainly_but_not_portably() -> None:
    other = {"fingerprints": {"dense": "zz"}}
    nodes = node(), node("two", plain=other)
    assert of("plain nodes", *nodes).mark == "doubtful"
    assert of("portable nodes", *nodes).mark == "good"
    assert of("portable nodes", node(), node("two", portable=other)).mark == "bad"


def test_a_machine_that_cannot_be_portable_is_doubtful() -> None:
    arm = node(portable=None, portable_obstacle="no AVX2")
    assert of("fingerprints", arm) == ("doubtful", "fingerprints", "plain aa-bb  portable: no AVX2")
    assert of("portable nodes", node(), arm).mark == "bad"
    assert of("portable nodes", arm, arm).mark == "doubtful"


def test_a_switch_that_was_not_thrown_is_doubtful() -> None:
    arithmetic = {**node()["plain"]["arithmetic"], "mkl": "2024.2, by processor and company"}
    assert of("arithmetic", node(plain={"arithmetic": arithmetic})).mark == "doubtful"


def test_a_full_disk_is_doubtful_and_a_closed_folder_bad() -> None:
    assert of("output", node(free_bytes=10)).mark == "doubtful"
    assert of("output", node(output_problem="cannot write")).mark == "bad"
