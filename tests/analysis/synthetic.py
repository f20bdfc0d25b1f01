"""Studies of every grid with invented results: as many trials as one likes, without running any."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pandas as pd

from analysis.study import LAYOUTS, Study, select
from fedcome_ray.experiments import grid as grids
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import Trial
from tests.analysis.conftest import IDENTITY

VECTORS = {"scaffold": 3, "feddc": 3}  # sent down and up, where that is not one each
GAINS = {"fedcome": 0.06, "feddyn": 0.04, "feddc": 0.05, "scaffold": 0.02, "fedfv": 0.01}
NUM_CLIENTS = 20
SIZES = {"num_train": 500, "num_test": 100}


def studies(seeds: int = 3, rounds: int = 100, profile: str = "paper") -> list[Study]:
    """One study for each grid of the project, `rounds` rounds of each trial being recorded."""
    return [study(name, seeds, rounds, profile) for name in LAYOUTS]


def study(grid: str, seeds: int = 3, rounds: int = 100, profile: str = "paper") -> Study:
    trials = list(_trials(grid, seeds, profile))
    frame = pd.concat([_rows(trial, grid, rounds, profile) for trial in trials], ignore_index=True)
    study = _with_tables(select(frame))
    papers = study.frame["run_id"] if profile == "paper" else ()
    return study._replace(papers=frozenset(papers))


def _trials(grid: str, seeds: int, profile: str) -> Iterator[Trial]:
    """The grid's own trials of the first seed, and their like with as many seeds as asked for."""
    for trial in grids.expand(grids.load(grid), profile, [("seed", 0)]):
        for seed in range(seeds):
            yield trial.model_copy(update={"seed": seed})


def _rows(trial: Trial, grid: str, rounds: int, profile: str) -> pd.DataFrame:
    number = next(_rows.numbers)
    every = max(1, trial.rounds // rounds)
    done = np.arange(0, trial.rounds + 1, every)
    metrics = _metrics(trial.method.name, done / trial.rounds, np.random.default_rng(number))
    settings = flatten(trial.model_dump(mode="json")) | {"eval_every": every}
    identity = IDENTITY | {"grid": grid, "profile": profile, "trial_key": f"{number:012x}"}
    rows = pd.DataFrame({"round": done, **metrics})
    return rows.assign(**identity, run_id=f"{number:032x}", **_plain(settings))


def _metrics(method: str, progress: Any, random: np.random.Generator) -> dict[str, Any]:
    num = len(progress)
    gain = 0.6 + GAINS.get(method, 0.0) + random.normal(0, 0.005)
    accuracy = 0.1 + gain * (1 - np.exp(-7 * progress)) + random.normal(0, 0.01, num)
    metrics = {
        "accuracy/test": accuracy,
        "accuracy/worst_decile": accuracy * 0.8,
        "accuracy/client_std": 0.2 - accuracy / 8,
        "loss/test": 2.3 - 2 * accuracy,
        "conflicts/opposed": random.poisson(3, num).astype(float),
        "comm/total_bytes": 4e9 * VECTORS.get(method, 2) * progress,
        **{f"seconds/{phase}": 0.1 for phase in ("sample", "train", "aggregate", "evaluate")},
        "seconds/round": 0.4,
    }
    if method == "fedcome":
        metrics |= {"conflicts/before": 40 * np.exp(-2 * progress), "conflicts/after": 0.0}
        metrics |= {"server/step_ratio": 1.2 + random.normal(0, 0.02, num)}
    return metrics


_rows.numbers = count()  # type: ignore[attr-defined]


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """As MLflow gives settings back: a list is text."""
    return {name: str(v) if isinstance(v, list) else v for name, v in settings.items()}


def _with_tables(study: Study) -> Study:
    runs = study.frame["run_id"].unique()
    clients = pd.concat([_clients(run, place) for place, run in enumerate(runs)])
    pairs = np.indices((NUM_CLIENTS, NUM_CLIENTS)).reshape(2, -1)
    alike = pairs[0] % 5 == pairs[1] % 5
    names = [f"{number % 5} {number % 5 + 5}" for number in range(NUM_CLIENTS)]
    similarity = {"client": pairs[0], "other": pairs[1], "similarity": np.where(alike, 0.4, -0.2)}
    population = {"client": range(NUM_CLIENTS), "classes": names, **SIZES}
    return study._replace(
        clients=clients if study.layout.needs_clients else study.clients,
        similarity=pd.DataFrame({"run_id": runs[0], **similarity}),
        population=pd.DataFrame({"run_id": runs[0], **population}),
    )


def _clients(run: str, place: int) -> pd.DataFrame:
    random = np.random.default_rng(place)
    rounds, clients = np.indices((30, NUM_CLIENTS)).reshape(2, -1)
    accuracy = np.clip(0.5 + rounds / 100 + random.normal(0, 0.1, NUM_CLIENTS)[clients], 0, 1)
    return pd.DataFrame(
        {
            "run_id": run,
            "round": rounds,
            "client": clients,
            "test_accuracy": accuracy,
            "test_loss": 2 - accuracy,
            "train_loss": 2 - accuracy + random.normal(0, 0.002, len(rounds)),
        }
    )
