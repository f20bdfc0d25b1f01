"""The datasets on this machine: list, download, import, verify, show.

What is slow to import is imported by the command that needs it, so that `--help` answers at once.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
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
The published datasets mnist, cifar10, cifar100, femnist and shakespeare: what is there, how to get
it, how it is shared out. The datasets digits and synthetic need no files; of tables of your own,
`import` makes files that `npz:PATH` reads."""

EXAMPLES = """\
examples:
  python -m fedcome_ray.data list
  python -m fedcome_ray.data list --json
  python -m fedcome_ray.data download mnist cifar10
  python -m fedcome_ray.data import cifar10 --from cifar10.npz
  python -m fedcome_ray.data import femnist --from leaf/data/femnist/data
  python -m fedcome_ray.data import csv:patients.csv --client hospital --label outcome \\
      --test-share 0.2 --out patients.npz
  python -m fedcome_ray.data show npz:patients.npz
  python -m fedcome_ray.data verify
  python -m fedcome_ray.data show digits --set data.partition.name=dirichlet --out digits.png
"""

IMPORT = """\
Take a dataset that you have: a published one into the data folder, from arrays or LEAF's files, or
a table of your own into one file, which trials read as npz:PATH. What was read is shown, with what
looks like a mistake."""

IMPORT_EXAMPLES = """\
examples:
  python -m fedcome_ray.data import cifar10 --from cifar10.npz
  python -m fedcome_ray.data import shakespeare --from leaf/data/shakespeare/data
  python -m fedcome_ray.data import csv:patients.csv --client hospital --label outcome \\
      --drop patient_id --one-hot ward --normalise --test-share 0.2 --out patients.npz
  python -m fedcome_ray.data import csv:train.csv --test test.csv --label species --out plants.npz
  python -m fedcome_ray.data import hf:my_dataset --label label --out pictures.npz
  python -m fedcome_ray.run --set data.dataset=npz:pictures.npz --set data.partition.name=dirichlet
"""

WHAT_HELP = """\
mnist, cifar10, cifar100, femnist or shakespeare; csv:FILE, a table whose first row names the
columns; hf:PATH, a folder that Hugging Face's `save_to_disk` wrote, or Parquet"""

FROM_HELP = """\
an .npz file with x_train, y_train, x_test, y_test: images as bytes, in the published order;
femnist and shakespeare: also client_train and client_test, or else the folder with LEAF's train and
test"""

SET_HELP = "as in a grid, for instance data.num_clients=20; may be repeated"

CLIENTS_LISTED = 10
OWN = ("csv", "hf")
"""Kinds of tables that are a user's own."""
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

    command = add("import", import_dataset, "take a dataset that you have, also a table")
    command.description, command.epilog = IMPORT, IMPORT_EXAMPLES
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    _add_import_arguments(command)

    command = add("verify", verify, "read datasets completely and check them")
    command.add_argument("names", nargs="*", metavar="DATASET", help="default: all there are")

    command = add("show", show, "how a dataset is shared out: table, statistics, picture")
    command.add_argument("name", metavar="DATASET", help="also digits, synthetic and npz:PATH")
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=SET_HELP)
    command.add_argument("--out", type=Path, metavar="FILE.png", help="draw it into this file")


