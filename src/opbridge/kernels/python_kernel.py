"""A kernel that is written in Python: its declaration and its C++ source, which contains Numba's assembly."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import itertools
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opbridge.errors import InputError
from opbridge.kernels.binary import own_platform
from opbridge.kernels.cache import cache_folder, made_once
from opbridge.kernels.layout import Layout, LayoutError, TensorLayout, parse_layout
from opbridge.kernels.python_source import fingerprint, place, plain_function

__all__ = ["DTYPES", "Parameter", "PythonKernel", "operator_parameters", "python_kernel"]

DTYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "bool",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
}
"""The element types that Numba supports, and their names in C++."""

_KINDS = {
    "Tensor": "tensor",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "List[int]": "int[]",
    "List[float]": "float[]",
}
_LOOP = ("begin", "end")
_MODULES = ("layout.py", "numba_compiler.py", "python_glue.py", "python_kernel.py", "python_source.py")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of an operator.

    Attributes:
        name: The parameter's name.
        kind: "tensor", "int", "float", "bool", "int[]" or "float[]".
        optional: Whether the parameter is a tensor that may be left out.
        default: The default in the syntax of a kernel's schema; empty if there is none.
    """

    name: str
    kind: str
    optional: bool = False
    default: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class PythonKernel:
    """A kernel that Numba compiles.

    Attributes:
        target: ``"domain::name"``.
        function: The author's function.
        parameters: The operator's parameters.
        layout: The layout of the operator's tensors.
        dtypes: The element types of each type variable.
        grain: The smallest number of steps per thread; None to choose it by the outputs' sizes.
    """

    target: str
    function: types.FunctionType
    parameters: tuple[Parameter, ...]
    layout: Layout
    dtypes: Mapping[str, tuple[str, ...]]
    grain: int | None

    @property
    def name(self) -> str:
        """An identifier made of the target."""
        return re.sub(r"\W", "_", self.target.replace("::", "_"))

    @property
    def threaded(self) -> bool:
        """Whether the last parameters are begin and end, the part of the first output's first axis to compute."""
        return tuple(inspect.signature(self.function).parameters)[-2:] == _LOOP

    @property
    def variants(self) -> tuple[dict[str, str], ...]:
        """All combinations of a dtype for each type variable."""
        return tuple(dict(zip(self.dtypes, chosen, strict=True)) for chosen in itertools.product(*self.dtypes.values()))

    def dtype(self, tensor: TensorLayout, variant: Mapping[str, str]) -> str:
        """The dtype of a tensor in a variant."""
        return variant.get(tensor.type, tensor.type)

    def write(self, *, native: bool) -> Path:
        """The kernel as a C++ file in the cache, created if it does not exist.

        Args:
            native: Compile for this machine's processor only.

        Raises:
            BuildError: Numba is missing, can't compile the function, or the result needs Python.
        """
        from opbridge.kernels import numba_compiler
        from opbridge.kernels.python_glue import cpp_source

        processor = numba_compiler.processor(native)
        known = fingerprint(self.function)
        # Values that can't be hashed may have changed, so the kernel is compiled again, and its text names the file.
        text = None if known is not None else cpp_source(self, native=native)
        parts = [
            known or text,
            processor,
            own_platform(),
            repr((self.layout, self.parameters, self.dtypes, self.grain)),
        ]
        parts += [hashlib.sha256(Path(__file__).with_name(name).read_bytes()).hexdigest() for name in _MODULES]
        key = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
        return made_once(
            cache_folder() / "python" / key[:32] / f"{self.name}.h",
            lambda file: file.write_text(text or cpp_source(self, native=native), encoding="utf-8"),
        )


def python_kernel(
    target: str,
    function: Any,
    parameters: Sequence[Parameter],
    *,
    layout: str | None,
    dtypes: Sequence[str] | Mapping[str, Sequence[str]],
    grain: int | None,
) -> PythonKernel:
    """A kernel for an operator, checked as far as possible without Numba.

    Args:
        target: ``"domain::name"``.
        function: The author's function.
        parameters: The operator's parameters.
        layout: A layout for :func:`~opbridge.kernels.layout.parse_layout`; None for an elementwise kernel.
        dtypes: The element types of T, or of each type variable.
        grain: The smallest number of steps per thread; None to choose it by the outputs' sizes.

    Raises:
        InputError: The layout can't be parsed, or it does not fit the function's or the operator's parameters.
    """
    plain = plain_function(function)
    where = f"{target}: the kernel {plain.__name__} at {place(plain)}"
    tensors = [parameter.name for parameter in parameters if parameter.kind == "tensor"]
    try:
        read = parse_layout(
            f"{', '.join(tensors)} -> result" if layout is None else layout,
            [parameter.name for parameter in parameters if parameter.kind == "int"],
        )
    except LayoutError as error:
        raise InputError(
            f"{where}: its layout {layout!r} can't be read: {error}.",
            fix="write it like 'x[..., n], w[n] -> y[..., n]'.",
        ) from error
    variables = _type_variables(where, read, dtypes)
    kernel = PythonKernel(target, plain, tuple(parameters), read, variables, grain)
    _check_tensors(where, kernel, tensors)
    _check_parameters(where, kernel)
    return kernel


