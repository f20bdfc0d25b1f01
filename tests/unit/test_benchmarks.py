"""The benchmarks still run: what they measure is not asserted, only that they can."""

from tests.benchmarks import consensus, engine, memory, start


def test_the_benchmark_of_the_sampler_runs() -> None:
    row = consensus.sampler_row(population=50, num_rounds=1)
    assert row["population"] == 50


def test_the_benchmark_of_the_engine_knows_its_variants() -> None:
    assert set(engine.VARIANTS) == {"products", "engine", "ray", "tuned", "dataloader"}


def test_the_benchmark_of_starts_runs() -> None:
    assert start.help_of("settings") > 0
    assert start.first_round("run", "--set", "rounds=1") > 0


def test_the_benchmark_of_memory_sees_its_own_process() -> None:
    first, last = memory.measure(num_shards=0, rounds=20)
    assert (first.rounds, last.rounds) == (2, 20)
    assert all(used.resident_bytes > 0 and used.open_files for used in last.processes.values())
    assert memory.table_of("in process", first, last).row_count == 1 + len(last.processes)
