"""Where the time of local training goes: `python -m tests.benchmarks.shares [--plot PNG]`.

By PyTorch's own profiler, whose bookkeeping makes short operations look longer than they are; of
dense models, which train in one piece of compiled code, by its matrix products measured alone.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from torch.profiler import ProfilerActivity, profile

from fedcome_ray.clients.shard import Shard
from fedcome_ray.methods.method import OnlyParams
from fedcome_ray.numerics.device import prepare_process
from tests.benchmarks.engine import cost_of
from tests.benchmarks.workloads import CIFAR10, FEMNIST, MNIST, Workload, products

KINDS = {  # by parts of the names of operations
    "matrix products": ("bmm", "::mm", "addmm"),
    "convolutions": ("convolution",),
    "pooling": ("max_pool", "fill_"),  # its backward pass begins with zeros
    "fetching inputs": ("index_select",),
}
REST, PYTHON = "the rest of a step", "Python and planning"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, help="where to draw them, as PNG")
    options = parser.parse_args()
    prepare_process()
    workloads = (MNIST, replace(FEMNIST, cohort_size=8), replace(CIFAR10, cohort_size=2))
    found = {workload.name: shares(workload) for workload in workloads}
    for name, parts in found.items():
        print(f"\n{name}")
        for kind, share in parts.items():
            print(f"  {kind:28}{share:6.1%}")
    if options.plot:
        draw(found, options.plot)


def shares(workload: Workload, rounds: int = 5) -> dict[str, float]:
    """Of the time of a round of local training."""
    shard, received = Shard(workload.trial, workload.population), OnlyParams(workload.start)
    cohort = tuple(range(workload.cohort_size))
    shard.train(received, cohort, 0)
    if shard.trainer.is_compiled:
        return dense_shares(workload, lambda: shard.train(received, cohort, 0))
    with profile(activities=[ProfilerActivity.CPU]) as record:
        begin = time.perf_counter()  # the profiler's clock
        for number in range(rounds):
            shard.train(received, cohort, number)
        total = time.perf_counter() - begin
    seconds: Counter[str] = Counter()
    for operation in record.key_averages():
        seconds[kind_of(operation.key)] += operation.self_cpu_time_total / 1e6
    seconds[PYTHON] = max(0.0, total - sum(seconds.values()))
    return {kind: seconds[kind] / total for kind in (*KINDS, REST, PYTHON)}


def dense_shares(workload: Workload, train: Callable[[], object]) -> dict[str, float]:
    alone = products(workload)
    alone()
    costs = [
        (cost_of(alone, time.process_time).cpu, cost_of(train, time.process_time).cpu)
        for _ in range(3)
    ]
    share = median(own / whole for own, whole in costs)
    return {**dict.fromkeys((*KINDS, REST, PYTHON), 0.0), "matrix products": share, REST: 1 - share}


def kind_of(operation: str) -> str:
    for kind, parts in KINDS.items():
        if any(part in operation for part in parts):
            return kind
    return REST


def draw(found: dict[str, dict[str, float]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 2.6))
    names, left = list(found), [0.0] * len(found)
    for kind in (*KINDS, REST, PYTHON):
        widths = [100 * parts[kind] for parts in found.values()]
        axes.barh(names, widths, left=left, label=kind)
        left = [one + other for one, other in zip(left, widths, strict=True)]
    axes.set(xlabel="% of the time of local training", xlim=(0, 100))
    axes.invert_yaxis()
    axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.45, 1.0), frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
