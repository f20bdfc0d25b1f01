"""The server: it samples cohorts, aggregates their reports, and remembers."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcome_ray import methods, metrics, samplers
from fedcome_ray.clients import availability
from fedcome_ray.errors import DivergenceError
from fedcome_ray.experiments.trial import Availability, Trial
from fedcome_ray.methods.method import Cohort, Info, Report
from fedcome_ray.numerics.geometry import Floats
from fedcome_ray.numerics.randomness import Stream, generator

# Cosines closer to zero than this are rounding: params and updates are in single precision.
ROUNDING = 1e-4
ALWAYS = Availability()


class ServerState(NamedTuple):
    """Everything a server carries from round to round."""

    round_index: int
    method: Any
    sampler: Any


class Server:
    """The method's server half and the sampler, with their states."""

    def __init__(self, trial: Trial, params: torch.Tensor, num_clients: int) -> None:
        self.seed = trial.seed
        self.availability = trial.availability
        self.method = methods.build(trial.method)
        if self.method.pools:
            num_clients = self.cohort_size = 1
        else:
            self.cohort_size = trial.cohort_size_of(num_clients)
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
        """Who is asked to take part in this round."""
        rng = generator(self.seed, Stream.SAMPLER, self.state.round_index)
        return self.sampler.sample(self.state.sampler, self.cohort_size, rng)

    def choose(self, candidates: Cohort, losses: Floats) -> Cohort:
        """Who of the candidates is to take part, by their losses."""
        assert self.sampler.choose is not None
        return self.sampler.choose(candidates, losses, self.cohort_size)

    def present(self, asked: Cohort) -> Cohort:
        """Who of them does, which may be nobody."""
        return availability.present(self.availability, self.seed, self.state.round_index, asked)

    def broadcast(self) -> Any:
        """What the cohort is sent."""
        return self.method.broadcast(self.state.method)

    def aggregate(self, cohort: Cohort, report: Report) -> Info:
        """Learn from the cohort's report, if there is any, and go on to the next round."""
        round_index, method, sampler = self.state
        _check_updates(report, cohort, round_index)
        next_method: Any = method
        info: Info = {}
        if cohort:
            sampler = self.sampler.learn(sampler, cohort, report)  # from the raw updates
            next_method, info = self.method.aggregate(method, cohort, report)
        attendance = self._attendance(cohort)
        move = next_method.params - method.params
        step_norm = float(move.norm())
        if not math.isfinite(step_norm):  # its square need not be, if the move is
            _check_params(next_method.params, round_index)
        self.state = ServerState(round_index + 1, next_method, sampler)
        return {
            **info,
            metrics.STEP_NORM: step_norm,
            metrics.OPPOSED: num_opposed(report, move),
            **attendance,
        }

    def _attendance(self, cohort: Cohort) -> Info:
        """How many were there and got through, where that is not everybody who was asked."""
        if self.availability == ALWAYS:
            return {}
        clients = np.array(cohort, np.int64)
        shares = availability.shares(self.availability, self.seed, self.state.round_index, clients)
        return {
            metrics.COHORT_SIZE: len(cohort),
            metrics.ABSENT: self.cohort_size - len(cohort),
            metrics.STRAGGLERS: int((shares < 1).sum()),
        }


def num_opposed(report: Report, move: torch.Tensor) -> float:
    """Clients whose own update points away from the server's move: their risk is likely to rise."""
    along = (report.update @ move).numpy(force=True)
    rounding = ROUNDING * float(move.norm())
    # Their lengths one by one: they are few, or would be copied to be computed together.
    against = np.flatnonzero(along < 0)
    return float(sum(along[row] < -rounding * float(report.update[row].norm()) for row in against))


def _check_params(params: torch.Tensor, round_index: int) -> None:
    if not torch.isfinite(params).all():
        raise DivergenceError(
            f"round {round_index + 1}: the updates are finite, but not the params that the server "
            f"makes of them; look at the learning rates, `local.lr` and those of `method`"
        )


def _check_updates(report: Report, cohort: Cohort, round_index: int) -> None:
    if not cohort or torch.isfinite(report.weighted_mean).all():
        return
    finite = torch.isfinite(report.update).all(-1).numpy(force=True)  # their sum need not be
    if not finite.all():
        lost = np.array(cohort)[~finite].tolist()
        raise DivergenceError(
            f"round {round_index + 1}: the updates of clients {lost} are not finite; "
            f"a smaller `local.lr` or a `local.clip_norm` may help"
        )
