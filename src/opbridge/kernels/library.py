"""Libraries of kernels: load one, describe its operators, and run them on NumPy arrays."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opbridge.errors import InputError
from opbridge.kernels import abi
from opbridge.kernels.binary import binary_platform, missing_bytes, own_platform
from opbridge.records import Record

__all__ = ["KernelArgument", "KernelAttribute", "KernelLibrary", "KernelOperator", "check_file"]

_REBUILD = "build it again from its sources, with the version of opbridge that will use it."


@dataclasses.dataclass(frozen=True)
class KernelArgument:
    """An input or an output of a kernel.

    Attributes:
        name: The name in the schema.
        type: A type variable ("T") or a dtype ("int64").
        optional: Whether the tensor may be absent.
        variadic: Whether the argument stands for any number of tensors.
    """

    name: str
    type: str
    optional: bool = False
    variadic: bool = False


@dataclasses.dataclass(frozen=True)
class KernelAttribute:
    """An attribute of a kernel.

    Attributes:
        name: The name in the schema.
        kind: "int", "float", "string", "ints", "floats", "strings" or "tensor".
        required: Whether a node must have it.
        default: The value of a missing attribute; None if the kernel handles its absence.
    """

    name: str
    kind: str
    required: bool
    default: Any = None


@dataclasses.dataclass(frozen=True)
class KernelOperator(Record):
    """A library's description of an operator.

    Attributes:
        domain: The ONNX domain.
        name: The ONNX operator type.
        schema: The schema as its author wrote it.
        inputs: The inputs, in the schema's order.
        outputs: The outputs, in the schema's order.
        attributes: The attributes, in the schema's order.
        type_variables: The names of the type variables, such as "T".
        variants: The dtypes that have a kernel: one tuple per kernel, with one dtype per type variable.
    """

    domain: str
    name: str
    schema: str
    inputs: tuple[KernelArgument, ...]
    outputs: tuple[KernelArgument, ...]
    attributes: tuple[KernelAttribute, ...]
    type_variables: tuple[str, ...]
    variants: tuple[tuple[str, ...], ...]

    @property
    def target(self) -> str:
        """``"domain::name"``."""
        return f"{self.domain}::{self.name}"

    def find_variant(self, dtypes: Sequence[str | None]) -> tuple[str, ...] | None:
        """The first variant that takes inputs of these dtypes (None for an absent one).

        Returns:
            None if there is none, or if no input determines an output's dtype (a variadic input may be empty).
        """
        taking = [
            variant
            for variant in self.variants
            if all(
                dtype is None or dtype == self._dtype(self.inputs[min(i, len(self.inputs) - 1)], variant)
                for i, dtype in enumerate(dtypes)
            )
        ]
        unambiguous = len({self.output_dtypes(variant) for variant in taking}) == 1
        return taking[0] if unambiguous else None

    def output_dtypes(self, variant: tuple[str, ...]) -> tuple[str, ...]:
        """The dtype of each declared output in a variant."""
        return tuple(self._dtype(output, variant) for output in self.outputs)

    def _dtype(self, argument: KernelArgument, variant: tuple[str, ...]) -> str:
        if argument.type in self.type_variables:
            return variant[self.type_variables.index(argument.type)]
        return argument.type


class KernelLibrary:
    """A shared library that :func:`opbridge.kernels.compiler.build` made, loaded into this process.

    Attributes:
        path: The file.
        operators: The operators in the library.

    Args:
        path: The file.

    Raises:
        InputError: The file is missing, not a library of kernels, or built for another platform or ABI version.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        check_file(self.path)
        self._library = _load(self.path)
        table = _table(self.path, self._library)
        self._raw = {_target(raw): raw for raw in (table.operators[i].contents for i in range(table.operator_count))}
        self.operators = tuple(_described(raw) for raw in self._raw.values())

    def operator(self, target: str) -> KernelOperator:
        """The operator ``"domain::name"``.

        Raises:
            InputError: The library has no such operator.
        """
        for operator in self.operators:
            if operator.target == target:
                return operator
        raise InputError(
            f"{self.path.name} has no operator {target!r}.",
            fix=f"it has: {', '.join(operator.target for operator in self.operators)}.",
        )

    def shapes(
        self,
        operator: str,
        arrays: Sequence[np.ndarray | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        output_count: int | None = None,
    ) -> tuple[tuple[int | None, ...], ...]:
        """The sizes of an operator's outputs, from its shape function; None for a data-dependent size.

        Args:
            operator: ``"domain::name"``.
            arrays: The inputs; None for an absent one.
            attributes: Attribute values by name; a missing one has its default.
            output_count: The number of outputs, if the last one is variadic.

        Raises:
            InputError: An input or attribute does not fit the schema.
            EngineError: The shape function failed.
        """
        return self._call(operator, arrays, attributes, output_count).shapes()

    def run(
        self,
        operator: str,
        arrays: Sequence[np.ndarray | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        output_count: int | None = None,
        threads: int = 2,
    ) -> tuple[np.ndarray, ...]:
        """Run an operator's kernel. Arrays are passed with their strides, without copies.

        Args:
            operator: ``"domain::name"``.
            arrays: The inputs; None for an absent one.
            attributes: Attribute values by name; a missing one has its default.
            output_count: The number of outputs, if the last one is variadic.
            threads: The number of threads that the kernel's parallel loops may use.

        Returns:
            All outputs, including optional ones.

        Raises:
            InputError: An input or attribute does not fit the schema, or there is no kernel for the dtypes.
            EngineError: The kernel failed; the message is the kernel's.
        """
        return self._call(operator, arrays, attributes, output_count).run(threads)

    def _call(
        self,
        target: str,
        arrays: Sequence[np.ndarray | None],
        attributes: Mapping[str, Any] | None,
        output_count: int | None,
    ) -> Any:
        from opbridge.kernels.library_call import LibraryCall

        operator = self.operator(target)
        return LibraryCall(operator, self._raw[target], arrays, attributes or {}, output_count)


def check_file(path: Path) -> None:
    """Check that a file is a shared library for this platform, without loading it.

    Raises:
        InputError: The file is missing, not a shared library, or built for another platform.
    """
    if not path.is_file():
        raise InputError(f"There is no library of kernels at {str(path)!r}.", fix="check the path.")
    built_for, own = binary_platform(path), own_platform()
    if built_for is None:
        raise InputError(
            f"{path.name} is not a shared library.",
            fix="pass a library that opbridge built: a .so, .dylib or .dll file.",
        )
    if missing_bytes(path):
        raise InputError(f"{path.name} is truncated: {missing_bytes(path)} bytes are missing.", fix="copy it again.")
    if built_for != own:
        raise InputError(f"{path.name} was built for {built_for}, and this is {own}.", fix=_REBUILD)


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path.absolute()))
    except OSError as error:
        raise InputError(f"{path.name} can't be loaded: {error}.", fix=_REBUILD) from error


