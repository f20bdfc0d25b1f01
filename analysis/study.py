"""A study: the comparable trials of one grid and one profile, and how they are laid out."""

from typing import Any, NamedTuple

import pandas as pd
from mlflow import MlflowClient

from fedcome_ray.experiments.choices import CHOICES
from fedcome_ray.methods import REFERENCES

from . import labels, results, scope, scores


class Layout(NamedTuple):
    """Which settings are the rows and the column of a grid's table."""

    title: str
    rows: tuple[str, ...] = ("method.name", "setting")
    column: str | None = None
    rivals: tuple[str, ...] = ()
    """Trials that agree in these compete for the best of a table and share a panel of a figure."""
    needs_clients: bool = False
    """Whether every client's results are drawn."""

    @property
    def keys(self) -> list[str]:
        return [*self.rows, self.column] if self.column else [*self.rows]

    @property
    def curve(self) -> list[str]:
        """What tells the curves of a panel apart."""
        return [key for key in self.keys if key not in self.rivals]


LAYOUTS = {
    "full_participation": Layout(
        "Full participation", ("method.name",), "data.dataset", ("data.dataset",)
    ),
    "heterogeneity": Layout(
        "Heterogeneity: classes per client",
        ("method.name",),
        "data.partition.classes",
        ("data.partition.classes",),
    ),
    "partial_participation": Layout(
        "Partial participation",
        ("method.name", "sampler.name"),
        "participation",
        ("sampler.name", "participation"),
    ),
    "sensitivity": Layout(
        "Sensitivity of FedCOME to the sampler", ("sampler.ema",), "sampler.greedy_fraction"
    ),
    "client_loss": Layout(
        "Client loss, one full-batch step a round",
        ("method.name", "sampler.name"),
        "participation",
        ("sampler.name", "participation"),
        needs_clients=True,
    ),
    "fairness": Layout(
        "Fairness",
        ("method.name", "data.test_split"),
        "data.dataset",
        ("data.test_split", "data.dataset"),
        needs_clients=True,
    ),
    "search": Layout("Search space of the hyper-parameters", rivals=("method.name",)),
    "controls": Layout("Controls: is it only a longer step?", rivals=("data.validation",)),
    "scaling": Layout(
        "Cost of a round", ("method.name",), "data.num_clients", ("data.num_clients",)
    ),
}


class Study(NamedTuple):
    """Comparable trials of a grid."""

    grid: str
    profile: str
    layout: Layout
    frame: pd.DataFrame  # a row for each trial and round
    aside: pd.DataFrame  # likewise, of trials that may not be averaged with these
    references: pd.DataFrame = results.NO_ROWS  # likewise, of what these are held against
    changes: str = ""
    """What all these trials have otherwise than the profile, as after `--set rounds=5`."""
    papers: frozenset[str] = frozenset()  # run ids of the trials that are the paper's
    other_profiles: tuple[str, ...] = ()
    clients: pd.DataFrame = results.NO_ROWS  # a row for each trial, round and client
    similarity: pd.DataFrame = results.NO_ROWS  # a row for each trial and pair of clients
    population: pd.DataFrame = results.NO_ROWS  # a row for each trial and client

    @property
    def finished(self) -> pd.DataFrame:
        return self.frame[self.frame["status"] == "FINISHED"]


def open_study(client: MlflowClient, experiment_id: str, profile: str | None) -> Study:
    """Read a grid from the store."""
    study = select(results.load(client, experiment_id), profile)
    trials = scores.trials(study.finished).sort_values(["seed", "participation"])
    data = [name for name in scores.settings(trials) if name.startswith("data.")]
    example = trials.drop_duplicates(data)
    is_similar = (trials["method.name"] == "fedcome") & (trials["sampler.name"] == "similarity")
    similar = trials[is_similar].sort_values(["participation", "seed"]).tail(1)
    wanted = pd.concat([example, similar])
    population = results.load_artifacts(client, wanted, "population.parquet")
    study = study._replace(
        papers=scope.papers(trials, scores.settings(trials), population),
        population=population,
        similarity=results.load_artifacts(client, similar, "similarity.parquet"),
    )
    if study.layout.needs_clients:
        clients = results.load_artifacts(client, trials, "clients.parquet")
        study = study._replace(clients=clients)
    return study


