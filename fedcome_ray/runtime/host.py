"""The process of a shard that lives behind an actor."""

import threading
from functools import partial
from typing import Any

from torch import Tensor

from fedcome_ray.clients.company import computed_with
from fedcome_ray.clients.evaluation import Scores
from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets.population import Side
from fedcome_ray.errors import ShardError
from fedcome_ray.experiments.trial import Trial, check_plugins
from fedcome_ray.federation.sharding import part_of
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics import device
from fedcome_ray.numerics.arrays import Arrays, to_tensors
from fedcome_ray.numerics.geometry import Floats
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.plugins import load_plugins
from fedcome_ray.runtime.lines import Line, dial
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.populations import SharedPopulation


class ShardHost:
    """The process of a shard actor; it serves one trial after the other."""

    def __init__(self, place: TrialPlace) -> None:
        device.prepare_process()
        self._place = place
        self._device = device.CPU
        self._shard: Shard | None = None
        self._line: Line | None = None
        self._turn = threading.Lock()  # of who computes: calls, or questions that a line brings

    def load(
        self, trial: dict[str, Any], plugins: list[str], shared: SharedPopulation, number: int
    ) -> Arithmetic:
        """Serve this trial, as the shard with this number; what it computes with."""
        load_plugins(plugins)
        settings = Trial.model_validate(trial)
        check_plugins(settings)
        if self._line is not None:
            self._line.hang_up()
        with self._turn:
            self._line = None  # what it has still brought is not for this trial
            self._shard = None  # its memory is needed for the next
            self._device = device.pick(self._place.gpus_per_shard)
            population, place = shared.fetch(), self._place
            part = part_of(population, settings, number, place.num_shards)
            self._shard = Shard(settings, population, self._device, place.memory_per_shard, part)
        return computed_with(self._device)

    def dial(self, address: str, number: int) -> bool:
        """Whether there is a line to the server: from here on it may ask through that."""
        self._line = dial(address, number) if self._device == device.CPU else None
        if self._line is not None:
            threading.Thread(target=self._serve, args=(self._line,), daemon=True).start()
        return self._line is not None

    def ready(self) -> None:
        """Answer when nothing is left to do."""
        with self._turn:
            pass

    def _serve(self, line: Line) -> None:
        device.prepare_process()  # some libraries count threads for each thread
        line.serve(partial(self._answer, line))

    def _answer(
        self,
        line: Line,
        what: str,
        received: Any,
        arguments: tuple[Any, ...],
        update: Tensor | None,
    ) -> Any:
        with self._turn:
            if line is not self._line:
                raise ShardError("this shard serves another trial")
            if update is None:
                return getattr(self, what)(received, *arguments)
            clients, round_index = arguments
            return self.train(received, clients, round_index, Report.around(update))[1:]

    def train(
        self, received: Any, clients: Cohort, round_index: int, report: Report | None = None
    ) -> tuple[Any, ...]:
        report = self.shard.train(to_tensors(received), clients, round_index, report)
        return tuple(field.numpy(force=True) for field in report.fields())

    def losses(self, received: Any, clients: Cohort) -> Floats:
        return self.shard.losses(to_tensors(received).params, clients)

    def evaluate(self, received: Any, parts: list[int], side: Side) -> Scores:
        return self.shard.evaluate(to_tensors(received).params, parts, side)

    def evaluate_personally(self, received: Any, clients: Cohort, round_index: int) -> Scores:
        return self.shard.evaluate_personally(to_tensors(received).params, clients, round_index)

    def export_states(self) -> Arrays:
        with self._turn:
            return self.shard.states.export()

    def restore_states(self, states: Arrays) -> None:
        with self._turn:
            self.shard.states.restore(states)

    @property
    def shard(self) -> Shard:
        assert self._shard is not None
        return self._shard
