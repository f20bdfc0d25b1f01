"""Draw tables, figures, claims and a report: `python -m fedcome_ray.report --grid NAME`.

In a checkout, `python -m analysis` is the same.
"""

import argparse
import sys

from fedcome_ray.console import arguments, exits, paths
from fedcome_ray.storage.working_copy import WorkingCopy

FORMATS = ("md", "csv", "tex", "html")
EXAMPLES = """\
examples:
  python -m fedcome_ray.report --grid all
  python -m fedcome_ray.report --grid partial_participation --format md,tex
  python -m fedcome_ray.report --grid all --output results --tracking-uri http://127.0.0.1:5000
  python -m fedcome_ray.report --grid sensitivity --profile paper --at best

exit codes: 0 written, 2 the request was wrong or the store cannot be read
"""


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return exits.guarded(lambda: _main(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fedcome_ray.report",
        description="The paper's tables and figures beside ours, and a verdict on its claims, "
        "drawn from what MLflow holds.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_version(parser)
    parser.add_argument(
        "--grid", required=True, metavar="NAME", help="a grid in the store, or `all`"
    )
    arguments.add_output_argument(parser, "; what is drawn goes to its folder `analysis`")
    parser.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow store (default: an SQLite file in the output folder)",
    )
    parser.add_argument(
        "--format",
        type=_formats,
        default=FORMATS,
        metavar="LIST",
        help=f"of {','.join(FORMATS)} (default: all); html and md are the report",
    )
    parser.add_argument(
        "--at",
        choices=["last", "best", "tail"],
        default="last",
        help="what tables compare: the last round (default), the best, the mean of the last tenth",
    )
    parser.add_argument(
        "--profile", help="the profile to draw (default: the largest that has a finished trial)"
    )
    parser.add_argument(
        "--no-log",
        action="store_true",
        help="do not log the results to the newest launch in MLflow",
    )
    return parser


def _formats(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = set(chosen) - set(FORMATS)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown format `{', '.join(sorted(unknown))}`; allowed: {', '.join(FORMATS)}"
        )
    return chosen


def _main(args: argparse.Namespace) -> int:
    from . import publish, results  # pandas and MLflow take seconds to import

    results_folder, storage = found = paths.find_output(args.output)
    if args.tracking_uri is None:
        paths.check_store(found)
    uri = paths.tracking_uri(args.tracking_uri, results_folder)
    client = results.connect(uri)
    stored = results.stored_grids(client)
    chosen = {name: stored[name] for name in results.choose_grids(args.grid, stored)}
    output = paths.check_output(results_folder / "analysis")
    what = (args.grid, chosen, output, args.format, args.at, args.profile)
    request = publish.Request(uri, *what, references=stored.get("references"))
    for line in publish.publish(client, request, log=not args.no_log):
        print(line)
    if storage is not None:
        WorkingCopy(storage, results_folder).push("analysis")
        print(f"kept in {storage.address}/analysis")
    return exits.OK


if __name__ == "__main__":
    sys.exit(main())
