"""Large modules, imported quickly."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def large_modules() -> Iterator[None]:
    """Let Python not look for garbage while large modules are imported.

    What they define stays. Python would look through all of it again and again, for a quarter of
    the time that PyTorch, Ray and Tune take to be imported.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        if not gc.get_freeze_count():  # else it is not ours to end
            gc.freeze()  # makes all that is here old, without a look at it,
            gc.unfreeze()  # and visible again to who asks for what refers to what
