"""Draw tables, figures, claims and a report: `python -m fedcome_ray.report --grid NAME`.

A wheel holds the analysis as `fedcome_ray.analysis`; in a checkout it is the folder `analysis`
beside the package. It is loaded under the first name from either place, and never as `analysis`,
which may be a module of the user's own.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

from fedcome_ray.console.exits import guarded
from fedcome_ray.errors import FedcomeError

ANALYSIS = "fedcome_ray.analysis"
CHECKOUT = Path(__file__).parents[1]


def main(argv: list[str] | None = None) -> int:
    return guarded(lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    if importlib.util.find_spec(ANALYSIS) is None:
        _load_from(CHECKOUT / "analysis")
    code: int = importlib.import_module(f"{ANALYSIS}.__main__").main(argv)
    return code


def _load_from(folder: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        ANALYSIS, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None or not folder.is_dir():
        raise FedcomeError(f"the analysis is neither installed nor in {folder}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[ANALYSIS] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    sys.exit(main())
