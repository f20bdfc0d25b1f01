"""One trial, typed.

A `Trial` says everything that decides a result and nothing about the machine that computes it:
shards, CPUs and folders are not here, so the same trial has the same key everywhere.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from fedcome_ray import datasets, metrics
from fedcome_ray.datasets import DataConfig, Digits
from fedcome_ray.datasets.population import Indices
from fedcome_ray.errors import ConfigError, UserError, did_you_mean
from fedcome_ray.experiments.choices import CHOICES
from fedcome_ray.experiments.complaints import explain
from fedcome_ray.experiments.labels import in_brackets, label, other_choice, unusual
from fedcome_ray.experiments.local import LocalConfig
from fedcome_ray.hyperparameters import Hyperparameters, name_of
from fedcome_ray.methods import REFERENCES, MethodConfig
from fedcome_ray.methods.centralised import Centralised
from fedcome_ray.methods.fedavg import FedAvg
from fedcome_ray.models import MLP, ModelConfig
from fedcome_ray.registry import Code
from fedcome_ray.samplers import RandomSampler, SamplerConfig

LONGEST_NAME = 242
"""Characters before the key in the name of a folder: with it, the 255 that file systems take."""


def _share_of_clients(value: object) -> object:
    if isinstance(value, int | float) and value > 1:
        raise ValueError(
            f"a share of the clients, above 0 and at most 1, got `{value}`; "
            f"a number of clients is given as `cohort_size`"
        )
    return value


PLUGINS = {
    "plugin": "method",
    "model_plugin": "model",
    "sampler_plugin": "sampler",
    "data_plugin": "data",
}
"""Fields of a trial with the digests of code, and the settings whose things are written in it."""


class Availability(Hyperparameters):
    """Clients that fail: drawn for every round, and for each client of the cohort on its own."""

    rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Chance that a client that was sampled is there; the others drop out of the cohort."""
    straggler_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Chance that a client takes only a part of its local steps."""
    least_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The least part that stragglers take; it is uniform between this and 1, one step at least."""


def _watched_metric(name: str) -> str:
    if name not in metrics.WATCHED:
        raise ValueError(f"no such metric of an evaluation; {did_you_mean(name, metrics.WATCHED)}")
    return name


class StopConfig(Hyperparameters):
    """When a trial ends before its last round: once evaluations bring nothing new."""

    metric: Annotated[str, AfterValidator(_watched_metric)] = metrics.ACCURACY
    """What is watched: an `accuracy/` of test, client_mean, worst_decile or best_decile for more;
    `accuracy/client_std`, `loss/test` or `loss/client_max` for less."""
    patience: PositiveInt = 10
    """Evaluations in a row without a new best, after which the trial ends."""

    def is_reached(self, values: Sequence[float]) -> bool:
        """By the values of all evaluations, that of the initial model first; NaN is never best."""
        sign = 1.0 if metrics.WATCHED[self.metric] else -1.0
        ranked = [-math.inf if math.isnan(value) else sign * value for value in values]
        return len(ranked) - 1 - ranked.index(max(ranked)) >= self.patience


