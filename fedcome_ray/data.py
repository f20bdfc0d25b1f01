"""The datasets on this machine: list, download, import, verify, show.

What is slow to import is imported by the command that needs it, so that `--help` answers at once.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from fedcome_ray.console import arguments, exits
from fedcome_ray.console.output import Talk
from fedcome_ray.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from fedcome_ray.datasets import Dataset, Description
    from fedcome_ray.datasets.packed import PackedArrays
    from fedcome_ray.datasets.published import Published

DESCRIPTION = """\
The published datasets mnist, cifar10, cifar100 and femnist: what is there, how to get it, how it
is shared out. The datasets digits and synthetic need no files."""

EXAMPLES = """\
examples:
  python -m fedcome_ray.data list
  python -m fedcome_ray.data list --json
  python -m fedcome_ray.data download mnist cifar10
  python -m fedcome_ray.data import cifar10 --from cifar10.npz
  python -m fedcome_ray.data import femnist --from leaf/data/femnist/data
  python -m fedcome_ray.data verify
  python -m fedcome_ray.data show digits --set data.partition.name=dirichlet --out digits.png
"""

IMPORT_HELP = """\
an .npz file with x_train, y_train, x_test, y_test: images as bytes, in the published order;
femnist: also client_train and client_test, or else the folder with LEAF's train and test"""

SET_HELP = "as in a grid, for instance data.num_clients=20; may be repeated"

CLIENTS_LISTED = 10
SIZES = ("training", "test", "classes", "clients")

# What is printed contains paths, in which brackets mean nothing.
OUT = Console(markup=False, highlight=False)

Command = Callable[[argparse.Namespace], None]


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    return exits.guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    logging.basicConfig(format="%(message)s")
    logging.getLogger("fedcome_ray").setLevel(logging.INFO)
    options.run(options)
    return exits.OK


def _parser() -> argparse.ArgumentParser:
    parser = arguments.command("fedcome_ray.data", DESCRIPTION, EXAMPLES)
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

    command = add("list", list_datasets, "what is there")
    command.add_argument("--json", action="store_true", help="the same as JSON")

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
    command.add_argument("--out", type=Path, metavar="FILE.png", help="draw it into this file")


def list_datasets(options: argparse.Namespace) -> None:
    from fedcome_ray.datasets import REGISTRY, sources

    folder = sources.data_folder(options.data_dir)
    found = [
        _listed(name, dataset, folder) for name, dataset in REGISTRY.items() if not dataset.is_own
    ]
    if options.json:
        Talk(json=True).document({"folder": str(folder), "datasets": found})
        return
    table = Table("dataset", "files", title=f"datasets in {folder}")
    for column in SIZES:
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(one["dataset"], one["files"], *(f"{one[size]:,}" for size in SIZES))
    OUT.print(table)


def _listed(name: str, dataset: "Dataset", folder: Path) -> dict[str, Any]:
    state, sizes = _state_and_sizes(name, dataset, folder)
    numbers = (sizes.num_train, sizes.num_test, sizes.num_classes, sizes.num_clients)
    return {"dataset": name, "files": state, **dict(zip(SIZES, numbers, strict=True))}


def _state_and_sizes(name: str, dataset: "Dataset", folder: Path) -> "tuple[str, Description]":
    """What is there of a dataset; of packed writers, how many there really are."""
    from fedcome_ray.datasets import describe, packed, parse, sources

    expected, published = describe(parse(name)), dataset.published
    if published is None:
        return "none needed", expected
    state = sources.state(published, folder)
    if state != "packed" or published.num_writers is None:
        return state, expected
    try:
        return state, packed.description(published, packed.load(published, folder))
    except DataError:
        return "damaged", expected


def download(options: argparse.Namespace) -> None:
    """Get the original files and pack them."""
    from fedcome_ray.datasets import sources

    folder = sources.data_folder(options.data_dir)
    for published in _with_files(options.names):
        is_here = sources.state(published, folder) != "missing"
        if not is_here:
            _fetch(published, folder)
        arrays = sources.open_arrays(published, folder)
        _say(published, arrays, f"{'already' if is_here else 'ready'} in {folder}")


def _fetch(published: "Published", folder: Path) -> None:
    from rich.progress import DownloadColumn, Progress

    from fedcome_ray.datasets import sources
    from fedcome_ray.datasets.download import fetch

    if published.originals.downloads is None:
        raise sources.missing(published, folder)
    with Progress(*Progress.get_default_columns(), DownloadColumn()) as bar:
        for file in published.originals.downloads(folder):
            task = bar.add_task(file.path.name, total=None)
            fetch(file, partial(_advance, bar, task))


def _advance(bar: "Progress", task: "TaskID", here: int, total: int) -> None:
    bar.update(task, completed=here, total=total or None)


def import_dataset(options: argparse.Namespace) -> None:
    """Pack a dataset that somebody has in another form."""
    from fedcome_ray.datasets import sources

    folder = sources.data_folder(options.data_dir)
    (published,) = _with_files([options.name])
    arrays = sources.import_arrays(published, options.origin, folder)
    _say(published, arrays, f"packed in {folder}")
    if published.is_known_by_sizes_alone:
        OUT.print(f"{published.name}: the sizes are right; no checksum of its arrays is known")


def verify(options: argparse.Namespace) -> None:
    """Read packed files completely; original files are checked as they are packed."""
    from fedcome_ray.datasets import packed, sources

    folder = sources.data_folder(options.data_dir)
    chosen = _with_files(options.names) or _present(folder)
    if not chosen:
        raise DataError(f"there are no datasets in {folder}; get one with `download` or `import`")
    problems = []
    for published in chosen:
        is_packed = sources.state(published, folder) == "packed"
        check = packed.verify if is_packed else sources.open_arrays
        try:
            _say(published, check(published, folder), "good")
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise DataError("\n".join(problems))


def _present(folder: Path) -> "list[Published]":
    from fedcome_ray.datasets import sources, with_files

    return [some for some in with_files().values() if sources.state(some, folder) != "missing"]


def show(options: argparse.Namespace) -> None:
    """Print who has what, and draw it if there is a file to draw it into."""
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
    drawn = [f"picture: {options.out}"] if options.out is not None else []
    if drawn:
        overview.draw(counts, title, options.out)
    OUT.print(title, table, summary, *drawn, soft_wrap=True)


def _with_files(names: Sequence[str]) -> "list[Published]":
    """The datasets of these names, if they have files."""
    from fedcome_ray.datasets import with_files

    known = with_files()
    for name in names:
        if name not in known:
            raise DataError(f"`{name}` is not a dataset with files; {did_you_mean(name, known)}")
    return [known[name] for name in names]


def _say(published: "Published", arrays: "PackedArrays", state: str) -> None:
    from fedcome_ray.datasets import packed

    OUT.print(f"{published.name}: {state}, {packed.summary(published, arrays)}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
