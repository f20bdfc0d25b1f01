"""The server: it samples cohorts, aggregates their reports, and remembers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcome_ray import methods, metrics, samplers
from fedcome_ray.errors import DivergenceError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.methods.method import Cohort, Info, Report
from fedcome_ray.numerics.randomness import Stream, generator

# Cosines closer to zero than this are rounding: params and updates are in single precision.
ROUNDING = 1e-4


class ServerState(NamedTuple):
    """Everything a server carries from round to round."""

    round_index: int
    method: Any
    sampler: Any


class Server:
    """The method's server half and the sampler, with their states."""

    def __init__(self, trial: Trial, params: torch.Tensor, num_clients: int) -> None:
        self.seed = trial.seed
        self.cohort_size = trial.cohort_size_of(num_clients)
        self.method = methods.build(trial.method)
        self.sampler = samplers.build(trial.sampler)
        self.state = ServerState(
            round_index=0,
            method=self.method.init_server(params, num_clients),
            sampler=self.sampler.init(num_clients),
        )

    @property
    def params(self) -> torch.Tensor:
        params: torch.Tensor = self.state.method.params
        return params

    def sample(self) -> Cohort:
        """Who takes part in this round."""
        rng = generator(self.seed, Stream.SAMPLER, self.state.round_index)
        return self.sampler.sample(self.state.sampler, self.cohort_size, rng)

    def broadcast(self) -> Any:
        """What the cohort is sent."""
        return self.method.broadcast(self.state.method)

    def gather(self, cohort: Cohort, reports: Sequence[Report]) -> Report:
        """One report for the cohort from those of its shards, given in the cohort's order."""
        report = Report.concatenate(reports)
        _check_finite(report, cohort, self.state.round_index)
        return report

    def aggregate(self, cohort: Cohort, report: Report) -> Info:
        """Learn from the cohort's report, and go on to the next round."""
        round_index, method, sampler = self.state
        sampler = self.sampler.learn(sampler, cohort, report)  # from the raw updates
        next_method, info = self.method.aggregate(method, cohort, report)
        self.state = ServerState(round_index + 1, next_method, sampler)
        move = next_method.params - method.params
        return {
            **info,
            metrics.STEP_NORM: float(move.norm()),
            metrics.OPPOSED: num_opposed(report, move),
        }


def num_opposed(report: Report, move: torch.Tensor) -> float:
    """Clients whose own update points away from the server's move: their risk is likely to rise."""
    along = report.update @ move
    lengths = torch.linalg.vector_norm(report.update, dim=-1) * move.norm()
    return float((along < -ROUNDING * lengths).sum())


def _check_finite(report: Report, cohort: Cohort, round_index: int) -> None:
    finite = torch.isfinite(report.update.sum(-1)).numpy(force=True)
    if not finite.all():
        lost = np.array(cohort)[~finite].tolist()
        raise DivergenceError(
            f"round {round_index + 1}: the updates of clients {lost} are not finite; "
            f"a smaller `local.lr` or a `local.clip_norm` may help"
        )
