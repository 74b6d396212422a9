"""Compile functions with Numba to assembly that does not need Python.

Numba generates the LLVM code of a C callback, and llvmlite compiles it to assembly for processors that this module
chooses. Both interfaces are public.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from opbridge.errors import BuildError
from opbridge.kernels.python_source import place

__all__ = ["Entry", "compile_entry", "processor", "versions"]

_OPTIONS = {"error_model": "numpy"}
# Symbols that do not exist in a process without Python, and the constructs for which Numba uses them.
_NEEDS_PYTHON = (
    (r"NRT_(?!Free)", "allocates memory, as whole-array expressions, np.empty, lists and texts do"),
    (r"PySys_|PyObject_Str", "prints"),
    (r"numba_attempt_nocopy_reshape", "reshapes an array"),
    (r"numba_do_raise|numba_unpickle|PyErr_", "may raise an exception, itself or in what it calls, as x[:] = y does"),
    (r"_?Py|_?numba_|NRT_", "calls {name} of Python's runtime"),
)
_DYNAMIC = "numba.dynamic.globals"
# Reference counting of memory that Numba's runtime allocated, which does not occur here.
_COUNTING = re.compile(r"^define [^\n]*@(NRT_incref|NRT_decref)\(.*?^}$", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A function to compile.

    Attributes:
        symbol: The function's name in the assembly.
        source: Python source that defines ``entry``.
        parameters: The type of each parameter: a dtype, or a dtype with ``*`` for a pointer.
        returns: The result's dtype; empty if there is none.
    """

    symbol: str
    source: str
    parameters: tuple[str, ...]
    returns: str


def versions() -> str:
    """The versions of Numba and llvmlite.

    Raises:
        BuildError: Numba is not installed, or broken.
    """
    return f"{_numba().__version__} {_llvm().llvm_version_info}"


def processor(native: bool) -> str:
    """The versions and target processors, on which the assembly depends.

    Raises:
        BuildError: Numba is not installed, or broken.
    """
    return f"{versions()} {_targets(native)}"


def _numba() -> Any:
    try:
        import numba
    except ImportError as error:
        raise BuildError(
            "A kernel that is written in Python is compiled by Numba, which "
            f"{'is not installed' if isinstance(error, ModuleNotFoundError) else f'does not start: {error}'}.",
            fix='pip install "numba>=0.62.0"',
        ) from error
    return numba


@functools.cache
def _llvm() -> Any:
    _numba()
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def _targets(native: bool) -> tuple[tuple[str, str, str], ...]:
    """The symbols' suffix, the processor and its features, for each target processor."""
    llvm = _llvm()
    if native:
        return (("", llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()),)
    if llvm.get_process_triple().startswith("x86_64"):
        return (("", "x86-64", ""), ("_avx2", "x86-64", "+avx2"))
    return (("", "generic", ""),)


def compile_entry(entry: Entry, function: FunctionType, kernel: FunctionType, *, native: bool) -> str:
    """Compile a function that calls a kernel.

    Args:
        entry: The function to compile. Its source may use ``kernel`` and ``carray``.
        function: The author's function, for messages.
        kernel: The function that is called.
        native: Compile for this machine's processor only; otherwise x86-64 gets a second symbol with suffix ``_avx2``.

    Raises:
        BuildError: Numba is missing, can't compile the function, or the result needs Python.
    """
    numba = _numba()
    scope: dict[str, Any] = {"carray": numba.carray, "kernel": numba.njit(**_OPTIONS)(kernel)}
    exec(entry.source, scope)
    returns = getattr(numba.types, entry.returns) if entry.returns else numba.types.void
    signature = returns(*(_numba_type(numba, parameter) for parameter in entry.parameters))
    with _plain_code(numba):
        try:
            callback = numba.cfunc(signature, **_OPTIONS)(scope["entry"])
        except Exception as error:  # Numba's errors have no common base class.
            raise _typing_error(error, function) from error
    code = callback.inspect_llvm()
    return "\n".join(
        _assembly(code, callback.native_name, f"{entry.symbol}{suffix}", cpu, features, function)
        for suffix, cpu, features in _targets(native)
    )