class Trial(Hyperparameters):
    """One configuration, run once."""

    data: DataConfig = Field(default_factory=Digits)
    """What clients learn from, and how it is shared out."""
    model: ModelConfig = Field(default_factory=MLP)
    """What is trained."""
    local: LocalConfig = Field(default_factory=LocalConfig)
    """How clients train."""
    method: MethodConfig = Field(default_factory=FedAvg)
    """What the server makes of it."""
    sampler: SamplerConfig = Field(default_factory=RandomSampler)
    """Who takes part in a round."""
    participation: Annotated[
        Annotated[float, Field(gt=0, le=1)] | None, BeforeValidator(_share_of_clients)
    ] = None
    """Share of the clients in each cohort, rounded; with `cohort_size` also unset, everybody."""
    cohort_size: PositiveInt | None = None
    """Clients in each cohort; instead of `participation`."""
    availability: Availability = Field(default_factory=Availability)
    """Who of the cohort is there, and gets through."""
    rounds: PositiveInt = 100
    """How many rounds are run."""
    seed: NonNegativeInt = 0
    """Of the initial params, the cohorts and the batches."""
    eval_every: PositiveInt = 1
    """Rounds between evaluations; the initial model and the last round are always evaluated."""
    eval_train_every: PositiveInt | None = None
    """Rounds between evaluations on the clients' training examples; unset, there are none."""
    eval_personal_epochs: PositiveInt | None = None
    """Epochs that clients train the params on their own examples for a second test; unset, none."""
    stop: StopConfig | None = None
    """Ends the trial early; unset, all rounds are run."""
    init_digest: str | None = None
    """SHA-256 of the params that training starts from, where they do not come from the seed."""
    plugin: str | None = None
    """SHA-256 of the code of a method that is a plugin, filled in when the settings are read."""
    model_plugin: str | None = None
    """The same of a model."""
    sampler_plugin: str | None = None
    """The same of a sampler."""
    data_plugin: str | None = None
    """The same of a dataset."""

    if TYPE_CHECKING:

        def __init__(self, **settings: Any) -> None:
            """Settings may be given as they stand in a grid, `method={"name": "fedcome"}`."""

    @model_validator(mode="after")
    def _identify_plugins(self) -> Self:
        for field, setting in PLUGINS.items():
            if getattr(self, field) is None:
                digest = CHOICES[setting].digest_of(getattr(self, setting))
                object.__setattr__(self, field, digest)  # the record is frozen
        return self

    @model_validator(mode="after")
    def _check_cohort(self) -> Self:
        if self.participation is not None and self.cohort_size is not None:
            raise ValueError(
                f"give `participation` or `cohort_size`, not both "
                f"(got {self.participation} and {self.cohort_size})"
            )
        num_clients = getattr(self.data, "num_clients", None)
        if num_clients is not None:
            self.cohort_size_of(num_clients)
        return self

    @model_validator(mode="after")
    def _check_reference(self) -> Self:
        name = name_of(self.method)
        if name not in REFERENCES:
            return self
        if not isinstance(self.sampler, RandomSampler):
            raise ValueError(
                f"method `{name}` sends nothing that a sampler could learn from, so `sampler.name` "
                f"must be `random`, got `{name_of(self.sampler)}`"
            )
        if isinstance(self.method, Centralised) and self.local.batch_size is None:
            raise ValueError(
                f"method `{name}` needs a number as `local.batch_size`, got `full`: "
                f"all that a client has would be everything"
            )
        if isinstance(self.method, Centralised) and self.availability != Availability():
            raise ValueError(f"method `{name}` has no clients that fail: leave `availability` out")
        return self

    def cohort_size_of(self, num_clients: int) -> int:
        """The number of clients in each cohort of a population of `num_clients`."""
        if self.cohort_size is None:
            return max(1, round((self.participation or 1.0) * num_clients))
        if self.cohort_size > num_clients:
            raise ValueError(
                f"cohort_size must be at most the population of {num_clients} clients, "
                f"got {self.cohort_size}"
            )
        return self.cohort_size

    def pooled_steps(self, sizes: Indices) -> int:
        """Steps of a round on everybody's examples at once, for clients of these sizes.

        They see as many examples as a cohort sees on average.
        """
        seen = self.cohort_size_of(len(sizes)) * self.local.num_seen(sizes).mean()
        total = sizes.sum()
        return max(1, round(float(seen / total * self.local.batches_per_epoch(total))))

    def is_evaluated(self, number: int) -> bool:
        """Whether the clients' tests follow when this many rounds are done."""
        return number % self.eval_every == 0 or number == self.rounds

    def is_train_evaluated(self, number: int) -> bool:
        return self.eval_train_every is not None and number % self.eval_train_every == 0

    def is_personally_evaluated(self, number: int) -> bool:
        return self.eval_personal_epochs is not None and self.is_evaluated(number)

    @property
    def stops_by_test(self) -> bool:
        """Whether its length is chosen by the examples that its results are reported on."""
        return self.stop is not None and self.data.validation is None

    @property
    def key(self) -> str:
        """The identity of the trial: the same settings have the same key on every machine.

        The code of plugins and the contents of a dataset are settings too: others are another
        trial. Where there is nothing of the kind, the key does not depend on that.
        """
        settings = self.model_dump(mode="json")
        for name, default in YOUNGER.items():
            owner, _, field = name.rpartition(".")
            record = settings[owner] if owner else settings
            if record.get(field) == default:
                record.pop(field, None)
        if not settings["availability"]:
            del settings["availability"]
        text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """A name for people: what varies in most grids, then all settings other than usual."""
        return named(self, self.other_settings)

    @property
    def short_name(self) -> str:
        """What varies in most grids."""
        share = f"m{self.cohort_size}" if self.cohort_size else f"p{self.participation or 1.0:g}"
        sampler, method = label(self.sampler), label(self.method)
        return f"{method}-{self._data_label}-{share}-{sampler}-s{self.seed}"

    @property
    def other_settings(self) -> dict[str, str]:
        """What the short name does not tell, where it is not the default."""
        data = unusual(self.data, but={"dataset", "partition", "sha256", "seed"})
        if (seed := unusual(self.data).get("seed")) is not None:
            data["data.seed"] = seed
        plain = {"rounds", "eval_every", "eval_train_every", "eval_personal_epochs"}
        plain |= {"init_digest", *PLUGINS}
        stop = self.stop
        return {
            **other_choice(self.data, "partition"),
            **data,
            **other_choice(self, "model"),
            **unusual(self.model),
            **unusual(self.local),
            **{f"availability.{name}": value for name, value in unusual(self.availability).items()},
            **unusual(self, but=set(Trial.model_fields) - plain),
            **({} if stop is None else {"stop": f"{stop.metric}:{stop.patience}"}),
        }

    @property
    def _data_label(self) -> str:
        partition = getattr(self.data, "partition", None)
        settings = in_brackets(partition) if partition is not None else ""
        return f"{Path(self.data.dataset).stem}{settings}"  # of npz:PATH, the file's name

    @property
    def folder_name(self) -> str:
        """A name that is safe as a path and unique to these settings."""
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", self.short_name)
        return f"{safe[:LONGEST_NAME]}-{self.key}"


