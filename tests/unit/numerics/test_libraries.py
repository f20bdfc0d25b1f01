from fedcome_ray.numerics import libraries
from fedcome_ray.numerics.device import CPU


def test_the_record_names_every_library_and_the_processor() -> None:
    found = libraries.arithmetic(CPU)
    assert {"cpu", "mkl", "onednn", "aten", "numpy", "numpy_blas", "numba", "threads"} <= set(found)
    assert all(isinstance(value, str) and value for value in found.values())
    assert found["threads"] == "1"


def test_portable_results_may_come_from_any_processor() -> None:
    one = {"portable": "true", "cpu": "one", "aten": "AVX2"}
    assert libraries.comparable(one) == libraries.comparable({**one, "cpu": "other"})
    assert libraries.comparable(one) != libraries.comparable({**one, "aten": "AVX512"})


def test_other_results_may_not() -> None:
    one = {"portable": "false", "cpu": "one"}
    assert libraries.comparable(one) != libraries.comparable({**one, "cpu": "other"})
