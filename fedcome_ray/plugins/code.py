"""What a user's module is written in: its file, and those of the user's own that it imports.

Imports are read from the text and not noticed as they happen: so those inside of functions count
too, and what other plugins have imported before does not.
"""

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

from fedcome_ray.errors import UserError
from fedcome_ray.registry import Code

DIGEST = "__fedcome_digest__"  # of a module that is in use
LIBRARIES = {"site-packages", "dist-packages"}
STANDARD = Path(sysconfig.get_path("stdlib"))


def code_of(module: ModuleType, folder: Path | None = None) -> Code:
    """The code of a module; `folder` is that of a file which is not part of a package.

    What it imports is its author's unless it is installed or comes with Python; of an installed
    package, that is the package itself.
    """
    spec = module.__spec__
    text = _text(spec) if spec is not None else None
    if spec is None or text is None:
        raise UserError("its code cannot be read, so nothing could tell when it is changed")
    package = "" if folder else _top(spec.name)
    imported, seen, waiting = {}, {spec.name}, [(spec, text)]
    while waiting:
        for name in _imported(*waiting.pop()):
            found = None if name in seen else _find(name, package, folder)
            seen.add(name)
            own = _text(found) if found is not None else None
            if found is not None and own is not None:
                waiting.append((found, own))
                imported[_path(found)] = own
                _check_is_in_use(name, own)
    stem = spec.name.rpartition(".")[2] if folder is None else Path(str(spec.origin)).stem
    return Code(stem, text, imported)


def is_own(spec: ModuleSpec | None, package: str = "") -> bool:
    """Whether a module is its author's, neither ours nor installed, but for this package."""
    if spec is None or _top(spec.name) == "fedcome_ray":
        return False
    places = [spec.origin] if spec.has_location else spec.submodule_search_locations
    paths = [Path(place) for place in places or () if place]
    is_installed = any(
        LIBRARIES.intersection(path.parts) or path.is_relative_to(STANDARD) for path in paths
    )
    return bool(paths) and (not is_installed or _top(spec.name) == package)


def _find(name: str, package: str, folder: Path | None) -> ModuleSpec | None:
    """The module of this name if it is the author's; None, too, if it is no module."""
    top = _top(name)
    if folder is not None:
        _check_is_free(top, folder)
    try:
        if not is_own(importlib.util.find_spec(top), package):
            return None  # without a look at its parts, which would import it
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a class in a module; a module that is not there
        return None


def _check_is_free(name: str, folder: Path) -> None:
    """Python knows one module of a name: that in the folder must not be hidden by another."""
    wanted = PathFinder.find_spec(name, [str(folder)])
    used = getattr(sys.modules.get(name), "__file__", None)
    if wanted is not None and wanted.has_location and used not in {None, wanted.origin}:
        raise UserError(
            f"it imports `{name}`, which is `{used}` here, not `{wanted.origin}`; rename that file"
        )


def _check_is_in_use(name: str, text: bytes) -> None:
    module = sys.modules.get(name)
    digest = hashlib.sha256(text).hexdigest()
    if module is not None and vars(module).setdefault(DIGEST, digest) != digest:
        raise UserError(f"`{name}` was edited since it was loaded; start Python anew")


def _text(spec: ModuleSpec) -> bytes | None:
    """None if it is a folder without `__init__.py`, or not written in Python."""
    loader: Any = spec.loader
    is_python = spec.has_location and str(spec.origin).endswith(".py")
    return bytes(loader.get_data(spec.origin)) if is_python else None


def _path(spec: ModuleSpec) -> str:
    parts = spec.name.replace(".", "/")
    return f"{parts}/__init__.py" if spec.submodule_search_locations is not None else f"{parts}.py"


def _imported(spec: ModuleSpec, text: bytes) -> Iterator[str]:
    """The names that a module imports, of which some may be no modules, with their packages."""
    for node in ast.walk(ast.parse(text, str(spec.origin))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _packages(alias.name)
        elif isinstance(node, ast.ImportFrom) and (spec.parent or not node.level):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), spec.parent)
            for alias in node.names:
                yield from _packages(f"{base}.{alias.name}")


def _packages(name: str) -> Iterator[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    return accumulate(name.split("."), "{}.{}".format)


def _top(name: str) -> str:
    return name.partition(".")[0]
