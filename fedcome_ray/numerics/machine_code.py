"""Functions that are compiled once on a machine, and from then on only loaded.

They are written for Numba, in modules that nothing else imports: importing Numba takes a third of a
second and 60 MB, in every process that trains. What it compiles is kept as an object file, which
LLVM's loader links into a process in hundredths of a second.
"""

import ctypes
import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from fedcome_ray.numerics.environment import is_portable

BYTES = ctypes.POINTER(ctypes.c_uint8)
INTEGERS = ctypes.POINTER(ctypes.c_int64)
FLOATS = ctypes.POINTER(ctypes.c_float)
DOUBLES = ctypes.POINTER(ctypes.c_double)
WORDS = ctypes.POINTER(ctypes.c_uint64)
INTEGER, FLOAT, WORD = ctypes.c_int64, ctypes.c_float, ctypes.c_uint64
_DIGEST_SIZE = hashlib.sha256().digest_size

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Function:
    """A function of a module that is written for Numba; it returns nothing."""

    module: str
    name: str
    arguments: tuple[Any, ...]  # of the types above
    uses: tuple[str, ...] = ()  # other modules whose code becomes part of it

    @property
    def file(self) -> Path:
        """Where its object file is kept; what decides about its contents is in the name."""
        sources = [_source(module) for module in (self.module, *self.uses, __name__)]
        tools = [f"{name} {version(name)}" for name in ("llvmlite", "numba")]
        parts = [self.name, *processor(), *tools, *sources]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return user_cache_path("fedcome_ray") / "machine_code" / f"{self.name}-{digest[:32]}.o"

    def is_compiled(self) -> bool:
        """Whether it is on disk."""
        return _kept(self.file) is not None

    def __call__(self, *arguments: float) -> None:
        """Call it; pointers are given as addresses."""
        _loaded(self)(*arguments)


@cache
def _loaded(function: Function) -> Callable[..., None]:
    code = _kept(function.file)
    if code is None:
        code = compile_once(function)
    return _callable(function, _linker().link(code, function.name))


def _kept(file: Path) -> bytes | None:
    """An object file as it was written, None if it is not there or something happened to it."""
    try:
        contents = file.read_bytes()
    except OSError:
        return None
    digest, code = contents[:_DIGEST_SIZE], contents[_DIGEST_SIZE:]
    return code if _digest(code) == digest else None


def compile_once(function: Function) -> bytes:
    """Compile a function and keep the result; other processes that need it wait for that."""
    file = function.file
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            code = _kept(file)
            if code is None:
                code = _compile(function)
                with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
                    part = Path(scratch) / file.name
                    part.write_bytes(_digest(code) + code)
                    part.replace(file)
    except OSError as error:
        log.warning("compiled code cannot be kept in %s: %s", file.parent, error)
        code = _compile(function)
    return code


def _digest(code: bytes) -> bytes:
    return hashlib.sha256(code).digest()


def _callable(function: Function, address: int) -> Callable[..., None]:
    """Numba's functions take places for a result and for an error first, and return a status."""
    pointer = ctypes.c_void_p
    arguments = (pointer if hasattr(kind, "contents") else kind for kind in function.arguments)
    native = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, *arguments)(address)

    def call(*given: float) -> None:
        result, error = ctypes.c_void_p(), ctypes.c_void_p()
        status = native(ctypes.addressof(result), ctypes.addressof(error), *given)
        assert status == 0, f"{function.name} ended with status {status}"

    return call


def _compile(function: Function) -> bytes:
    """The object file of a function, with nothing in it that only Numba could link."""
    from llvmlite import binding
    from numba import cfunc, types
    from numba.core.typing.ctypes_utils import from_ctypes

    signature = types.void(*map(from_ctypes, function.arguments))
    written = getattr(import_module(function.module), function.name)
    with _unoptimised():
        compiled = cfunc(signature, error_model="numpy")(written)
    module = binding.parse_assembly(compiled.inspect_llvm())
    native_name = compiled.native_name.removeprefix("cfunc.")  # behind the one that handles errors
    for one in module.functions:
        if one.name == native_name:
            one.name = function.name
        elif not one.is_declaration:
            one.linkage = "internal"
    machine = _target_machine()
    options = binding.create_pipeline_tuning_options(speed_level=3)
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    code: bytes = machine.emit_object(module)
    return code


@contextmanager
def _unoptimised() -> Iterator[None]:
    """Numba would optimise a function again in each that calls it, which takes twice as long as to
    optimise all of them together.
    """
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    config: Any = import_module("numba.core.config")
    with global_compiler_lock:  # what users compile in this process is compiled as usual
        _ = cpu_target.target_context  # made at first sight, by what is configured then
        usual = config.OPT
        config.OPT = type(usual)(0)
        try:
            yield
        finally:
            config.OPT = usual


def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None, module
    return Path(str(spec.origin)).read_text()


def processor() -> tuple[str, str]:
    """Name and features of the processor that is compiled for.

    What Numba is held to by `--portable` does not hold us: sums have one order on every processor.
    """
    from llvmlite import binding

    wanted = {} if is_portable() else os.environ
    name, features = (wanted.get(f"NUMBA_CPU_{part}") for part in ("NAME", "FEATURES"))
    return (
        name or binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten() if features is None else features,
    )


def _target_machine() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    name, features = processor()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=name, features=features, opt=3, jit=True)


class _Linker:
    """Links object files into this process, and keeps what it has linked."""

    def __init__(self) -> None:
        from llvmlite import binding

        machine = _target_machine()
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        self._object_file = binding.ObjectFileRef.from_data

    def link(self, code: bytes, name: str) -> int:
        self._engine.add_object_file(self._object_file(code))
        self._engine.finalize_object()
        return int(self._engine.get_function_address(name))


@cache
def _linker() -> _Linker:
    return _Linker()
