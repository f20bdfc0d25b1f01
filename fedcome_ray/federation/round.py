"""One round, top to bottom: the page to read first.

`run_round` is the whole data flow of federated learning. It is the same whether the shards live in
this process (`fedcome_ray.federation.shards.LocalShards`) or behind Ray actors
(`fedcome_ray.runtime.shards.RayShards`).
"""

import time
from dataclasses import dataclass, replace

from fedcome_ray import metrics
from fedcome_ray.clients.evaluation import Evaluation
from fedcome_ray.federation import communication
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import Shards
from fedcome_ray.methods.method import Cohort, Info


@dataclass(frozen=True)
class Round:
    """What happened in a round: an entry of the trial's history.

    Entries count the rounds that are done: number 0 is the model before any training.
    """

    number: int
    cohort: Cohort
    metrics: dict[str, float]  # by the names under which they are tracked
    seconds: dict[str, float]  # by phase, and of the whole
    time: float  # when it ended, in seconds since 1970
    absent: Cohort = ()  # who was sampled, too, but was not there
    test: Evaluation | None = None  # of every client; the history does without, see `slim`
    train: Evaluation | None = None
    personal: Evaluation | None = None

    def slim(self) -> "Round":
        """The round without the results of single clients."""
        return replace(self, test=None, train=None, personal=None)


def run_round(
    server: Server,
    shards: Shards,
    *,
    evaluate: bool = True,
    evaluate_train: bool = False,
    evaluate_personally: bool = False,
) -> Round:
    """Sample, train, aggregate, evaluate; if nobody is there, the params stay."""
    phases = Phases()
    index = server.state.round_index  # of this round, from 0

    asked = server.sample()  # who is to take part
    if server.sampler.choose is not None:  # or only may: the losses decide
        asked = server.choose(asked, shards.losses(server.params, asked))
    cohort = server.present(asked)  # who does
    phases.end("sample")
    received = server.broadcast()  # what they are sent
    phases.end("broadcast")
    report = shards.train(received, cohort, index)  # local training: a row for each of them
    phases.end("train")
    info = server.aggregate(cohort, report)  # sampler learns; consensus or mean; params move
    phases.end("aggregate")
    test = shards.evaluate(server.params) if evaluate else None  # every client's test set
    train = shards.evaluate(server.params, "train") if evaluate_train else None
    personal = shards.evaluate_personally(server.params, index + 1) if evaluate_personally else None
    sent = communication.traffic(server.method, cohort, received, report)
    tracked = named_metrics({**info, **sent}, test, train, personal)
    phases.end("evaluate")

    absent = tuple(sorted({*asked} - {*cohort}))
    now = round(time.time(), 3)
    return Round(index + 1, cohort, tracked, phases.named(), now, absent, test, train, personal)


def before_training(
    server: Server,
    shards: Shards,
    *,
    evaluate_train: bool = False,
    evaluate_personally: bool = False,
) -> Round:
    """Evaluate the model that training starts from."""
    phases = Phases()
    test = shards.evaluate(server.params)
    train = shards.evaluate(server.params, "train") if evaluate_train else None
    personal = shards.evaluate_personally(server.params, 0) if evaluate_personally else None
    tracked = named_metrics(communication.NOTHING, test, train, personal)
    phases.end("evaluate")
    now = round(time.time(), 3)
    return Round(0, (), tracked, phases.named(), now, (), test, train, personal)


def named_metrics(
    info: Info,
    test: Evaluation | None,
    train: Evaluation | None,
    personal: Evaluation | None,
) -> dict[str, float]:
    """What is tracked of a round, by full names."""
    found = {metrics.of_server(name): value for name, value in info.items()}
    if test is not None:
        found |= test.summary
    if train is not None:
        found |= train.train_summary
    if personal is not None:
        found |= personal.personal_summary
    return found


class Phases:
    """Wall time of consecutive phases."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, phase: str) -> None:
        now = time.perf_counter()
        self._seconds[metrics.of_seconds(phase)] = now - self._last
        self._last = now

    def named(self) -> dict[str, float]:
        """By the names under which they are tracked, with the sum of all."""
        return {**self._seconds, metrics.SECONDS_ROUND: sum(self._seconds.values())}