def select(frame: pd.DataFrame, profile: str | None = None) -> Study:
    """The trials of one profile that may be averaged over seeds.

    Trials with other settings than the profile's are shown only if none of the profile's own has
    finished, and then those with one and the same change; the rest is set aside. If trials of one
    cell still differ, those with the most rounds, then the most trials, are the cell.
    """
    grid = frame["grid"].iloc[0]
    layout = LAYOUTS.get(grid, Layout(grid))
    chosen = results.choose_profile(frame, profile)
    others = tuple(sorted(set(frame["profile"]) - {chosen}))
    # A grid may have been run without a setting of its layout, e.g. `data.test_split`.
    needed = {*layout.keys, *layout.rivals} - {"setting"}
    absent = {key: None for key in needed if key not in frame}
    frame = _versioned(frame[frame["profile"] == chosen].assign(**absent))
    trials = scores.trials(frame)
    trials = trials.assign(
        changes=scope.changes(trials, scores.settings(frame)), setting=describe(trials)
    )
    change = _shown_change(trials)
    kept = _one_variant_a_cell(trials[trials["changes"] == change], layout.keys)
    named = trials.set_index("run_id")
    frame = frame.assign(
        setting=frame["run_id"].map(named["setting"]), changes=frame["run_id"].map(named["changes"])
    )
    is_kept = frame["run_id"].isin(kept)
    shown, aside = frame[is_kept], frame[~is_kept]
    is_reference = shown["method.name"].isin(REFERENCES)
    is_reference &= not is_reference.all()  # then they are what the grid is about
    shown, references = shown[~is_reference], shown[is_reference]
    return Study(grid, chosen, layout, shown, aside, references, change, other_profiles=others)


def with_references(study: Study, frame: pd.DataFrame) -> Study:
    """The study with those trials of the grid of references that differ only by their method."""
    frame = frame[frame["profile"] == study.profile].assign(setting="", changes="")
    here, elsewhere = scores.trials(study.frame), scores.trials(frame)
    cases = set(scope.cases_of(here, scores.settings(here)))
    found = scope.cases_of(elsewhere, scores.settings(elsewhere))
    wanted = elsewhere[[case in cases for case in found]]
    known = study.references.get("trial_key", ())  # the grid may have been run with them, too
    is_new = frame["run_id"].isin(wanted["run_id"]) & ~frame["trial_key"].isin(known)
    return study._replace(references=pd.concat([study.references, frame[is_new]]))


def _versioned(frame: pd.DataFrame) -> pd.DataFrame:
    """The same, with methods named by the version of their code where there are several."""
    if "plugin" not in frame or frame["plugin"].isna().all():
        return frame
    several = frame.groupby("method.name")["plugin"].transform("nunique", dropna=False) > 1
    versions = (frame["method.name"] + "@" + frame["plugin"].str[:6]).fillna(frame["method.name"])
    return frame.assign(**{"method.name": frame["method.name"].mask(several, versions)})


def _shown_change(trials: pd.DataFrame) -> str:
    """The profile's own trials if one has finished, else the change with most of them."""
    groups = trials.assign(
        is_finished=trials["status"] == "FINISHED", is_own=trials["changes"] == ""
    ).groupby("changes")
    weights = groups.agg(
        is_finished=("is_finished", "any"),
        is_own=("is_own", "any"),
        size=("run_id", "size"),
        launch=("launch", "max"),
    )
    return str(weights.sort_values([*weights.columns]).index[-1])


def _one_variant_a_cell(trials: pd.DataFrame, keys: list[str]) -> "pd.Series[str]":
    """The run ids of trials that differ in nothing but the seed, cell by cell."""
    variant = trials.groupby(["method.name", *_other_settings(trials)], dropna=False).ngroup()
    is_finished = (trials["status"] == "FINISHED").groupby(variant).transform("any")
    trials = trials.assign(
        variant=variant, size=variant.map(variant.value_counts()), is_finished=is_finished
    )
    by_weight = ["is_finished", "rounds", "size", "launch", "variant"]
    ranked = trials.sort_values(by_weight, ascending=False)
    best = ranked.groupby(keys, dropna=False)["variant"].transform("first")
    return ranked.loc[ranked["variant"] == best, "run_id"]


def describe(trials: pd.DataFrame) -> "pd.Series[str]":
    """What sets each trial apart from others of its method.

    A value that most trials of the method have goes without saying, and so does one that comes
    with a choice that others have not made, as the partition of the only dataset that has one.
    """
    words: dict[Any, list[str]] = {index: [] for index in trials.index}
    for _, own in trials.groupby("method.name"):
        for setting in _other_settings(own):
            if _comes_with_a_choice(own, setting):
                continue
            texts = own[setting].map(lambda raw, s=setting: labels.value(s, raw, digits=6))
            counts = texts.value_counts()
            usual = counts.index[0] if counts.iloc[0] > len(texts) / 2 else None
            name = setting.removesuffix(".name").split(".")[-1]  # a model's name is the model
            for index, text in texts[(texts != usual) & (texts != "")].items():
                words[index].append(f"{name}={text}")
    return pd.Series({index: " ".join(parts) for index, parts in words.items()}, dtype=str)


def _comes_with_a_choice(trials: pd.DataFrame, setting: str) -> bool:
    """Whether some trials have no such setting, and who has it, and how, follows from a choice."""
    if not trials[setting].isna().any():
        return False
    choosers = (
        chooser
        for record, registry in CHOICES.items()
        if (chooser := f"{record}.{registry.chosen_by}") in trials
        and setting.startswith(f"{record}.")
        and setting != chooser
    )
    return any(
        (trials.groupby(chooser, dropna=False)[setting].nunique(dropna=False) == 1).all()
        for chooser in choosers
    )


def _other_settings(trials: pd.DataFrame) -> list[str]:
    return [name for name in scores.settings(trials) if name not in {"seed", "method.name"}]
