"""The switches are thrown in time, in every process, and the libraries obey them."""

import os
import sys

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.numerics import environment, libraries
from tests.processes import answer_of

needs_x86 = pytest.mark.skipif(
    environment.portable_obstacle() is not None, reason="this machine cannot compute portably"
)

ASK = """
import json, sys, warnings
warnings.simplefilter("ignore")
{before}
import fedcome_ray, torch
from fedcome_ray.numerics.device import prepare_process
from fedcome_ray.numerics import libraries
found = libraries.arithmetic(torch.device("cpu"))
print(json.dumps([libraries.is_company_fixed(), found, libraries.not_portable()]))
"""
PRODUCT = "import torch; torch.ones(99, 99) @ torch.ones(99, 99)"


def test_mkl_is_told_before_it_computes() -> None:
    assert answer_of(ASK.format(before=""))[0]


def test_importing_torch_first_is_early_enough() -> None:
    assert answer_of(ASK.format(before="import torch"))[0]


def test_a_choice_of_the_user_is_kept() -> None:
    assert "compatible" in answer_of(ASK.format(before=""), MKL_CBWR="COMPATIBLE")[1]["mkl"] or (
        answer_of(ASK.format(before=""))[1]["mkl"] == "none"
    )


def test_coming_too_late_is_noticed_and_said() -> None:
    is_fixed, found, _ = answer_of(ASK.format(before=PRODUCT))
    assert is_fixed == (found["mkl"] == "none")
    if found["mkl"] == "none":
        pytest.skip("there is no MKL here, and nothing that could come too late")
    code = (
        f"{PRODUCT}\nimport json, warnings\n"
        "from fedcome_ray.numerics.device import prepare_process\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n    prepare_process()\n"
        "print(json.dumps([str(one.message) for one in said]))\n"
    )
    (warning,) = answer_of(code)
    assert "import fedcome_ray first" in warning


@needs_x86
def test_every_library_obeys_the_portable_switches() -> None:
    _, found, disobedient = answer_of(ASK.format(before=""), FEDCOME_PORTABLE="1")
    assert disobedient == []
    assert found["portable"] == "true"
    assert found["aten"] == "AVX2"
    assert found["numba"] == "haswell"


@needs_x86
def test_portable_is_refused_where_a_library_has_chosen_already() -> None:
    code = (
        "import json, numpy, torch\nimport fedcome_ray\n"
        "from fedcome_ray.errors import UserError\n"
        "from fedcome_ray.numerics import environment\n"
        "try:\n    environment.make_portable()\n"
        "except UserError as error:\n    print(json.dumps(str(error)))\n"
    )
    assert "NumPy is loaded already" in answer_of(code)


def test_a_machine_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setenv(environment.PORTABLE, "1")
    environment.settle()  # importing the package is no crime
    with pytest.raises(UserError, match=r"x86-64 kind with AVX2, this one is `arm64`"):
        environment.check_portable()


def test_a_plain_child_of_a_portable_process_has_none_of_its_switches() -> None:
    switches = environment.portable_switches()
    plain = environment.plain_environment({"HOME": "/", **switches})
    assert plain == {"HOME": "/"}
    assert environment.plain_environment({"MKL_CBWR": "AVX2"}) == {"MKL_CBWR": "AVX2"}


def test_nothing_heavy_is_imported_to_throw_the_switches() -> None:
    code = "import json, sys, fedcome_ray; print(json.dumps(sorted(sys.modules)))"
    assert not {"numpy", "torch"} & set(answer_of(code))


def test_this_process_is_not_portable_by_accident() -> None:
    assert environment.is_portable() == (os.environ.get(environment.PORTABLE, "") not in ("", "0"))
    assert "numpy" in sys.modules


def test_cublas_is_told_too_unless_the_user_has_told_it() -> None:
    ask = "import json, os, fedcome_ray; print(json.dumps(os.environ['CUBLAS_WORKSPACE_CONFIG']))"
    assert answer_of(ask) == ":4096:8"
    assert answer_of(ask, CUBLAS_WORKSPACE_CONFIG=":16:8") == ":16:8"


def test_the_form_of_convolutions_is_the_users_choice_among_those_there_are(monkeypatch) -> None:
    monkeypatch.delenv(environment.CONVOLUTIONS, raising=False)
    assert (environment.convolution_form(), environment.gpu_switches()) == ("auto", {})
    monkeypatch.setenv(environment.CONVOLUTIONS, "grouped")
    assert environment.convolution_form() == "grouped"
    assert environment.gpu_switches() == {"FEDCOME_CONVOLUTIONS": "grouped"}
    monkeypatch.setenv(environment.CONVOLUTIONS, "fast")
    with pytest.raises(UserError, match="expected one of auto, grouped, products, got `fast`"):
        environment.convolution_form()


def test_a_result_of_a_gpu_records_which_ways_to_compute_were_taken(monkeypatch) -> None:
    monkeypatch.setenv(environment.CONVOLUTIONS, "products")
    monkeypatch.setenv(environment.CAPTURE, "1")
    found = libraries.gpu_words()
    assert (found["convolutions"], found["captured"]) == ("products", "true")