def _table(path: Path, library: ctypes.CDLL) -> abi.Library:
    try:
        get_library = library.opbridge_get_library
    except AttributeError as error:
        raise InputError(
            f"{path.name} is not a library of opbridge kernels: it has no opbridge_get_library.",
            fix="pass a library that opbridge built from kernels that include opbridge.h.",
        ) from error
    get_library.restype = ctypes.POINTER(abi.Library)
    table: abi.Library = get_library().contents
    # These two fields come first in every version.
    if table.abi_version != abi.ABI_VERSION:
        raise InputError(
            f"{path.name} was built for version {table.abi_version} of opbridge's kernel ABI, and this opbridge has "
            f"version {abi.ABI_VERSION}.",
            fix=_REBUILD,
        )
    if table.error:
        raise InputError(
            f"{path.name}: {table.error.decode()}.",
            fix="give each operator, and each kernel function that is not static, its own name, and build it again.",
        )
    if table.operator_count == 0:
        raise InputError(
            f"{path.name} has no operators.", fix="declare one with OPBRIDGE_OPERATOR, and build it again."
        )
    return table


def _target(raw: abi.Operator) -> str:
    return f"{raw.domain.decode()}::{raw.name.decode()}"


def _described(raw: abi.Operator) -> KernelOperator:
    variables = tuple(raw.type_variables[i].decode() for i in range(raw.type_variable_count))

    def argument(declared: Any) -> KernelArgument:
        kind = variables[declared.type_variable] if declared.type_variable >= 0 else abi.DTYPES[declared.dtype]
        flags = declared.flags
        return KernelArgument(declared.name.decode(), kind, bool(flags & abi.OPTIONAL), bool(flags & abi.VARIADIC))

    def attribute(declared: Any) -> KernelAttribute:
        default = abi.python_value(declared.default_value)
        return KernelAttribute(declared.name.decode(), abi.KINDS[declared.kind], bool(declared.required), default)

    return KernelOperator(
        domain=raw.domain.decode(),
        name=raw.name.decode(),
        schema=raw.schema.decode(),
        inputs=tuple(argument(raw.inputs[i]) for i in range(raw.input_count)),
        outputs=tuple(argument(raw.outputs[i]) for i in range(raw.output_count)),
        attributes=tuple(attribute(raw.attributes[i]) for i in range(raw.attribute_count)),
        type_variables=variables,
        variants=tuple(
            tuple(abi.DTYPES[raw.variants[v].dtypes[t]] for t in range(len(variables)))
            for v in range(raw.variant_count)
        ),
    )