def _add_import_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="DATASET", help=WHAT_HELP)
    group = command.add_argument_group("of a published dataset")
    group.add_argument("--from", dest="origin", type=Path, metavar="PATH", help=FROM_HELP)

    group = command.add_argument_group("of a table of your own")
    group.add_argument("--out", type=Path, metavar="FILE.npz", help="the file to be written")
    group.add_argument(
        "--label", metavar="COLUMN", help="the labels: whole numbers from 0, or texts"
    )
    group.add_argument(
        "--client",
        metavar="COLUMN",
        help="whose row it is: numbers or texts (default: data.partition shares the rows out)",
    )
    group.add_argument("--test", type=Path, metavar="PATH", help="the test examples, like DATASET")
    group.add_argument("--split", metavar="COLUMN", help="a column that says `train` or `test`")
    group.add_argument(
        "--test-share",
        type=arguments.share,
        metavar="X",
        help="draw so much of each client's rows for tests",
    )
    group.add_argument(
        "--seed", type=arguments.natural_int, default=0, metavar="N", help="of this draw (0)"
    )
    group.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="not to be features")
    group.add_argument(
        "--one-hot",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help="a feature for each of its values",
    )
    group.add_argument(
        "--relabel", action="store_true", help="number the labels that there are from 0"
    )
    group.add_argument(
        "--normalise",
        action="store_true",
        help="each feature minus its mean, over its standard deviation, of the training examples",
    )
    group.add_argument(
        "--channels-last", action="store_true", help="pictures are height, width, channels"
    )
    group.add_argument(
        "--min-examples",
        type=arguments.positive_int,
        metavar="N",
        help="leave out clients with fewer training examples, or without test examples",
    )


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
    if state != "packed" or published.clients is None:
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
    """Pack a dataset that somebody has in another form, or make a file of a table."""
    from fedcome_ray.datasets.checks import path_of

    kind, colon, path = options.name.partition(":")
    if colon and kind in OWN:
        _import_own(kind, path_of(path), options)
    else:
        _import_published(options)


def _import_own(kind: str, path: Path, options: argparse.Namespace) -> None:
    from fedcome_ray.datasets import npz_files
    from fedcome_ray.datasets.own import contents, taking

    for given, option in ((options.label, "--label COLUMN"), (options.out, "--out FILE.npz")):
        if given is None:
            raise DataError(f"{options.name}: give {option}; see `import --help`")
    if options.origin is not None:
        raise DataError(f"--from: {options.name} says itself where it is from")
    if options.out.suffix != ".npz":
        raise DataError(f"--out: expected a name that ends with .npz, got `{options.out}`")
    wishes = {field.name: getattr(options, field.name) for field in fields(taking.Wishes)}
    taken = taking.take(kind, path, taking.Wishes(**wishes))
    seen = contents.of_arrays(path, taken.arrays)
    npz_files.write(options.out, taken.arrays)
    _print_contents(options.name, seen.table, taken.remarks + seen.warnings)
    OUT.print(
        f"written to {options.out}; use it with --set data.dataset=npz:{options.out}",
        soft_wrap=True,
    )


def _print_contents(title: str, rows: dict[str, str], warnings: Sequence[str]) -> None:
    table = Table("what", "contents", title=title, title_justify="left", show_header=False)
    for what, found in rows.items():
        table.add_row(what, found)
    OUT.print(table)
    for text in warnings:
        OUT.print(f"warning: {text}", soft_wrap=True)


def _import_published(options: argparse.Namespace) -> None:
    from fedcome_ray.datasets import sources
    from fedcome_ray.datasets.own.taking import Wishes

    (published,) = _with_files([options.name], but=[f"{kind}:PATH" for kind in OWN])
    if options.origin is None:
        raise DataError(f"{options.name}: give --from PATH; see `import --help`")
    for option in ("out", *(field.name for field in fields(Wishes))):
        if getattr(options, option):
            name = option.replace("_", "-")
            raise DataError(f"--{name}: for csv:FILE and hf:PATH, not for {options.name}")
    folder = sources.data_folder(options.data_dir)
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
    from fedcome_ray.datasets import Npz, load, overview
    from fedcome_ray.datasets.own import contents
    from fedcome_ray.experiments.settings import assign, parse_overrides
    from fedcome_ray.experiments.trial import parse_trial

    settings = {"data": {"dataset": options.name}}
    assign(settings, parse_overrides(options.set))
    config = parse_trial(settings).data
    if isinstance(config, Npz):
        _print_contents(config.dataset, *contents.of_file(config.path))
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


def _with_files(names: Sequence[str], but: Sequence[str] = ()) -> "list[Published]":
    """The datasets of these names, if they have files; `but` names what else is allowed."""
    from fedcome_ray.datasets import with_files

    known = with_files()
    for name in names:
        if name not in known:
            allowed = did_you_mean(name, [*known, *but])
            raise DataError(f"`{name}` is not a dataset with files; {allowed}")
    return [known[name] for name in names]


def _say(published: "Published", arrays: "PackedArrays", state: str) -> None:
    from fedcome_ray.datasets import packed

    OUT.print(f"{published.name}: {state}, {packed.summary(published, arrays)}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
