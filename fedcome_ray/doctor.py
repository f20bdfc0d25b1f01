"""Is this machine fit, or every node of a cluster: `python -m fedcome_ray.doctor`."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedcome_ray.console import arguments, paths
from fedcome_ray.console.exits import FAILED, OK, guarded
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.errors import UserError, without_passwords

if TYPE_CHECKING:
    from rich.console import Console

    from fedcome_ray.health.examination import Examination
    from fedcome_ray.health.verdicts import Verdict
    from fedcome_ray.storage.remote import Remote

EXAMPLES = """\
examples:
  python -m fedcome_ray.doctor
  python -m fedcome_ray.doctor --json
  python -m fedcome_ray.doctor --address 10.0.0.1:6379 --output /shared/results

Machines whose fingerprints are equal compute the same bits: compare that one line.
exit codes: 0 fit, perhaps with warnings, 1 something would make results wrong, 2 a wrong request
"""
MARKS = {"good": "[green]✓[/green]", "doubtful": "[yellow]![/yellow]", "bad": "[red]✗[/red]"}


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return guarded(lambda: _main(args))


def _parser() -> argparse.ArgumentParser:
    parser = arguments.command(
        "fedcome_ray.doctor",
        "Examine this machine, or with --address every node of a cluster.",
        EXAMPLES,
    )
    arguments.add_location_arguments(parser)
    parser.add_argument("--address", metavar="HOST:PORT", help="a Ray cluster to examine")
    parser.add_argument("--json", action="store_true", help="everything that was found, as JSON")
    return parser


def _main(args: argparse.Namespace) -> int:
    from rich.console import Console

    from fedcome_ray.health.verdicts import verdicts

    output, storage = paths.find_output(args.output)
    data_dir = paths.check_data_dir(args.data_dir)
    uri = paths.tracking_uri(args.tracking_uri, output)
    out = Console(file=sys.stdout, soft_wrap=True)
    with ThreadPoolExecutor() as pool, _waiting(Console(stderr=True)):
        opening = pool.submit(tracking_verdict, uri)
        nodes = examine_nodes(args.address, output, storage)
        lines = [*verdicts(nodes), datasets_verdict(data_dir), opening.result()]
    if args.json:
        found = {"nodes": nodes, "verdicts": [line._asdict() for line in lines]}
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        show(lines, out)
    return FAILED if any(line.mark == "bad" for line in lines) else OK


@contextmanager
def _waiting(console: "Console") -> Iterator[None]:
    with console.status("small trials, plain and portable ..."):
        yield


def examine_nodes(
    address: str | None, output: Path, storage: "Remote | None"
) -> "list[Examination]":
    from fedcome_ray.health.examination import examine

    if address is None:
        nodes = [examine(str(output))]
        if storage is not None:
            _note_problem(nodes, storage.check)
        return nodes
    from rich.console import Console

    from fedcome_ray.runtime.connection import check_address, connected, on_every_node
    from fedcome_ray.runtime.feasibility import check_folder, check_storage

    check_address(address)
    with connected(MachineOptions(address), Console(stderr=True)):
        nodes = on_every_node(examine, str(output))
        if storage is not None:
            _note_problem(nodes, storage.check)
            _note_problem(nodes, partial(check_storage, storage))
        else:
            there = next(some for some in (output, *output.parents) if some.is_dir())
            _note_problem(nodes, partial(check_folder, there))
        return nodes


def _note_problem(nodes: "list[Examination]", check: Callable[[], None]) -> None:
    """Say with the first node what is wrong with the output of all."""
    try:
        check()
    except UserError as error:
        nodes[0]["output_problem"] = str(error)


def datasets_verdict(data_dir: Path | None) -> "Verdict":
    from fedcome_ray import datasets
    from fedcome_ray.datasets import sources
    from fedcome_ray.health.verdicts import Verdict

    folder = sources.data_folder(data_dir)
    words = ", ".join(
        f"{name} {sources.state(published, folder)}"
        for name, published in datasets.with_files().items()
    )
    return Verdict("good", "datasets", f"{words} (in {folder}); digits and synthetic need no files")


def tracking_verdict(uri: str) -> "Verdict":
    from fedcome_ray.health.verdicts import Verdict
    from fedcome_ray.tracking.address import check_uri
    from fedcome_ray.tracking.store import try_open

    try:
        check_uri(uri)
        try_open(uri)
    except UserError as error:
        return Verdict("bad", "MLflow", str(error))
    return Verdict("good", "MLflow", f"opens {without_passwords(uri)}")


def show(lines: "list[Verdict]", out: "Console") -> None:
    from rich.markup import escape

    width = max(len(line.topic) for line in lines)
    for mark, topic, text in lines:
        out.print(f"{MARKS[mark]} {topic:{width}}  {escape(text)}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
