"""One trial, typed.

A `Trial` says everything that decides a result and nothing about the machine that computes it:
shards, CPUs and folders are not here, so the same trial has the same key everywhere.
"""

import hashlib
import json
import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from fedcome_ray import datasets
from fedcome_ray.datasets import DataConfig, Digits
from fedcome_ray.errors import ConfigError, UserError
from fedcome_ray.hyperparameters import UNKNOWN, Hyperparameters, name_of
from fedcome_ray.methods import MethodConfig, digest_of
from fedcome_ray.methods.fedavg import FedAvg
from fedcome_ray.models import MLP, ModelConfig
from fedcome_ray.numerics.device import Precision
from fedcome_ray.samplers import RandomSampler, SamplerConfig


def _share_of_clients(value: object) -> object:
    if isinstance(value, int | float) and value > 1:
        raise ValueError(
            f"a share of the clients, above 0 and at most 1, got `{value}`; "
            f"a number of clients is given as `cohort_size`"
        )
    return value


def _full_means_none(value: object) -> object:
    return None if value == "full" else value


BatchSize = PositiveInt | Literal["full"] | None  # as it may be written


class LocalConfig(Hyperparameters):
    """Local training, the same for all methods."""

    lr: Annotated[float, Field(gt=0, le=1e30)] = 0.05  # more would not fit into float32
    """Learning rate of the first round."""
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 0.998
    """Factor of the learning rate per round; the first round is undecayed."""
    epochs: PositiveInt = 1
    """Passes over a client's examples in a round."""
    batch_size: Annotated[PositiveInt | None, BeforeValidator(_full_means_none, BatchSize)] = 50
    """Examples of a step; `null` or `full`: all that the client has."""
    weight_decay: NonNegativeFloat = 1e-3
    """Each step shrinks the params by this share of the learning rate."""
    clip_norm: PositiveFloat | None = None
    """The longest that a gradient may be; unset, as long as it is."""
    precision: Precision = "float32"
    """Of matrix products on a GPU."""

    def lr_at(self, round_index: int) -> float:
        return self.lr * self.lr_decay**round_index


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
    """Share of the population in each cohort; with `cohort_size` also unset, everybody."""
    cohort_size: PositiveInt | None = None
    """Clients in each cohort; instead of `participation`."""
    rounds: PositiveInt = 100
    """How many rounds are run."""
    seed: NonNegativeInt = 0
    """Of the initial params, the cohorts and the batches."""
    eval_every: PositiveInt = 1
    """Rounds between evaluations; the initial model and the last round are always evaluated."""
    eval_train_every: PositiveInt | None = None
    """Rounds between evaluations on the clients' training examples; unset, there are none."""
    init_digest: str | None = None
    """SHA-256 of the params that training starts from, where they do not come from the seed."""
    plugin: str | None = None
    """SHA-256 of the code of a method that is a plugin, filled in when the settings are read."""

    @model_validator(mode="after")
    def _identify_plugin(self) -> Self:
        if self.plugin is None:
            object.__setattr__(self, "plugin", digest_of(self.method))  # the record is frozen
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

    def is_evaluated(self, number: int) -> bool:
        """Whether the clients' tests follow when this many rounds are done."""
        return number % self.eval_every == 0 or number == self.rounds

    def is_train_evaluated(self, number: int) -> bool:
        return self.eval_train_every is not None and number % self.eval_train_every == 0

    @property
    def key(self) -> str:
        """The identity of the trial: the same settings have the same key on every machine.

        The code of a plugin and the contents of a dataset are settings too: others are another
        trial. Where there is nothing of the kind, the key does not depend on that.
        """
        settings = self.model_dump(mode="json")
        for record, fields in (
            (settings, ["plugin"]),
            (settings["data"], ["sha256", "validation"]),
        ):
            for field in fields:
                if record.get(field) is None:
                    record.pop(field, None)
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
        data = _unusual(self.data, but={"dataset", "partition", "sha256", "seed"})
        if (seed := _unusual(self.data).get("seed")) is not None:
            data["data.seed"] = seed
        plain = {"rounds", "eval_every", "eval_train_every", "init_digest", "plugin"}
        return {
            **_other_choice(self.data, "partition"),
            **data,
            **_other_choice(self, "model"),
            **_unusual(self.model),
            **_unusual(self.local),
            **_unusual(self, but=set(Trial.model_fields) - plain),
        }

    @property
    def _data_label(self) -> str:
        partition = getattr(self.data, "partition", None)
        settings = _in_brackets(partition) if partition is not None else ""
        return f"{Path(self.data.dataset).stem}{settings}"  # of npz:PATH, the file's name

    @property
    def folder_name(self) -> str:
        """A name that is safe as a path and unique to these settings."""
        return f"{re.sub(r'[^A-Za-z0-9._-]', '_', self.short_name)}-{self.key}"