def _numba_type(numba: Any, written: str) -> Any:
    dtype = written.removesuffix("*")
    found = numba.types.boolean if dtype == "bool" else getattr(numba.types, dtype)
    return numba.types.CPointer(found) if written.endswith("*") else found


@contextlib.contextmanager
def _plain_code(numba: Any) -> Iterator[None]:
    """Turn off Numba's optimizations, which would unroll and vectorize loops for this machine.

    Numba's public configuration variables are set for the time of the compilation.
    """
    config = numba.config
    settings = {"LOOP_VECTORIZE": 0, "SLP_VECTORIZE": 0, "OPT": type(config.OPT)(0)}
    before = {name: getattr(config, name) for name in settings}
    vars(config).update(settings)
    try:
        yield
    finally:
        vars(config).update(before)


def _assembly(code: str, name: str, symbol: str, cpu: str, features: str, function: FunctionType) -> str:
    llvm = _llvm()
    module = llvm.parse_assembly(_COUNTING.sub(r"define void @\1(ptr %0) alwaysinline { ret void }", code))
    triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default"
    )
    module.triple, module.data_layout = triple, str(machine.target_data)
    for number, defined in enumerate([*module.functions, *module.global_variables]):
        if defined.name == name:
            defined.name, defined.linkage, defined.visibility = symbol, "external", "hidden"
        elif not defined.is_declaration:
            # Private functions can be inlined, and removed if they are not used.
            defined.linkage = "internal"
            if _DYNAMIC not in defined.name:
                defined.name = f"{symbol}.{number}"
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = tuning.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    _check_needs(module, function)
    return _with_own_labels(machine.emit_assembly(module), symbol)


def _check_needs(module: Any, function: FunctionType) -> None:
    """Raise BuildError for code that needs Python's runtime or an address of this process."""
    needed = [declared.name for declared in module.functions if declared.is_declaration]
    needed += [declared.name for declared in module.global_variables if declared.is_declaration]
    for pattern, what in _NEEDS_PYTHON:
        name = next((name for name in needed if re.match(pattern, name)), None)
        if name is not None:
            raise BuildError(
                f"{place(function)}: the kernel {function.__name__} {what.format(name=name)}, which needs Python.",
                fix="write loops over elements and slices of the arrays, and 'raise' in the kernel's own lines; or "
                "write the kernel in C++.",
            )
    if any(_DYNAMIC in variable.name for variable in module.global_variables):
        raise BuildError(
            f"{place(function)}: the kernel {function.__name__} uses an address of this process, of a large array or "
            "a function of ctypes.",
            fix="pass the array as an input; call functions that Numba compiles.",
        )


def _with_own_labels(assembly: str, symbol: str) -> str:
    """Add the symbol's name to local labels, since the C++ compiler uses the same numbering."""
    kept = [line for line in assembly.splitlines() if not line.lstrip().startswith((".file", ".ident"))]
    return re.sub(r"\.L(?=[A-Za-z_$])", f".L{symbol}_", "\n".join(kept)) + "\n"


def _typing_error(error: Exception, function: FunctionType) -> BuildError:
    """The error for Numba's message, with the line of the author's file."""
    # Numba may color its messages.
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    file = function.__code__.co_filename
    lines = [
        int(number)
        for named, number in re.findall(r'File "([^"]+)", line (\d+)', text)
        if Path(named).name == Path(file).name
    ]
    where = f"{file}:{lines[0]}" if lines else place(function)
    return BuildError(
        f"{where}: Numba can't compile the kernel {function.__name__}: {_reason(text.splitlines())}",
        fix="use what Numba compiles without Python (its documentation lists it), or write the kernel in C++.",
        details=text,
    )


def _reason(lines: Sequence[str]) -> str:
    messages = [line.strip() for line in lines if line.strip() and not line.startswith("Failed in nopython mode")]
    first = messages[0] if messages else "it gives no reason"
    if len(messages) > 1 and messages[1].startswith(">>>"):
        first = f"{first.removesuffix('found for signature:').strip()}: {messages[1].removeprefix('>>>').strip()}"
    return first if first.endswith(".") else f"{first}."
