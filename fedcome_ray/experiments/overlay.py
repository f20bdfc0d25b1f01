"""Overlays: the best settings that a search found, for other grids to take.

    - when: {data.dataset: digits, method.name: fedprox}
      set: {method.mu: 0.01}
      evidence: {metric: accuracy/tail, validation: 0.1, seeds: [0, 1], mean: 0.931, ...}

A rule applies to every trial whose settings are those of `when`. The evidence says on what they
were selected, and names the trials by their keys, which are tags of their runs in MLflow.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from fedcome_ray import metrics
from fedcome_ray.errors import GridError
from fedcome_ray.experiments.complaints import explain
from fedcome_ray.experiments.grid import read_yaml
from fedcome_ray.experiments.settings import Settings, assign, flatten
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.hyperparameters import Hyperparameters

TUNED = ("method.", "local.")
"""Where the settings are that one tunes; others, like the participation, one compares."""


class Rule(Hyperparameters):
    """Settings for the trials that fit."""

    when: Settings
    set: Settings
    evidence: Settings = Field(default_factory=dict)


def load(path: Path) -> list[Rule]:
    """Read and check an overlay file."""
    try:
        return TypeAdapter(list[Rule]).validate_python(read_yaml(path, "--overlay"))
    except ValidationError as error:
        raise GridError(f"--overlay: `{path}` is not an overlay:\n{explain(error, Rule)}") from None


class Overlay:
    """Changes the settings of trials as the rules that fit them say."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._is_used = False

    def __call__(self, settings: Settings) -> None:
        flat = flatten(settings)
        for rule in self._rules:
            if all(flat.get(name) == value for name, value in rule.when.items()):
                assign(settings, rule.set.items())
                self._is_used = True

    def check_used(self) -> None:
        """Refuse rules of which none fitted any trial: they were meant for something else."""
        if self._rules and not self._is_used:
            cases = "; ".join(str(rule.when) for rule in self._rules)
            raise GridError(f"--overlay: no trial of the grid is one of {cases}")


def held_out(trials: Iterable[Trial], share: float) -> list[Trial]:
    """The trials, each once, with validation examples; those that have some keep their share."""
    found = {}
    for trial in trials:
        if trial.data.validation is None:
            data = trial.data.model_copy(update={"validation": share})
            trial = trial.model_copy(update={"data": data})
        found[trial.key] = trial
    return list(found.values())


def best(trials: Sequence[Trial], accuracy: Mapping[str, float], commit: str) -> list[Rule]:
    """For each dataset and method, its settings with the best mean accuracy over all trials.

    `accuracy` is the tail's, by trial key. Only trials that held examples out are looked at: what
    the test examples say is not for choosing. Settings under which some trials failed are not
    better by that: the most finished trials win, then the mean. A method that was run in only one
    way needs no rule.
    """
    groups: dict[tuple[Any, Any], list[tuple[Settings, str]]] = {}
    for trial in trials:
        if trial.data.validation is None:
            continue
        own = flatten(trial.model_dump(mode="json"))
        group = groups.setdefault((own["data.dataset"], own["method.name"]), [])
        group.append((own, trial.key))
    rules = (_best_of(group, accuracy, commit, *kind) for kind, group in groups.items())
    return [rule for rule in rules if rule is not None]


def _best_of(
    group: list[tuple[Settings, str]],
    accuracy: Mapping[str, float],
    commit: str,
    dataset: str,
    method: str,
) -> Rule | None:
    varying = [
        name
        for name in group[0][0]
        if name.startswith(TUNED) and len({str(own.get(name)) for own, _ in group}) > 1
    ]
    finished = [(own, key) for own, key in group if key in accuracy]
    if not varying or not finished:
        return None
    candidates: dict[str, list[tuple[Settings, str]]] = {}
    for own, key in finished:
        values = {name: own.get(name) for name in varying}
        candidates.setdefault(json.dumps(values), []).append((own, key))

    def score(values: str) -> tuple[int, float]:
        keys = [key for _, key in candidates[values]]
        return len(keys), mean(accuracy[key] for key in keys)

    winner = max(candidates, key=score)
    by_seed: dict[int, list[float]] = {}
    for own, key in candidates[winner]:
        by_seed.setdefault(own["seed"], []).append(accuracy[key])
    means = [mean(values) for values in by_seed.values()]
    return Rule(
        when={"data.dataset": dataset, "method.name": method},
        set=json.loads(winner),
        evidence={
            "metric": metrics.ACCURACY_TAIL,
            "validation": group[0][0]["data.validation"],
            "seeds": sorted(by_seed),
            "mean": round(score(winner)[1], 6),
            "spread": round(stdev(means), 6) if len(means) > 1 else None,
            "candidates": len(candidates),
            "trials": [key for _, key in candidates[winner]],
            "commit": commit,
        },
    )


def text(rules: Sequence[Rule], origin: str) -> str:
    """An overlay file that says where it comes from."""
    content = yaml.safe_dump([rule.model_dump() for rule in rules], sort_keys=False)
    return (
        f"# Best settings: {origin}\n"
        f"# Selected by accuracy on held-out training examples (`validation`: their share), last\n"
        f"# tenth of the rounds, mean and spread over seeds. Test examples took no part.\n{content}"
    )
