"""A trial as Ray Tune sees it: the central actor of a federation.

The actor is the server; its shards are actors of their own in the same placement group, or, where
one shard is enough, a part of it. Tune reuses the actor for the next trial (`reset_config`), and
the pool of shards with it.
"""

import os
import resource
import traceback
from collections import defaultdict
from contextlib import ExitStack, suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from ray import tune

from fedcome_ray import methods
from fedcome_ray.datasets.population import Population
from fedcome_ray.errors import FedcomeError, UserError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import LocalShards, Shards
from fedcome_ray.launch.plan_old import Machine
from fedcome_ray.numerics import device
from fedcome_ray.runtime.cluster_old import RayShards, ShardPool, SharedPopulation
from fedcome_ray.trials.run import Line, TrialRun, exclusive, read_lines, read_result


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
        system_metrics: bool,
    ) -> None:
        methods.load_plugins(plugins)
        self._populations = populations
        self._machine = machine
        self._trials_folder = trials_folder
        self._plugins = plugins
        self._report_seconds = report_seconds
        self._system_metrics = system_metrics
        if machine.is_joint:
            self._device = device.pick(machine.gpus_per_shard)
        else:
            self._pool = ShardPool(machine)
        self._resources = ExitStack()  # the lock of the trial's folder
        self._trial_run: TrialRun | None = None
        self._last_answer = perf_counter()
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        # Seconds outside of rounds since the last answer, by what was done.
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._spent["report"] += perf_counter() - self._last_answer
        try:
            news = self._advance()
        except Exception as error:  # noqa: BLE001 - reported with its cause, and the grid goes on
            self._close()
            # The folder may be what failed: a full disk, or somebody removed it.
            with suppress(OSError), (self._folder / "trial.log").open("a") as file:
                traceback.print_exception(error, file=file)
            kind = "" if isinstance(error, FedcomeError) else f"{type(error).__name__}: "
            news = _news([], is_finished=False, failure=f"{kind}{error}")
        self._last_answer = perf_counter()
        return {**news, "seconds": dict(self._spent)}

    def cleanup(self) -> None:
        """Tune stops the actor, perhaps in the middle of a trial: leave it ready to go on."""
        self._leave()

    def _begin(self, config: dict[str, Any]) -> None:
        """Take a trial without touching its folder: Tune may hand it to another actor instead."""
        self._leave()  # one that Tune stopped early
        self._trial = Trial.model_validate(config["spec"]["trial"])
        self._expected_key = config["spec"]["key"]
        self._folder = self._trials_folder / self._trial.folder_name
        self._last_answer = perf_counter()

    def _advance(self) -> dict[str, Any]:
        start = perf_counter()
        if self._trial_run is None:
            self._trial_run = self._open()
            self._spent["start"] += perf_counter() - start
        run = self._trial_run
        if run is None:
            lines = read_lines(self._folder)
            self._close()
            return _news(lines, is_finished=True, num_restored=len(lines))
        checkpoints = run.checkpoint_seconds
        lines = run.advance(self._report_seconds)
        self._spent["checkpoint"] += run.checkpoint_seconds - checkpoints
        if self._system_metrics and lines:
            used = system_metrics(self._cpu_seconds_before)
            lines[-1] = {**lines[-1], "metrics": {**lines[-1]["metrics"], **used}}
        if run.is_finished:
            end = perf_counter()
            run.finish()
            self._close()
            self._spent["finish"] += perf_counter() - end
        accuracy = last_accuracy(run.lines)
        return _news(lines, run.is_finished, run.num_restored, len(run.lines), accuracy)

    def _open(self) -> TrialRun | None:
        """The trial, ready to go on; None if another process has finished it in the meantime."""
        self._cpu_seconds_before = process_time()
        if self._trial.key != self._expected_key:
            raise UserError("the code of its plugin is not that with which the launch began")
        self._resources.enter_context(exclusive(self._folder))
        if read_result(self._folder) is not None:
            return None
        shared = self._populations[self._trial.data.model_dump_json()]
        population = shared.fetch()
        return TrialRun(self._trial, population, self._shards(shared, population), self._folder)

    def _shards(self, shared: SharedPopulation, population: Population) -> Shards:
        if self._machine.is_joint:
            memory = self._machine.memory_per_shard
            return LocalShards(self._trial, population, device=self._device, memory=memory)
        self._pool.replace_dead()  # else a shard that died late would fail every trial after it
        return RayShards(self._trial, shared, self._pool, self._plugins)

    def _leave(self) -> None:
        if self._trial_run is not None:
            self._trial_run.checkpoint()
        self._close()

    def _close(self) -> None:
        self._trial_run = None
        self._resources.close()


def _news(
    lines: list[Line],
    is_finished: bool,
    num_restored: int = 0,
    rounds_done: int = 0,
    accuracy: float = 0.0,
    failure: str | None = None,
) -> dict[str, Any]:
    """What Tune passes on to the driver; cohorts stay in the trial's folder."""
    return {
        "lines": [{k: v for k, v in line.items() if k != "cohort"} for line in lines],
        "num_restored": num_restored,
        "rounds_done": rounds_done,
        "accuracy": accuracy,
        "failure": failure,
        "finished": is_finished,
        "done": is_finished or failure is not None,
    }


def system_metrics(cpu_seconds_before: float) -> dict[str, float]:
    """What this process has used for its trial, how large it ever was, how busy its machine is."""
    return {
        "system/peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "system/cpu_seconds": process_time() - cpu_seconds_before,
        "system/load": os.getloadavg()[0],
    }


def last_accuracy(lines: list[Line]) -> float:
    """The newest test accuracy, by which schedulers of Tune compare trials."""
    known = (line["metrics"].get("accuracy/test") for line in reversed(lines))
    return next((accuracy for accuracy in known if accuracy is not None), 0.0)
