"""The same federation in process and on Ray actors: the same bits."""

import hashlib
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from fedcome_ray import datasets, methods
from fedcome_ray.datasets.population import Population
from fedcome_ray.errors import ShardError
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.runtime import lines, waiting
from fedcome_ray.runtime.feasibility import check_feasible
from fedcome_ray.runtime.nodes import find_nodes
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.pool import ShardPool
from fedcome_ray.runtime.populations import share
from fedcome_ray.runtime.shards import RayShards
from fedcome_ray.trials.folder import read_result, read_rounds
from fedcome_ray.trials.run import TrialRun

pytestmark = pytest.mark.ray

LOCAL = {"epochs": 2, "batch_size": 8, "lr": 0.1}


def trial_of(method: str, sampler: str = "random", **settings: Any) -> Trial:
    return parse_trial(
        {
            "data": {"dataset": "digits", "num_clients": 20},
            "local": LOCAL,
            "method": {"name": method},
            "sampler": {"name": sampler},
            "participation": 0.4,
            "rounds": 5,
            **settings,
        }
    )


@pytest.fixture(scope="module")
def population() -> Population:
    return datasets.load(trial_of("fedavg").data)


@pytest.fixture(scope="module")
def shared(cluster: Any, population: Population) -> Any:
    return share({"digits": population})["digits"]


@pytest.fixture(scope="module")
def pools(cluster: Any) -> Any:
    """Pools of one, two and three shards, started once; of two, one of them in this process."""
    pools: dict[Any, Any] = {n: ShardPool(TrialPlace(n, cpus_per_shard=0.1)) for n in (1, 2, 3)}
    return {**pools, "joint": ShardPool(TrialPlace(2, cpus_per_shard=0.1, is_joint=True))}


def test_shards_import_only_what_they_compute_with(pools: Any) -> None:
    def loaded(_: Any) -> set[str]:
        import sys

        return set(sys.modules)

    (found,) = ray.get([actor.__ray_call__.remote(loaded) for actor in pools[1].actors])
    assert {"torch", "fedcome_ray.clients.shard"} <= found
    assert not {"mlflow", "numba", "pandas", "ray.tune", "scipy"} & found


def run_to_the_end(run: TrialRun) -> tuple[str, list[dict[str, float]]]:
    while not run.is_finished:
        run.advance(60)
    run.finish()
    result = read_result(run.folder)
    assert result is not None
    return result.params_sha256, [line.metrics for line in read_rounds(run.folder)]


def comparable(metrics: list[dict[str, float]]) -> list[dict[str, float]]:
    """Without what measures time."""
    return [{k: v for k, v in line.items() if "seconds" not in k} for line in metrics]


@pytest.mark.parametrize(
    ("method", "sampler"),
    [
        *product(["fedavg", "scaffold", "fedfv", "fedcome"], ["random", "similarity"]),
        *product(methods.REFERENCES, ["random"]),
    ],
)
def test_the_number_of_shards_does_not_change_a_bit(
    method: str,
    sampler: str,
    cluster: Any,
    population: Population,
    shared: Any,
    pools: Any,
    tmp_path: Path,
) -> None:
    trial = trial_of(method, sampler)
    in_process = TrialRun(trial, population, LocalShards(trial, population), tmp_path / "local")
    digest, metrics = run_to_the_end(in_process)
    for layout, pool in pools.items():
        shards = RayShards(trial, shared, pool)
        run = TrialRun(trial, population, shards, tmp_path / str(layout))
        on_ray, metrics_on_ray = run_to_the_end(run)
        assert on_ray == digest
        assert comparable(metrics_on_ray) == comparable(metrics)


