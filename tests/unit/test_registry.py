"""Things chosen by name."""

import pytest
from pydantic import BaseModel, ValidationError

from fedcome_ray import datasets, methods, models, samplers
from fedcome_ray.datasets import partitions
from fedcome_ray.errors import UserError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.registry import Entry, Registry


class Square(Hyperparameters):
    name: str = "square"
    side: float = 1.0


def shapes() -> Registry[Entry[float]]:
    return Registry("shape", [Entry(Square, lambda hp: hp.side**2, "Square")])


def test_settings_find_their_entry_and_what_it_builds() -> None:
    registry = shapes()
    parsed = registry.parse({"name": "square", "side": 3.0})
    assert registry.of(parsed).build(parsed) == 9.0
    assert registry.of(parsed).label == "Square"


def test_a_name_can_be_taken_only_once() -> None:
    class Impostor(Hyperparameters):
        name: str = "square"

    registry = shapes()
    registry.add(registry["square"])  # the same thing again is no other thing
    with pytest.raises(UserError, match="here: the shape `square` exists already"):
        registry.add(Entry(Impostor, lambda hp: 0.0), "here")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("method", {"method": {"name": "fedproxx"}}),
        ("model", {"model": {"name": "mlpp"}}),
        ("sampler", {"sampler": {"name": "similarityy"}}),
        ("dataset", {"data": {"dataset": "digitss"}}),
        ("partition", {"data": {"dataset": "digits", "partition": {"name": "dirichlett"}}}),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_for_every_kind(
    kind: str, settings: dict[str, object]
) -> None:
    with pytest.raises(ValidationError, match=rf"unknown {kind} `\w+`; did you mean `\w+`\?"):
        Trial.model_validate(settings)


@pytest.mark.parametrize("room", [methods, models, samplers, datasets, partitions])
def test_every_room_of_exchangeable_parts_has_one_registry(room: object) -> None:
    registry = room.REGISTRY  # type: ignore[attr-defined]
    assert isinstance(registry, Registry)
    assert all(issubclass(entry.config, BaseModel) for entry in registry.values())
