"""Runs one peer, in the environment of that peer.

python -m tests.benchmarks.peers.adapter MODULE FORM WORKLOAD FILE
"""

import sys
from importlib import import_module
from pathlib import Path

from tests.benchmarks.peers.task import WORKLOADS, Task


def main() -> None:
    module, form, workload, path = sys.argv[1:]
    # Not as a script: what is pickled for other processes must be found there by its name.
    import_module(f"tests.benchmarks.peers.{module}").run(
        Task(WORKLOADS[workload], Path(path), form)
    )


if __name__ == "__main__":
    main()
