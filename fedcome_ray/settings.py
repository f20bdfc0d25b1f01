"""All settings of a trial, for people and for editors: `python -m fedcome_ray.settings`."""

import argparse
import json
import sys

from fedcome_ray.console import arguments
from fedcome_ray.console.exits import OK, guarded

EXAMPLES = """\
examples:
  python -m fedcome_ray.settings
  python -m fedcome_ray.settings --plugin momentum.py
  python -m fedcome_ray.settings --schema > grid.schema.json

An editor that knows YAML completes and checks a grid file whose first line is
  # yaml-language-server: $schema=grid.schema.json
"""


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return guarded(lambda: _main(args))


def _parser() -> argparse.ArgumentParser:
    parser = arguments.command(
        "fedcome_ray.settings",
        "List the settings of a trial, as Markdown: names, values, defaults, meanings.",
        EXAMPLES,
    )
    parser.add_argument(
        "--schema", action="store_true", help="the JSON schema of grid files instead"
    )
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE",
        help="a Python file with methods, models, samplers or datasets of your own, to be listed "
        "too; may be repeated",
    )
    return parser


def _main(args: argparse.Namespace) -> int:
    from fedcome_ray.plugins import load_plugins

    load_plugins(args.plugin)
    sys.stdout.write(schema() if args.schema else reference())
    return OK


def reference() -> str:
    """The page `docs/settings.md`."""
    from fedcome_ray.experiments.reference import markdown

    return markdown()


def schema() -> str:
    """The file `docs/grid.schema.json`."""
    from fedcome_ray.experiments.schema import grid_schema
    from fedcome_ray.launch.search import Range

    return json.dumps(grid_schema(Range), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
