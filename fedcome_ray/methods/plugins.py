"""Methods that live outside this package: in a user's file or in an installed package."""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from fedcome_ray.errors import UserError

GROUP = "fedcome_ray.methods"
DIGEST = "__fedcome_digest__"


def modules(files: Iterable[str]) -> Iterator[tuple[str, ModuleType]]:
    """The modules of installed entry points and of these files, each with where it comes from."""
    for point in entry_points(group=GROUP):
        origin = f"entry point `{point.name} = {point.value}`"
        module = _run(point.load, origin)
        if not isinstance(module, ModuleType):
            raise UserError(f"{origin}: must name a module, got `{module}`")
        yield origin, module
    for file in files:
        origin = f"--plugin {file}"
        yield origin, _import_file(Path(file), origin)


def source(module: ModuleType) -> bytes | None:
    """A module's code, wherever it was loaded from; None if that cannot be read."""
    loader: Any = module.__spec__.loader if module.__spec__ else None
    if not hasattr(loader, "get_data") or module.__file__ is None:
        return None
    return bytes(loader.get_data(module.__file__))


def digest(code: bytes | None) -> str | None:
    """SHA-256 of a module's code, if that is known."""
    return None if code is None else hashlib.sha256(code).hexdigest()


def _import_file(path: Path, origin: str) -> ModuleType:
    if not path.is_file():
        raise UserError(f"{origin}: there is no such file")
    file = str(path.resolve())
    # A name that is the same in every process, so that they can send each other its states.
    name = f"fedcome_ray_plugin_{path.stem}"
    if name in sys.modules:
        loaded = sys.modules[name]
        if loaded.__file__ != file:
            raise UserError(f"{origin}: `{loaded.__file__}` has the same name; rename one of them")
        if digest(source(loaded)) != loaded.__dict__[DIGEST]:
            raise UserError(f"{origin}: was edited since it was loaded; start Python anew")
        return loaded  # not again: classes of a second copy would not be those of the first
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{origin}: not a Python file, its name must end in `.py`")
    module = importlib.util.module_from_spec(spec)
    execute = spec.loader.exec_module
    module.__dict__[DIGEST] = digest(
        source(module)
    )  # of the code that runs, whatever the file becomes
    sys.modules[name] = module  # before it runs, as `import` does: some decorators look for it
    try:
        _run(lambda: execute(module), origin, file)
    except UserError:
        del sys.modules[name]
        raise
    return module


def _run(code: Callable[[], Any], origin: str, file: str | None = None) -> Any:
    """Run a user's code; what it raises becomes one line that says what and where."""
    try:
        return code()
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise UserError(f"{origin}: SyntaxError: {error.msg} ({where})") from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        frame = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
        where = f"{frame.filename}, line {frame.lineno}"
        raise UserError(f"{origin}: {type(error).__name__}: {error} ({where})") from error
