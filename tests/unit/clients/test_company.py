"""The check that company does not show, which must be able to fail."""

import pytest
import torch

from fedcome_ray.clients import company
from fedcome_ray.models.dense import Dense
from fedcome_ray.numerics.device import CPU
from tests.processes import answer_of

CHECK = """
import json, warnings
warnings.simplefilter("ignore")
from fedcome_ray.numerics.device import prepare_process
prepare_process()
from fedcome_ray.clients.company import dependent_kinds
print(json.dumps(dependent_kinds()))
"""


def test_company_does_not_show_on_this_machine() -> None:
    assert company.dependent_kinds() == []
    assert company.computed_with(CPU)["company"] == "independent"


def test_company_does_not_show_in_portable_arithmetic() -> None:
    assert answer_of(CHECK, FEDCOME_PORTABLE="1") == []


def test_without_the_switch_company_shows_where_mkl_looks_at_it() -> None:
    dependent = answer_of(CHECK, MKL_CBWR="")  # set, so that the package does not set it
    if not dependent:
        pytest.skip("the libraries of this processor do not look at company")
    assert "dense, clipped" in dependent
    assert "dense" not in dependent  # compiled code, which sees one client at a time


def test_arithmetic_that_looks_at_company_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    add_gradient, descend = Dense.add_gradient, Dense.descend

    def nudged(scale: float, num_clients: int) -> float:
        return scale * (1 + 4 * torch.finfo(torch.float32).eps) if num_clients == 1 else scale

    def gradient_differs_alone(self, target, params, batch, *, keep, scale) -> None:  # type: ignore[no-untyped-def]
        add_gradient(self, target, params, batch, keep=keep, scale=nudged(scale, len(batch.y)))

    def descent_differs_alone(self, update, start, course, rule) -> None:  # type: ignore[no-untyped-def]
        rule = rule._replace(scale=nudged(rule.scale, len(update)))
        descend(self, update, start, course, rule)

    monkeypatch.setattr(Dense, "add_gradient", gradient_differs_alone)
    monkeypatch.setattr(Dense, "descend", descent_differs_alone)
    assert company.dependent_kinds() == [kind for kind in company.CASES if kind.startswith("dense")]
