"""Users' modules: files, and what installed packages name as entry points, imported once."""

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fedcome_ray.errors import UserError
from fedcome_ray.plugins.code import code_of, is_own
from fedcome_ray.plugins.watch import words
from fedcome_ray.registry import Code

GROUP = "fedcome_ray.plugins"
CODE = "__fedcome_code__"


class Plugin(NamedTuple):
    """A user's module."""

    origin: str
    """Where it comes from, for people."""
    module: ModuleType
    code: Code


def sources(files: Iterable[str]) -> Iterator[Callable[[], Plugin]]:
    """What imports the modules of installed entry points, and of these files, one by one."""
    for point in entry_points(group=GROUP):
        yield partial(_import_point, point)
    for file in files:
        yield partial(_import_file, Path(file), f"--plugin {file}")


def _import_point(point: EntryPoint) -> Plugin:
    origin = f"entry point `{point.name} = {point.value}`"
    module = _run(point.load, origin)
    if not isinstance(module, ModuleType):
        raise UserError(f"{origin}: must name a module, got `{module}`")
    return Plugin(origin, module, _run(lambda: _code(module), origin))


def _import_file(file: Path, origin: str) -> Plugin:
    if not file.is_file():
        raise UserError(f"{origin}: there is no such file")
    path = file.resolve()
    # A name that is the same in every process, so that they can send each other its states.
    name = f"fedcome_ray_plugin_{path.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None:  # not again: classes of a second copy would not be those of the first
        if loaded.__file__ != str(path):
            raise UserError(f"{origin}: `{loaded.__file__}` has the same name; rename one of them")
        return Plugin(origin, loaded, _run(lambda: _code(loaded, path.parent), origin))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{origin}: not a Python file, its name must end in `.py`")
    module, execute = importlib.util.module_from_spec(spec), spec.loader.exec_module
    sys.modules[name] = module  # before it runs, as `import` does: some decorators look for it
    with _first_on_path(path.parent):
        _run(lambda: execute(module), origin, str(path))
        code = _run(lambda: _code(module, path.parent), origin)
    return Plugin(origin, module, code)


def _code(module: ModuleType, folder: Path | None = None) -> Code:
    """The code of a module in use, which must be what it was."""
    found = code_of(module, folder)
    known: Code = vars(module).setdefault(CODE, found)
    if known.digest != found.digest:
        raise UserError("was edited since it was loaded; start Python anew")
    return known


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """A file finds what lies beside it, as a script does; later, what libraries import is first."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


@contextmanager
def all_or_nothing() -> Iterator[None]:
    """Forget the author's modules if one of them fails: they will be corrected and run again."""
    before = set(sys.modules)
    try:
        yield
    except UserError:
        for name in set(sys.modules) - before:
            if is_own(sys.modules[name].__spec__):
                del sys.modules[name]
        raise


def _run(code: Callable[[], Any], origin: str, file: str | None = None) -> Any:
    """Run a user's code; what it raises becomes one line that says what and where."""
    try:
        return code()
    except KeyboardInterrupt:
        raise
    except UserError as error:
        raise UserError(f"{origin}: {error}") from error
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise UserError(f"{origin}: SyntaxError: {error.msg} ({where})") from error
    except BaseException as error:  # also `sys.exit`
        frames = traceback.extract_tb(error.__traceback__)
        frame = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
        where = f"{frame.filename}, line {frame.lineno}"
        raise UserError(f"{origin}: {words(error)} ({where})") from error