def test_absent_clients_stragglers_and_personal_results_are_the_same_on_ray(
    cluster: Any, population: Population, shared: Any, pools: Any, tmp_path: Path
) -> None:
    trial = trial_of(
        "fednova",
        cohort_size=2,
        participation=None,
        rounds=8,
        eval_every=4,
        eval_personal_epochs=1,
        availability={"rate": 0.5, "straggler_rate": 0.5},
    )
    in_process = TrialRun(trial, population, LocalShards(trial, population), tmp_path / "local")
    digest, metrics = run_to_the_end(in_process)
    assert min(line["cohort/size"] for line in metrics[1:]) == 0
    run = TrialRun(trial, population, RayShards(trial, shared, pools[3]), tmp_path / "ray")
    on_ray, metrics_on_ray = run_to_the_end(run)
    assert on_ray == digest
    assert comparable(metrics_on_ray) == comparable(metrics)


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
@pytest.mark.parametrize("pool", [2, "joint"])
def test_shards_without_a_line_are_called_and_change_no_bit(
    method: str,
    pool: Any,
    cluster: Any,
    population: Population,
    shared: Any,
    pools: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As shards on other machines are."""
    trial = trial_of(method, eval_personal_epochs=1)
    usual = "Line" if lines.IS_POSSIBLE else "Called"
    with_lines = RayShards(trial, shared, pools[pool])
    first = TrialRun(trial, population, with_lines, tmp_path / "lines")
    expected = run_to_the_end(first)
    monkeypatch.setattr(lines, "IS_POSSIBLE", False)
    called = RayShards(trial, shared, pools[pool])
    found = run_to_the_end(TrialRun(trial, population, called, tmp_path / "calls"))
    for shards, kind in ((with_lines, usual), (called, "Called")):
        assert {type(other).__name__ for other in shards._others.values()} == {kind}
    assert found[0] == expected[0]
    assert comparable(found[1]) == comparable(expected[1])


def kill(actor: Any) -> None:
    """And wait for its end: Ray kills in the background, and a few rounds take no longer."""
    ray.kill(actor)
    with suppress(ray.exceptions.RayActorError):
        while True:
            ray.get(actor.__ray_ready__.remote())


def stop(actor: Any) -> None:
    """Let the process of an actor hang."""
    os.kill(ray.get(actor.__ray_call__.remote(lambda _: os.getpid())), signal.SIGSTOP)


def kill_while_it_is_asked(actor: Any) -> None:
    """Let it hang, and die when somebody has waited for it."""
    number = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    os.kill(number, signal.SIGSTOP)
    threading.Timer(1.0, os.kill, (number, signal.SIGKILL)).start()


def hold_up(actor: Any) -> None:
    """Let nothing be computed, while the process goes on to answer other calls."""
    ray.get(actor.__ray_call__.remote(lambda host: host._turn.acquire()))


@pytest.mark.parametrize(
    ("disturb", "method", "pool"),
    [
        *product([kill], ["fedavg", "scaffold", "local"], [2, "joint"]),
        *product([kill_while_it_is_asked], ["scaffold"], [2, "joint"]),
        (stop, "scaffold", 2),
        (hold_up, "scaffold", "joint"),
    ],
)
def test_a_shard_that_dies_or_hangs_does_not_change_a_bit(
    disturb: Callable[[Any], None],
    method: str,
    pool: Any,
    cluster: Any,
    population: Population,
    shared: Any,
    pools: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "LEAST_SECONDS", 1.0)  # ten hang
    trial = trial_of(method, rounds=6)
    undisturbed = TrialRun(trial, population, LocalShards(trial, population), tmp_path / "local")
    digest, metrics = run_to_the_end(undisturbed)

    shards = RayShards(trial, shared, pools[pool])
    run = TrialRun(trial, population, shards, tmp_path / "disturbed")
    for _ in range(3):
        run._add(run._next_round())
    run.checkpoint()
    run._add(run._next_round())  # to be repeated: the checkpoint does not know it
    disturb(pools[pool].actors[-1])
    on_ray, metrics_on_ray = run_to_the_end(run)

    assert run.recoveries >= 1
    assert on_ray == digest
    assert comparable(metrics_on_ray) == comparable(metrics)


@pytest.mark.parametrize("disturb", [stop, hold_up])
def test_a_shard_that_hangs_between_trials_is_replaced(
    disturb: Callable[[Any], None], cluster: Any, pools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LEAST_SECONDS", 0.2)
    pool = pools[3]
    pool.replace_dead()
    before = list(pool.actors)
    disturb(before[0])
    pool.replace_dead()
    assert pool.actors[0] != before[0]
    assert pool.actors[1:] == before[1:]


def test_a_pool_that_is_replaced_has_none_of_its_processes_left(cluster: Any, pools: Any) -> None:
    pool = pools[3]
    before = list(pool.actors)
    pool.replace_all()
    pool.replace_dead()  # asks at once: those that are being killed might still answer
    assert not set(pool.actors) & set(before)


def test_partitions_of_one_dataset_share_its_examples(cluster: Any) -> None:
    coarse, fine = (
        datasets.parse({"dataset": "digits", "partition": {"classes": classes}})
        for classes in (2, 4)
    )
    one = datasets.load(coarse)
    other = datasets.load(fine)._replace(train=one.train, test=one.test)
    shared = share({"one": one, "other": other})
    assert shared["one"].examples == shared["other"].examples
    fetched = shared["one"].fetch()
    assert np.array_equal(fetched.train.examples.x, one.train.examples.x)
    assert not fetched.train.examples.x.flags.owndata


def test_a_question_of_an_old_trial_is_not_answered_by_the_next(
    cluster: Any, shared: Any, pools: Any
) -> None:
    """A line may still bring one when its shard serves another trial already."""
    trial = trial_of("scaffold")
    RayShards(trial, shared, pools[1])

    def ask_by_an_old_line(host: Any) -> str:
        try:
            host._answer(object(), "evaluate", None, (), None)
        except ShardError as error:
            return str(error)
        return "answered"

    (said,) = ray.get([actor.__ray_call__.remote(ask_by_an_old_line) for actor in pools[1].actors])
    assert said == "this shard serves another trial"


def test_training_leaves_the_shared_population_as_it_was(
    cluster: Any, shared: Any, pools: Any, tmp_path: Path
) -> None:
    def digest() -> str:
        examples = shared.fetch().train.examples
        content = b"".join(np.ascontiguousarray(array).tobytes() for array in examples)
        return hashlib.sha256(content).hexdigest()

    before = digest()
    trial = trial_of("feddc")
    shards = RayShards(trial, shared, pools[2])
    run_to_the_end(TrialRun(trial, shards.population, shards, tmp_path))
    assert digest() == before


def test_an_error_of_a_client_keeps_its_type_and_names_the_clients(
    cluster: Any, population: Population, shared: Any, pools: Any, tmp_path: Path
) -> None:
    from fedcome_ray.errors import DivergenceError

    trial = trial_of("fedavg", local={**LOCAL, "lr": 1e30, "lr_decay": 1.0})
    shards = RayShards(trial, shared, pools[2])
    run = TrialRun(trial, population, shards, tmp_path)
    with pytest.raises(DivergenceError, match=r"round 1: the updates of clients \[\d"):
        run.advance(60)


def test_a_machine_that_no_node_can_host_is_refused(cluster: Any) -> None:
    from fedcome_ray.errors import UserError

    nodes = find_nodes().usable
    with pytest.raises(UserError, match=r"with 1000 CPU, .*room for 0"):
        check_feasible(TrialPlace(1, cpus_per_shard=1000), nodes)
    with pytest.raises(UserError, match=r"0\.25 GPU"):
        check_feasible(TrialPlace(1, cpus_per_shard=0.1, gpus_per_shard=0.25), nodes)
