"""Search beyond a grid: settings drawn from ranges, by Optuna or at random with early stopping.

A grid file may have ranges for the settings of a method and of local training:

    space:
      fedprox: {method.mu: {low: 0.0001, high: 1.0, log: true}, local.lr: {low: 0.01, high: 0.1}}
      fedfv: {method.tau: {choices: [0, 1, 3, 10]}}

`optuna` proposes candidates in batches and learns from a batch before the next. `asha` draws all
candidates at random and runs them part of the way, and only the best of them further: successive
halving, without the asynchrony, which would let the winner depend on who happens to come first.

A candidate is run with every seed that is asked for, and candidates are compared by the mean. Since
its trials are ordinary ones, and launches follow one another in an order that depends on results
alone, the same command goes on after an interruption.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Literal, Self

import numpy as np
from pydantic import TypeAdapter, ValidationError, model_validator

from fedcome_ray import metrics
from fedcome_ray.errors import GridError, UserError
from fedcome_ray.experiments.complaints import explain
from fedcome_ray.experiments.overlay import TUNED
from fedcome_ray.experiments.settings import assign
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.hyperparameters import Hyperparameters, name_of
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.request import Request
from fedcome_ray.numerics.randomness import Stream, generator
from fedcome_ray.trials.folder import read_result, read_rounds

Kind = Literal["optuna", "asha"]
Candidate = tuple[Trial, ...]  # the same settings, with each seed
BATCH = 4  # candidates of each method between two lessons
KEPT = 3  # one of so many goes on; it has as many times the rounds


class Range(Hyperparameters):
    """The values of a setting: between two numbers, or one of some."""

    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[Any, ...] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.choices is not None and not self.choices:
            raise ValueError("`choices` must have at least one")
        if self.choices is None:
            if self.low is None or self.high is None or not self.low < self.high:
                raise ValueError("a range needs `low` below `high`, or `choices`")
            if self.log and self.low <= 0:
                raise ValueError(f"a logarithmic range needs `low` above 0, got {self.low}")
        return self

    def draw(self, rng: np.random.Generator) -> Any:
        if self.choices is not None:
            return self.choices[rng.integers(len(self.choices))]
        assert self.low is not None
        assert self.high is not None
        if self.log:
            return math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return rng.uniform(self.low, self.high)


Space = Mapping[str, Mapping[str, Range]]  # method -> setting -> range


def parse_space(space: Mapping[str, Any]) -> Space:
    """The ranges of a grid file, checked."""
    try:
        parsed = TypeAdapter(dict[str, dict[str, Range]]).validate_python(space)
    except ValidationError as error:
        raise GridError(f"`space` of the grid:\n{explain(error, Range)}") from None
    for method, ranges in parsed.items():
        for name in ranges:
            if not name.startswith(TUNED):
                raise GridError(
                    f"`space` of the grid: {method}: `{name}` cannot be searched, only settings "
                    f"that start with {' or '.join(f'`{prefix}`' for prefix in TUNED)}"
                )
    return parsed


def search(
    request: Request,
    space: Space,
    kind: Kind,
    samples: int,
    run: Callable[[Request], Outcome],
) -> tuple[Request, list[Outcome]]:
    """Try `samples` settings of each method that has ranges; all trials, and how launches ended."""
    starts = first_of_each_method(request.trials, space)
    attempt = _halve if kind == "asha" else _learn
    tried: dict[str, Trial] = {}
    outcomes: list[Outcome] = []
    extras = dataclasses.replace(request.extras, best=None)  # they are known only at the end
    plain = dataclasses.replace(request, extras=extras)
    for trials, outcome in attempt(plain, starts, space, samples, run):
        tried |= {trial.key: trial for trial in trials}
        outcomes.append(outcome)
        if outcome.is_interrupted:
            break
    return dataclasses.replace(request, trials=list(tried.values())), outcomes


def first_of_each_method(trials: Sequence[Trial], space: Space) -> list[Candidate]:
    """What to vary, for each dataset and method that has ranges, with all seeds that it has."""
    starts: dict[tuple[str, str], dict[int, Trial]] = {}
    for trial in trials:
        if name_of(trial.method) in space:
            own = starts.setdefault((trial.data.model_dump_json(), name_of(trial.method)), {})
            first = next(iter(own.values()), trial)
            own.setdefault(trial.seed, vary(first, {"seed": trial.seed}))
    if not starts:
        raise UserError(f"--search: the grid has no `space` for its methods; it has {list(space)}")
    return [tuple(own.values()) for own in starts.values()]


def check_free(given: Iterable[str], option: str, trials: Sequence[Trial], space: Space) -> None:
    """Refuse to fix by an option what the search would draw."""
    drawn = {setting for trial in trials for setting in space.get(name_of(trial.method), {})}
    for name in given:
        if name in drawn:
            raise UserError(f"{option} {name}: the search draws it; leave one of them out")


def vary(trial: Trial, values: Mapping[str, Any]) -> Trial:
    """The same trial with other values."""
    settings = trial.model_dump(mode="json")
    assign(settings, values.items())
    return parse_trial(settings)


def at_random(start: Candidate, ranges: Mapping[str, Range], samples: int) -> list[Candidate]:
    """Candidates drawn at random, the same ones for the same start."""
    rng = generator(start[0].seed, Stream.SEARCH)
    drawn = ({name: values.draw(rng) for name, values in ranges.items()} for _ in range(samples))
    candidates = (tuple(vary(one, values) for one in start) for values in drawn)
    return list({candidate[0].key: candidate for candidate in candidates}.values())


def candidates_at_random(trials: Sequence[Trial], space: Space, samples: int) -> list[Trial]:
    """The trials of the candidates of all methods that have ranges."""
    starts = first_of_each_method(trials, space)
    drawn = (at_random(start, _ranges_of(start, space), samples) for start in starts)
    return [trial for some in drawn for trial in _trials_of(some)]


def milestones(trial: Trial) -> list[int]:
    """About a ninth and a third of the rounds, where the trial is evaluated."""
    ninth = math.ceil(trial.rounds / KEPT**2)
    wanted = (-(-rounds // trial.eval_every) * trial.eval_every for rounds in (ninth, KEPT * ninth))
    return sorted({rounds for rounds in wanted if rounds < trial.rounds})


def _halve(
    request: Request,
    starts: Sequence[Candidate],
    space: Space,
    samples: int,
    run: Callable[[Request], Outcome],
) -> Iterator[tuple[list[Trial], Outcome]]:
    """One method after the other: candidates compete with those of their own method only."""
    for start in starts:
        candidates = at_random(start, _ranges_of(start, space), samples)
        for rounds in milestones(start[0]):
            trials = _trials_of(candidates)
            outcome = run(dataclasses.replace(request, trials=trials, pause_after=rounds))
            if not outcome.is_interrupted:
                candidates = _best_third(request, candidates, rounds)
                outcome.stopped |= {trial.key for trial in trials} - {
                    trial.key for trial in _trials_of(candidates)
                }
                outcome.stopped -= set(outcome.failures)
            yield trials, outcome
        trials = _trials_of(candidates)
        yield trials, run(dataclasses.replace(request, trials=trials))


def _best_third(request: Request, candidates: Sequence[Candidate], rounds: int) -> list[Candidate]:
    """Those with the best mean accuracy after so many rounds, in the order they were in."""

    def accuracy(candidate: Candidate) -> float:
        return mean(accuracy_after(request.folder(trial), rounds) for trial in candidate)

    num = math.ceil(len(candidates) / KEPT)
    best = sorted(candidates, key=accuracy, reverse=True)[:num]
    return [candidate for candidate in candidates if candidate in best]


def accuracy_after(folder: Path, rounds: int) -> float:
    """The newest known of a trial when so many rounds were done; below all others if it failed."""
    history = read_rounds(folder)
    has_failed = (not history or history[-1].number < rounds) and read_result(folder) is None
    found = [one.metrics.get(metrics.ACCURACY) for one in history if one.number <= rounds]
    known = [accuracy for accuracy in found if accuracy is not None]
    return -math.inf if has_failed else known[-1]


def _learn(
    request: Request,
    starts: Sequence[Candidate],
    space: Space,
    samples: int,
    run: Callable[[Request], Outcome],
) -> Iterator[tuple[list[Trial], Outcome]]:
    """Batches of all methods together, each method with a study of its own."""
    optuna = _import_optuna()
    kind = optuna.samplers.TPESampler
    studies = [
        optuna.create_study(direction="maximize", sampler=kind(seed=start[0].seed))
        for start in starts
    ]
    for done in range(0, samples, BATCH):
        asked = []
        for study, start in zip(studies, starts, strict=True):
            for _ in range(min(BATCH, samples - done)):
                ticket = study.ask(_distributions(optuna, _ranges_of(start, space)))
                asked.append((study, ticket, tuple(vary(one, ticket.params) for one in start)))
        trials = _trials_of([candidate for _, _, candidate in asked])
        yield trials, run(dataclasses.replace(request, trials=trials))
        for study, ticket, candidate in asked:
            results = [read_result(request.folder(trial)) for trial in candidate]
            tails = [one.final[metrics.ACCURACY_TAIL] for one in results if one is not None]
            if len(tails) < len(candidate):
                study.tell(ticket, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(ticket, mean(tails))


def _ranges_of(start: Candidate, space: Space) -> Mapping[str, Range]:
    return space[name_of(start[0].method)]


def _trials_of(candidates: Iterable[Candidate]) -> list[Trial]:
    """Of all candidates, each once."""
    return list({trial.key: trial for candidate in candidates for trial in candidate}.values())


def _distributions(optuna: Any, ranges: Mapping[str, Range]) -> dict[str, Any]:
    kinds = optuna.distributions
    return {
        name: kinds.CategoricalDistribution(values.choices)
        if values.choices is not None
        else kinds.FloatDistribution(values.low, values.high, log=values.log)
        for name, values in ranges.items()
    }


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError(
            "--search optuna: Optuna is not installed; `pip install optuna`, or use asha"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
