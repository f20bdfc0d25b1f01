"""A trial as Ray Tune sees it: the central actor of a federation.

The actor is the server; its shards are actors of their own in the same placement group. Tune reuses
the actor for the next trial (`reset_config`), and the pool of shards with it.
"""

import logging
import traceback
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
from ray import tune

from fedcome_ray import methods
from fedcome_ray.cluster import RayShards, ShardPool, SharedPopulation
from fedcome_ray.config import Trial
from fedcome_ray.errors import FedcomeError
from fedcome_ray.plan import Machine
from fedcome_ray.trial import Line, TrialRun, exclusive, read_lines, read_result

logger = logging.getLogger(__name__)

# Rounds are reported together, about once a second: a report costs some milliseconds, a round may
# cost less.
REPORT_SECONDS = 1.0


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
    ) -> None:
        torch.set_num_threads(1)
        methods.load_plugins(plugins)
        self._populations = populations
        self._plugins = plugins
        self._trials_folder = trials_folder
        self._pool = ShardPool(machine)
        self._resources = ExitStack()  # the lock of the trial's folder
        self._trial_run: TrialRun | None = None
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        try:
            return self._advance()
        except Exception as error:  # noqa: BLE001 - reported with its cause, and the grid goes on
            self._close()
            # The folder may be what failed: a full disk, or somebody removed it.
            with suppress(OSError), (self._folder / "trial.log").open("a") as file:
                traceback.print_exception(error, file=file)
            kind = "" if isinstance(error, FedcomeError) else f"{type(error).__name__}: "
            return {"lines": [], "num_restored": 0, "failure": f"{kind}{error}", "done": True}

    def cleanup(self) -> None:
        """Tune stops the actor, perhaps in the middle of a trial: leave it ready to go on."""
        if self._trial_run is not None:
            self._trial_run.checkpoint()
        self._close()

    def _begin(self, config: dict[str, Any]) -> None:
        """Take a trial without touching its folder: Tune may hand it to another actor instead."""
        self._close()
        self._trial = Trial.model_validate(config["spec"]["trial"])
        self._folder = self._trials_folder / self._trial.folder_name

    def _advance(self) -> dict[str, Any]:
        run = self._trial_run = self._trial_run or self._open()
        if run is None:
            lines = read_lines(self._folder)
            self._close()
            return _news(lines, num_restored=len(lines), is_finished=True)
        lines = run.advance(REPORT_SECONDS)
        if run.is_finished:
            run.finish()
            self._close()
        return _news(lines, run.num_restored, run.is_finished)

    def _open(self) -> TrialRun | None:
        """The trial, ready to go on; None if another process has finished it in the meantime."""
        self._resources.enter_context(exclusive(self._folder))
        if read_result(self._folder) is not None:
            return None
        self._pool.replace_dead()  # else a shard that died late would fail every trial after it
        population = self._populations[self._trial.data.model_dump_json()]
        shards = RayShards(self._trial, population, self._pool, self._plugins)
        return TrialRun(self._trial, shards.population, shards, self._folder)

    def _close(self) -> None:
        self._trial_run = None
        self._resources.close()


def _news(lines: list[Line], num_restored: int, is_finished: bool) -> dict[str, Any]:
    """What Tune passes on to the driver; cohorts stay in the trial's folder."""
    shown = [{k: v for k, v in line.items() if k != "cohort"} for line in lines]
    return {"lines": shown, "num_restored": num_restored, "failure": None, "done": is_finished}