YOUNGER: Mapping[str, Any] = {
    **dict.fromkeys(PLUGINS),
    "data.sha256": None,
    "data.validation": None,
    "local.steps": None,
    "local.momentum": 0.0,
    "availability.rate": 1.0,
    "availability.straggler_rate": 0.0,
    "availability.least_share": 0.0,
    "eval_personal_epochs": None,
    "stop": None,
}
"""Settings that older results do without, and what they stand for there: so they change no key."""


def named(trial: Trial, others: Mapping[str, str]) -> str:
    return "-".join([trial.short_name, *(f"{name}={value}" for name, value in others.items())])


def names_among(trials: Iterable[Trial]) -> dict[str, str]:
    """Names that are as short as can be and still tell the trials of a launch apart, by key."""
    given = {trial.key: trial for trial in trials}
    others = {key: set(trial.other_settings.items()) for key, trial in given.items()}
    shared = set.intersection(*others.values()) if others else set()

    def is_telling(name: str, value: str) -> bool:
        return (name, value) not in shared and name not in PLUGINS  # of a thing there is one

    return {
        key: named(trial, {n: v for n, v in trial.other_settings.items() if is_telling(n, v)})
        for key, trial in given.items()
    }


def identified(trials: Iterable[Trial], data_dir: Path | None) -> list[Trial]:
    """The trials with the digests of their data, which are known once the data folder is."""
    known: dict[str, datasets.DatasetSettings] = {}
    found = []
    for trial in trials:
        written = trial.data.model_dump_json()
        if written not in known:
            known[written] = datasets.identified(trial.data, data_dir)
        found.append(trial.model_copy(update={"data": known[written]}))
    return found


def check_plugins(trial: Trial) -> None:
    """Refuse to run a trial with other code than it was written for."""
    for field, setting in PLUGINS.items():
        if CHOICES[setting].digest_of(getattr(trial, setting)) != getattr(trial, field):
            raise UserError(
                f"the code of its {CHOICES[setting].kind}, a plugin, is not that with which the "
                f"trial was written down"
            )


def code_of(trial: Trial) -> list[Code]:
    """What the plugins that a trial needs are written in, each once."""
    entries = [CHOICES[name].of(getattr(trial, name)) for name in PLUGINS.values()]
    return list({code.digest: code for entry in entries if (code := entry.code)}.values())


def parse_trial(settings: dict[str, Any]) -> Trial:
    """Validate settings; every complaint names the field, the value and what is allowed."""
    try:
        return Trial.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(explain(error, Trial)) from None