def named(trial: Trial, others: Mapping[str, str]) -> str:
    return "-".join([trial.short_name, *(f"{name}={value}" for name, value in others.items())])


def names_among(trials: Iterable[Trial]) -> dict[str, str]:
    """Names that are as short as can be and still tell the trials of a launch apart, by key."""
    given = {trial.key: trial for trial in trials}
    others = {key: set(trial.other_settings.items()) for key, trial in given.items()}
    shared = set.intersection(*others.values()) if others else set()

    def is_telling(name: str, value: str) -> bool:
        return (name, value) not in shared and name != "plugin"  # of a method there is one

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


def check_plugin(trial: Trial) -> None:
    """Refuse to run a trial with other code than it was written for."""
    if digest_of(trial.method) != trial.plugin:
        raise UserError("the code of its plugin is not that with which the trial was written down")


def label(settings: Hyperparameters) -> str:
    """A method or a sampler as its name and the settings that are not the default."""
    return f"{name_of(settings)}{_in_brackets(settings)}"


def _in_brackets(settings: Hyperparameters) -> str:
    shown = [f"{field}={value}" for field, value in _unusual(settings).items()]
    return f"({','.join(shown)})" if shown else ""


def _unusual(settings: Hyperparameters, but: Container[str] = ()) -> dict[str, str]:
    """The settings that are not the default, without the name of what they are settings of."""
    values = settings.model_dump(mode="json", exclude_defaults=True)
    return {
        field: _short(value)
        for field, value in values.items()
        if field != "name" and field not in but
    }


def _other_choice(record: Hyperparameters, field: str) -> dict[str, str]:
    """The name of what was chosen for a field, if it is not what usually is."""
    declared = type(record).model_fields.get(field)
    if declared is None:
        return {}
    chosen = name_of(getattr(record, field))
    usual = name_of(declared.get_default(call_default_factory=True, validated_data={}))
    return {} if chosen == usual else {field: chosen}


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(_short, value))
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return value[:6]  # a digest
    if value is None:
        return "null"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def parse_trial(settings: dict[str, Any]) -> Trial:
    """Validate settings; every complaint names the field, the value and what is allowed."""
    try:
        return Trial.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def explain(error: ValidationError, record: type[BaseModel] = Trial) -> str:
    """Pydantic's complaints, one line each: field, value, what is allowed."""
    return "\n".join(_complaint(item, record) for item in error.errors(include_url=False))


def _complaint(item: Any, record: type[BaseModel]) -> str:
    path = [str(part) for part in item["loc"]]
    field = ".".join(path) or record.__name__.lower()
    if item["type"] == UNKNOWN:
        return f"{field}: {item['msg']}"
    message = str(item["msg"]).removeprefix("Value error, ")
    value = item["input"]
    is_shown = isinstance(value, dict) or f"`{value}`" in message or ", got `" in message
    shown = "" if is_shown else f", got `{value}`"
    return f"{field}: {message[0].lower()}{message[1:]}{shown}"
