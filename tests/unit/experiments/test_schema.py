"""The JSON schema of grids: it takes what is a grid, and refuses what is none."""

import json
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from fedcome_ray import settings
from fedcome_ray.errors import UserError
from fedcome_ray.experiments import grid
from fedcome_ray.launch import search


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads(settings.schema())
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def is_grid(content: Any) -> bool:
    """As the commands find it out."""
    try:
        parsed = grid.Grid.model_validate(content)
        search.parse_space(parsed.space)
        return bool(grid.expand(parsed, next(iter(parsed.profiles), None)))
    except (ValidationError, UserError):
        return False


@pytest.mark.parametrize("name", grid.grid_names())
def test_our_grids_are_grids(name: str, validator: Any) -> None:
    content = yaml.safe_load(grid.find(name).read_text(encoding="utf-8"))
    assert [error.message for error in validator.iter_errors(content)] == []


GOOD = [
    "{}",
    "axes: {seed: [0, 1]}",
    "base: {local: {lr: 0.1, batch_size: full}, local.epochs: 2, participation: null}",
    "base: {method.name: fedprox, method.mu: 1}",
    "base: {data: {dataset: digits, partition: {classes: 3}}}",
    "base: {data: {dataset: digits}, data.partition: {name: dirichlet, alpha: 0.1}}",
    "axes: {case: [{rounds: 3, method: {name: fedcome}}, {rounds: 4}]}",
    "axes: {model: [{name: mlp, hidden: [8, 8]}, {name: logistic}], data.num_clients: [5, 7]}",
    "profiles: {small: {set: {rounds: 2}, axes: {seed: [1]}}}",
    "space: {fedprox: {method.mu: {low: 0.1, high: 1, log: true}, local.lr: {choices: [1, 2]}}}",
]
BAD = [
    "description: [1]",
    "bases: {}",
    "base: {round: 3}",
    "base: {rounds: 0}",
    "base: {rounds: many}",
    "base: {local: {learning_rate: 1}}",
    "base: {local.lr: -1}",
    "base: {method: fedprox}",
    "base: {method: {mu: 1}}",
    "base: {method: {name: fedproxy}}",
    "base: {method: {name: fedavg, mu: 1}}",
    "base: {method.name: fedproxy}",
    "base: {data: {dataset: digit}}",
    "base: {data: {dataset: digits, partition: {name: iid, classes: 3}}}",
    "base: {data: {dataset: synthetic, partition: {name: iid}}}",
    "axes: {seed: []}",
    "axes: {seed: 1}",
    "axes: {case: [3]}",
    "axes: {method: [{name: fedprox, alpha: 1}]}",
    "profiles: {small: {rounds: 3}}",
    "space: {fedprox: {rounds: {choices: [1]}}}",
    "space: {fedprox: {method.mu: {lowest: 1}}}",
]


@pytest.mark.parametrize(
    ("text", "expected"), [(t, True) for t in GOOD] + [(t, False) for t in BAD]
)
def test_the_schema_says_what_the_commands_say(text: str, expected: bool, validator: Any) -> None:
    content = yaml.safe_load(text)
    assert is_grid(content) == expected
    assert validator.is_valid(content) == expected


def test_what_a_users_file_is_named_does_not_matter(validator: Any) -> None:
    assert validator.is_valid({"base": {"data": {"dataset": "npz:hospitals.npz"}}})
    assert not validator.is_valid({"base": {"data": {"dataset": "npz:"}}})
