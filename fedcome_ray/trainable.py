"""A trial as Ray Tune sees it: the central actor of a federation.

The actor is the server; its shards are actors of their own in the same placement group, or, where
one shard is enough, a part of it. Tune reuses the actor for the next trial (`reset_config`), and
the pool of shards with it.
"""

import logging
import traceback
from collections import defaultdict
from contextlib import ExitStack, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from ray import tune

from fedcome_ray import device, methods
from fedcome_ray.cluster import RayShards, ShardPool, SharedPopulation
from fedcome_ray.config import Trial
from fedcome_ray.errors import FedcomeError
from fedcome_ray.federation import LocalShards, Shards
from fedcome_ray.plan import Machine
from fedcome_ray.trial import Line, TrialRun, exclusive

logger = logging.getLogger(__name__)


class TrialActor(tune.Trainable):
    """Runs one trial after the other; a failed one is reported, not raised.

    Tune repeats trials that raise. Here only the death of a process or a node is worth repeating,
    and Tune notices that by itself; an error of the trial would come again.
    """

    def setup(  # type: ignore[override]  # the further arguments come from tune.with_parameters
        self,
        config: dict[str, Any],
        *,
        populations: dict[str, SharedPopulation],
        machine: Machine,
        trials_folder: Path,
        plugins: list[str],
        report_seconds: float,
    ) -> None:
        device.tune_process(num_threads=1)
        methods.load_plugins(plugins)
        self._machine = machine
        self._populations = populations
        self._plugins = plugins
        self._report_seconds = report_seconds
        self._trials_folder = trials_folder
        if machine.is_joint:
            self._device = device.pick(machine.gpus_per_shard)
        else:
            self._pool = ShardPool(machine)
        self._trial_run: TrialRun | None = None
        # Seconds outside of rounds since the last answer, by what was done.
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._last_answer = perf_counter()
        self._resources = ExitStack()
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        self._spent["report"] += perf_counter() - self._last_answer
        if self._failure is None:
            self._guard(self._advance)
        if self._failure is not None:
            self._news = {
                "lines": [],
                "failure": self._failure,
                "num_restored": 0,
                "rounds_done": 0,
                "accuracy": 0.0,
                "finished": False,
                "done": True,
            }
        self._news["seconds"], self._spent = dict(self._spent), defaultdict(float)
        self._last_answer = perf_counter()
        return self._news

    def cleanup(self) -> None:
        """Tune stops the actor, perhaps in the middle of a trial: leave it ready to go on."""
        if self._trial_run is not None and self._failure is None:
            self._trial_run.checkpoint()
        self._resources.close()

    def _begin(self, config: dict[str, Any]) -> None:
        if self._trial_run is not None:  # a scheduler of Tune stopped it early
            self._guard(self._trial_run.checkpoint)
            self._close()
        self._failure: str | None = None
        self._spent = defaultdict(float)
        start = perf_counter()
        trial = Trial.model_validate(config["spec"]["trial"])
        self._folder = self._trials_folder / trial.folder_name
        self._guard(lambda: self._open(trial))
        self._last_answer = perf_counter()
        self._spent["start"] += self._last_answer - start

    def _open(self, trial: Trial) -> None:
        self._resources.enter_context(exclusive(self._folder))
        shared = self._populations[trial.data.model_dump_json()]
        population = shared.fetch()
        shards: Shards
        if self._machine.is_joint:
            memory = self._machine.memory_per_shard
            shards = LocalShards(trial, population, device=self._device, memory=memory)
        else:
            self._pool.replace_dead()  # else a shard that died late would fail every trial after it
            shards = RayShards(trial, shared, self._pool, self._plugins)
        self._trial_run = TrialRun(trial, population, shards, self._folder)

    def _advance(self) -> None:
        run = self._trial_run
        assert run is not None
        checkpoints = run.checkpoint_seconds
        lines = run.advance(self._report_seconds)
        self._spent["checkpoint"] += run.checkpoint_seconds - checkpoints
        if run.is_finished:
            end = perf_counter()
            run.finish()
            self._close()
            self._spent["finish"] += perf_counter() - end
        news = [{k: v for k, v in line.items() if k != "cohort"} for line in lines]
        self._news = {
            "lines": news,
            "failure": None,
            "num_restored": run.num_restored,
            "rounds_done": len(run.lines),
            "accuracy": last_accuracy(run.lines),
            "finished": run.is_finished,
            "done": run.is_finished,
        }

    def _close(self) -> None:
        self._trial_run = None
        self._resources.close()

    def _guard(self, action: Any) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - reported with its cause, and the grid goes on
            kind = "" if isinstance(error, FedcomeError) else f"{type(error).__name__}: "
            self._failure = f"{kind}{error}"
            self._close()
            # The folder may be what failed: a full disk, or somebody removed it.
            with suppress(OSError), (self._folder / "trial.log").open("a") as file:
                traceback.print_exception(error, file=file)


def last_accuracy(lines: list[Line]) -> float:
    """The newest test accuracy, by which schedulers of Tune compare trials."""
    known = (line["metrics"].get("accuracy/test") for line in reversed(lines))
    return next((accuracy for accuracy in known if accuracy is not None), 0.0)