def _type_variables(
    where: str, layout: Layout, dtypes: Sequence[str] | Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """The element types of each type variable, in the order in which the inputs name them."""
    given = dtypes if isinstance(dtypes, Mapping) else {"T": dtypes}
    found: dict[str, tuple[str, ...]] = {}
    for tensor in layout.tensors:
        if tensor.type in DTYPES or tensor.type in found:
            continue
        if not tensor.type[0].isupper() or tensor.type not in given:
            raise InputError(
                f"{where}: the type {tensor.type!r} of {tensor} is unknown.",
                fix=f"write one of {', '.join(DTYPES)}; or a type variable, and its types as dtypes={{'T': [...]}}.",
            )
        if tensor in layout.outputs:
            raise InputError(
                f"{where}: no input has the type {tensor.type!r} of the output {tensor}.",
                fix="give it the type of an input, or a dtype, as in 'float32 y[n]'.",
            )
        found[tensor.type] = tuple(given[tensor.type])
    for name in itertools.chain(*found.values()):
        if name not in DTYPES:
            raise InputError(
                f"{where}: Numba can't compile a kernel for {name!r}.",
                fix=f"use some of {', '.join(DTYPES)}; for other types the operator's Python function runs. A kernel "
                "in C++ takes 16-bit floats: opbridge::half and opbridge::bfloat16.",
            )
    return found


def _check_tensors(where: str, kernel: PythonKernel, tensors: list[str]) -> None:
    named = [tensor.name for tensor in kernel.layout.inputs]
    if not tensors or named != tensors:
        raise InputError(
            f"{where}: its layout has the inputs ({', '.join(named)}), and the operator ({', '.join(tensors)}).",
            fix="name the operator's tensors in the layout, all of them and in their order."
            if tensors
            else "write a kernel in C++ for an operator without tensors.",
        )
    optional = [parameter.name for parameter in kernel.parameters if parameter.optional]
    if kernel.layout.elementwise and optional:
        raise InputError(
            f"{where}: its input {optional[0]!r} may be left out, so it can't be one element of each input.",
            fix="give it a layout with sizes, such as 'x[...], w[...] -> y[...]', and outputs as parameters.",
        )


def _check_parameters(where: str, kernel: PythonKernel) -> None:
    has = list(inspect.signature(kernel.function).parameters)
    wanted = [parameter.name for parameter in kernel.parameters]
    if not kernel.layout.elementwise:
        wanted += [tensor.name for tensor in kernel.layout.outputs]
    if has == wanted or (not kernel.layout.elementwise and has == [*wanted, *_LOOP]):
        return
    more = "" if kernel.layout.elementwise else ", perhaps followed by begin and end"
    fix = f"give it the operator's parameters, then one per output: ({', '.join(wanted)}){more}."
    if kernel.layout.elementwise:
        fix = f"give it the operator's parameters ({', '.join(wanted)}); or a layout with sizes, if it works on arrays."
    raise InputError(f"{where}: it has the parameters ({', '.join(has)}).", fix=fix)


def operator_parameters(target: str) -> tuple[Parameter, ...]:
    """The parameters of a torch operator.

    Args:
        target: ``"domain::name"``.

    Raises:
        InputError: A parameter has a type that kernels in Python don't take.
    """
    import torch

    domain, _, name = target.partition("::")
    found = []
    for argument in getattr(getattr(torch.ops, domain), name).default._schema.arguments:
        written = str(argument.type)
        optional = written == "Optional[Tensor]"
        kind = "tensor" if optional else _KINDS.get(written)
        if kind is None:
            raise InputError(
                f"{target}: a kernel in Python takes no parameter like {argument.name!r}, of type {written}.",
                fix="write the kernel in C++, which takes texts, lists of tensors and attributes that may be absent.",
            )
        default = ""
        if argument.has_default_value() and kind != "tensor":
            value = argument.default_value
            default = repr(int(value)) if kind == "bool" else repr(float(value)) if kind == "float" else repr(value)
        found.append(Parameter(argument.name, kind, optional, default))
    return tuple(found)
