"""The datasets on this machine: list, download, import, verify, show.

What is slow to import is imported by the command that needs it, so that `--help` answers at once.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from fedcome_ray.errors import DataError, UserError, did_you_mean

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from fedcome_ray.datasets.packed import Arrays

DESCRIPTION = """\
The published datasets mnist, cifar10, cifar100 and femnist: what is there, how to get it, how it
is shared out. The datasets digits and synthetic need no files."""

EXAMPLES = """\
examples:
  python -m fedcome_ray.data list
  python -m fedcome_ray.data download mnist cifar10
  python -m fedcome_ray.data import cifar10 --from cifar10.npz
  python -m fedcome_ray.data import femnist --from leaf/data/femnist/data
  python -m fedcome_ray.data verify
  python -m fedcome_ray.data show digits --set data.partition.name=dirichlet
"""

IMPORT_HELP = """\
an .npz file with x_train, y_train, x_test, y_test: images as bytes, in the published order;
femnist: also client_train and client_test, or else the folder with LEAF's train and test"""

SET_HELP = "as in a grid, for instance data.num_clients=20; may be repeated"

CLIENTS_LISTED = 10

# What is printed contains paths, in which brackets mean nothing.
OUT = Console(markup=False, highlight=False)
ERR = Console(markup=False, highlight=False, stderr=True)

Command = Callable[[argparse.Namespace], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command; the exit code is 2 if it cannot be done as asked."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("fedcome_ray").setLevel(logging.INFO)
    try:
        options.run(options)
    except KeyboardInterrupt:
        return 130  # as the shell does; a download goes on when it is asked for again
    except UserError as error:
        ERR.print(str(error), soft_wrap=True)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fedcome_ray.data",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_commands(parser)
    return parser


def _add_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        where = "default: $FEDCOME_DATA_DIR, or else the platform's cache folder"
        command.add_argument("--data-dir", type=Path, metavar="FOLDER", help=where)
        return command

    add("list", list_datasets, "what is there")

    command = add("download", download, "get datasets from where torchvision gets them")
    command.add_argument("names", nargs="+", metavar="DATASET")

    command = add("import", import_dataset, "take a dataset from arrays or from LEAF's files")
    command.add_argument("name", metavar="DATASET")
    command.add_argument(
        "--from", dest="origin", type=Path, required=True, metavar="PATH", help=IMPORT_HELP
    )

    command = add("verify", verify, "read datasets completely and check them")
    command.add_argument("names", nargs="*", metavar="DATASET", help="default: all there are")

    command = add("show", show, "how a dataset is shared out: table, statistics, picture")
    command.add_argument("name", metavar="DATASET", help="also digits, synthetic and npz:PATH")
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=SET_HELP)
    command.add_argument("--out", type=Path, metavar="FILE.png", help="default: DATASET.png")


def list_datasets(options: argparse.Namespace) -> None:
    from fedcome_ray.datasets import BY_NAME, describe, packed, parse, sources

    folder = sources.data_folder(options.data_dir)
    table = Table("dataset", "files", title=f"datasets in {folder}")
    for column in ("training", "test", "classes", "clients"):
        table.add_column(column, justify="right")
    for name in BY_NAME:
        sizes, state = describe(parse(name)), sources.state(name, folder)
        if (name, state) == ("femnist", "packed"):  # which may have other writers than the paper's
            try:
                train, test = packed.load(name, folder)
                sizes = sizes._replace(
                    num_train=len(train.y),
                    num_test=len(test.y),
                    num_clients=1 + int(train.clients.max()),
                )
            except DataError:
                state = "damaged"
        numbers = (sizes.num_train, sizes.num_test, sizes.num_classes, sizes.num_clients)
        table.add_row(name, state, *(f"{number:,}" for number in numbers))
    OUT.print(table)


def download(options: argparse.Namespace) -> None:
    """Get the original files and pack them."""
    from rich.progress import DownloadColumn, Progress

    from fedcome_ray.datasets import originals, sources
    from fedcome_ray.datasets.download import fetch

    folder = sources.data_folder(options.data_dir)
    for name in _published(options.names):
        if sources.state(name, folder) != "missing":
            _say(name, sources.open_arrays(name, folder), f"already in {folder}")
            continue
        if name == "femnist":  # nobody offers it ready-made
            raise sources.missing(name, folder)
        with Progress(*Progress.get_default_columns(), DownloadColumn()) as bar:
            for file in originals.downloads(name, folder):
                task = bar.add_task(file.path.name, total=None)
                fetch(file, partial(_advance, bar, task))
        _say(name, sources.open_arrays(name, folder), f"ready in {folder}")


def _advance(bar: "Progress", task: "TaskID", here: int, total: int) -> None:
    bar.update(task, completed=here, total=total or None)


def import_dataset(options: argparse.Namespace) -> None:
    """Pack a dataset that somebody has in another form."""
    from fedcome_ray.datasets import sources

    folder = sources.data_folder(options.data_dir)
    (name,) = _published([options.name])
    _say(name, sources.import_arrays(name, options.origin, folder), f"packed in {folder}")
    if name == "cifar100":
        OUT.print("cifar100: the sizes are right; no checksum of its arrays is known")


def verify(options: argparse.Namespace) -> None:
    """Read packed files completely; original files are checked as they are packed."""
    from fedcome_ray.datasets import packed, sources
    from fedcome_ray.datasets.published import FACTS

    folder = sources.data_folder(options.data_dir)
    names = _published(options.names) or [
        name for name in FACTS if sources.state(name, folder) != "missing"
    ]
    if not names:
        raise DataError(f"there are no datasets in {folder}; get one with `download` or `import`")
    problems = []
    for name in names:
        is_packed = sources.state(name, folder) == "packed"
        check = packed.verify if is_packed else sources.open_arrays
        try:
            _say(name, check(name, folder), "good")
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise DataError("\n".join(problems))


def show(options: argparse.Namespace) -> None:
    """Print who has what, and draw it."""
    from fedcome_ray.datasets import load, overview
    from fedcome_ray.experiments.settings import assign, parse_overrides
    from fedcome_ray.experiments.trial import parse_trial

    settings = {"data": {"dataset": options.name}}
    assign(settings, parse_overrides(options.set))
    config = parse_trial(settings).data
    population = load(config, options.data_dir)
    counts = overview.label_counts(population.train, population.num_classes)

    title = overview.title(config)
    table = Table("client", "training", "test", "largest classes")
    for client, own in enumerate(counts[:CLIENTS_LISTED]):
        sizes = (client, own.sum(), population.test.sizes[client])
        table.add_row(*map(str, sizes), overview.largest_classes(own))
    if len(counts) > CLIENTS_LISTED:
        table.caption = f"and {len(counts) - CLIENTS_LISTED:,} more clients"
    summary = Table("statistic", "value", show_header=False)
    for name, value in overview.statistics(counts, population.test.sizes).items():
        summary.add_row(name, value)
    path = options.out or Path(f"{Path(config.dataset.removeprefix('npz:')).stem}.png")
    overview.draw(counts, title, path)
    OUT.print(title, table, summary, f"picture: {path}", soft_wrap=True)


def _published(names: Sequence[str]) -> list[str]:
    """The names, if they are those of datasets with files."""
    from fedcome_ray.datasets.published import FACTS

    for name in names:
        if name not in FACTS:
            raise DataError(f"`{name}` is not a dataset with files; {did_you_mean(name, FACTS)}")
    return list(names)


def _say(name: str, arrays: "Arrays", state: str) -> None:
    from fedcome_ray.datasets import sources

    OUT.print(f"{name}: {state}, {sources.summary(name, arrays)}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
