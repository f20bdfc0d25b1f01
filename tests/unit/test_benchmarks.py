"""The benchmarks still run: what they measure is not asserted, only that they can."""

import pytest

from tests.benchmarks import consensus, engine, memory, scale, scale_model, start


def test_the_benchmark_of_the_sampler_runs() -> None:
    row = consensus.sampler_row(population=50, num_rounds=1)
    assert row["population"] == 50


def test_the_benchmark_of_the_engine_knows_its_variants() -> None:
    assert set(engine.VARIANTS) == {"products", "library", "engine", "ray", "tuned", "dataloader"}


def test_the_benchmark_of_starts_runs() -> None:
    assert start.help_of("settings") > 0
    assert start.first_round("run", "--set", "rounds=1") > 0


def test_the_benchmark_of_memory_sees_its_own_process() -> None:
    first, last = memory.measure(num_shards=0, rounds=20)
    assert (first.rounds, last.rounds) == (2, 20)
    assert all(used.resident_bytes > 0 and used.open_files for used in last.processes.values())
    assert memory.table_of("in process", first, last).row_count == 1 + len(last.processes)


def test_the_benchmark_of_scale_runs() -> None:
    case = scale.Case(population=30, cohort=6, shards=2, evaluates=True)
    cost = scale.measured_apart(case)
    assert cost.bytes_up == scale_model.bytes_up(scale_model.Size.of(case, cost))
    assert cost.bytes_down > 2 * 4 * cost.dim
    assert min(cost.server_peak, cost.shard_peak) > 1e8
    assert scale.table_of({case: cost}).row_count == 1


def test_the_model_of_scale_finds_the_prices_that_measurements_were_made_with() -> None:
    prices = scale_model.Prices(
        {name: 10.0**-place for place, name in enumerate(scale_model.SHARD_TERMS, 2)},
        {name: 10.0**-place for place, name in enumerate(scale_model.SERVER_TERMS, 2)},
    )
    nothing = scale.Cost(610, 3, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1, 1, None)
    made = {}
    for case in (*scale.CASES, *scale.UNSEEN):
        empty = nothing._replace(dim=61 * (case.hidden + 10))
        size = scale_model.Size.of(case, empty)
        cpu = {"shard_cpu": prices.shards(size), "server_cpu": prices.of_server(size)}
        made[case] = empty._replace(**cpu)
    found = scale_model.fit({case: made[case] for case in scale.CASES})
    unseen = {case: made[case] for case in scale.UNSEEN}
    assert max(map(abs, scale_model.errors(found, unseen).values())) < 1e-3
    assert found.shard["a client"] == pytest.approx(prices.shard["a client"], rel=1e-3)
