"""One number for each trial: what tables compare and claims test."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedcome_ray import metrics

from .results import DESCRIPTIONS, TRIAL_COLUMNS

FAIRNESS = {  # measure -> is more of it better
    "mean": True,
    "std": False,
    "worst 10 %": True,
    "best 10 %": True,
    "Jain": True,
    "Gini": False,
}
RISE = 1e-6  # a loss that goes up by less is rounding in single precision


class Measure(NamedTuple):
    """A way to sum up a trial's rounds."""

    words: str
    of: Callable[[pd.DataFrame], "pd.Series[float]"]  # rounds -> a number by run id
    more_is_better: bool = True
    digits: int = 2


def settings(frame: pd.DataFrame) -> list[str]:
    """The columns that say how a trial was configured."""
    others = {"round", *TRIAL_COLUMNS, *DESCRIPTIONS}
    return [name for name in map(str, frame) if "/" not in name and name not in others]


def recorded(frame: pd.DataFrame) -> list[str]:
    """The columns that are metrics of a round, of those that some trial has."""
    return [str(name) for name in frame if "/" in str(name) and frame[name].notna().any()]


def trials(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each trial: its identity, its settings and what they mean."""
    known = [name for name in DESCRIPTIONS if name in frame]
    return frame.drop_duplicates("run_id")[[*TRIAL_COLUMNS, *known, *settings(frame)]]


def score(frame: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    """Trials with their `value`; only finished trials have one."""
    finished = frame[frame["status"] == "FINISHED"]
    values = measure.of(finished)
    return trials(frame).assign(
        value=lambda t: t["run_id"].map(values),
        more_is_better=measure.more_is_better,
        done=lambda t: t["run_id"].map(finished.groupby("run_id")["round"].max()),
    )


def last(frame: pd.DataFrame) -> "pd.Series[float]":
    return _accuracy(frame).groupby("run_id").tail(1).droplevel("round")


def best(frame: pd.DataFrame) -> "pd.Series[float]":
    return _accuracy(frame).groupby("run_id").max()


def tail(frame: pd.DataFrame) -> "pd.Series[float]":
    """Over the evaluations of the last tenth of the rounds, at least the last one.

    NaN if one of them is: a trial that diverged does not become better by it.
    """
    done = frame.groupby("run_id")["round"].transform("max")  # fewer than its rounds if stopped
    final = _accuracy(frame[10 * frame["round"] > 9 * done]).groupby("run_id")
    return final.mean().where(final.count() == final.size())


ACCURACY = {
    "last": Measure("Test accuracy of the last round in %", last),
    "best": Measure("Best test accuracy of all rounds in %", best),
    "tail": Measure("Test accuracy in %, mean over the last tenth of the rounds", tail),
}


def seconds_per_round(frame: pd.DataFrame) -> "pd.Series[float]":
    """Without evaluation, which visits every client, and without the first round's compilation."""
    warm = frame[frame["round"] > 1]
    cost = warm[metrics.SECONDS_ROUND] - warm[metrics.SECONDS_EVALUATE].fillna(0.0)
    return cost.groupby(warm["run_id"]).median()


COST = Measure("Seconds per round without evaluation, median", seconds_per_round, False, 3)


def rounds_to(frame: pd.DataFrame, target: "float | pd.Series[float]") -> "pd.Series[float]":
    """The number of rounds until the test accuracy, in %, first is `target`; NaN if it never is.

    A mean may round to a little more than what it is a mean of.
    """
    reached = frame[100 * frame[metrics.ACCURACY] >= target - 1e-9]
    first = reached.groupby("run_id")["round"].min()
    return first.reindex(frame["run_id"].unique())


def fairness(clients: pd.DataFrame) -> pd.DataFrame:
    """Indices of the clients' accuracies in the last round, in %: a row for each trial."""
    if clients.empty:
        return pd.DataFrame(columns=list(FAIRNESS), dtype=float)
    final = clients[clients["round"] == clients.groupby("run_id")["round"].transform("max")]
    final = final.dropna(subset="test_accuracy")  # of clients without an example to be tested on
    rows = {
        run_id: fairness_indices(100 * values.to_numpy(np.float64))
        for run_id, values in final.groupby("run_id")["test_accuracy"]
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(FAIRNESS))


def fairness_indices(accuracies: np.ndarray[tuple[int], np.dtype[np.float64]]) -> dict[str, float]:
    """Deciles as in the store; Jain is 1 and Gini 0 if all clients are served alike."""
    ordered = np.sort(accuracies)
    num = len(ordered)
    tenth = max(1, round(num / 10))
    total = ordered.sum()
    ranks = np.arange(1, num + 1)
    return {
        "mean": float(ordered.mean()),
        "std": float(ordered.std()),
        "worst 10 %": float(ordered[:tenth].mean()),
        "best 10 %": float(ordered[-tenth:].mean()),
        "Jain": float(total**2 / (num * (ordered**2).sum())) if total else float("nan"),
        "Gini": float(((2 * ranks - num - 1) * ordered).sum() / (num * total))
        if total
        else float("nan"),
    }


def loss_metric(clients: pd.DataFrame) -> str:
    """The loss on training examples, unless no trial recorded it."""
    has_training = "train_loss" in clients and clients["train_loss"].notna().any()
    return "train_loss" if has_training else "test_loss"


def client_losses(clients: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Losses of a trial, evaluated rounds by clients; a client that diverged has NaN."""
    losses = clients.pivot(index="round", columns="client", values=metric)
    return losses.dropna(how="all")


def share_of_steps_up(losses: pd.DataFrame) -> float:
    """Of all clients and evaluated rounds; NaN if there is only one. To become NaN is a rise."""
    if len(losses) < 2:
        return float("nan")
    return float((~(losses.diff().iloc[1:] <= RISE)).to_numpy().mean())


def share_of_clients_up(losses: pd.DataFrame) -> float:
    """From the first to the last evaluated round."""
    return share_of_steps_up(losses.iloc[[0, -1]] if len(losses) > 1 else losses)


def evaluated(frame: pd.DataFrame) -> pd.DataFrame:
    """The rounds with an evaluation, by the settings: a NaN in one of them is a result."""
    number = frame["round"]
    return frame[(number % frame["eval_every"] == 0) | (number == frame["rounds"])]


def _accuracy(frame: pd.DataFrame) -> "pd.Series[float]":
    """In %, by run id and round."""
    rounds = evaluated(frame).set_index(["run_id", "round"]).sort_index()
    return 100 * rounds[metrics.ACCURACY]
