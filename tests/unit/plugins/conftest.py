import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedcome_ray.plugins import code
from fedcome_ray.plugins.things import KINDS

Write = Callable[..., str]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Forget what a test has loaded."""
    registries = [kind.registry for kind in KINDS.values()]
    known, modules, path = [set(one) for one in registries], set(sys.modules), list(sys.path)
    yield
    for registry, names in zip(registries, known, strict=True):
        for name in set(registry) - names:
            del registry[name]
    for name in set(sys.modules) - modules:
        if code.is_own(sys.modules[name].__spec__):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "momentum.py") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write
