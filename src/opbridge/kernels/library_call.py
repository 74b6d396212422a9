"""One call of a kernel from Python: the host's part of ``opbridge/abi.h``."""

from __future__ import annotations

import concurrent.futures
import ctypes
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_int64
from typing import Any

import numpy as np

from opbridge.errors import EngineError, InputError
from opbridge.kernels import abi
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.kernels.library import KernelOperator

__all__ = ["LibraryCall"]

_ALIGNMENT = 64


class LibraryCall:
    """The structures of a call, filled in and kept alive.

    Args:
        operator: The description.
        raw: The operator in the library's table.
        arrays: The inputs; None for an absent one.
        attributes: Attribute values by name.
        output_count: The number of outputs, if the last one is variadic.

    Raises:
        InputError: An input or attribute does not fit the schema, or there is no kernel for the dtypes.
    """

    def __init__(
        self,
        operator: KernelOperator,
        raw: abi.Operator,
        arrays: Sequence[np.ndarray | None],
        attributes: Mapping[str, Any],
        output_count: int | None,
    ) -> None:
        self._operator = operator
        self._raw = raw
        self._keep: list[Any] = []
        given = _checked_inputs(operator, arrays)
        dtypes = [None if array is None else array.dtype.name for array in given]
        variant = operator.find_variant(dtypes)
        if variant is None:
            raise _no_variant(operator, dtypes)
        self._run = raw.variants[operator.variants.index(variant)].run
        inputs = (abi.Tensor * max(len(given), 1))(*(abi.tensor_of(array, self._keep) for array in given))
        self._dtypes = _output_dtypes(operator, operator.output_dtypes(variant), output_count)
        self._outputs = (abi.Tensor * max(len(self._dtypes), 1))(
            *(_output(dtype, self._keep) for dtype in self._dtypes)
        )
        self._results: list[np.ndarray | None] = [None] * len(self._dtypes)
        self._call = abi.Call(
            op=ctypes.pointer(raw),
            inputs=inputs,
            outputs=self._outputs,
            attributes=_values(operator, raw, attributes, self._keep),
            input_count=len(given),
            output_count=len(self._dtypes),
        )
        self._keep.append(inputs)

    def shapes(self) -> tuple[tuple[int | None, ...], ...]:
        """Run the shape function."""
        self._finish(self._raw.shape(ctypes.byref(self._call)))
        return tuple(
            tuple(None if size < 0 else size for size in self._outputs[i].sizes[: self._outputs[i].rank])
            for i in range(len(self._dtypes))
        )

    def run(self, threads: int) -> tuple[np.ndarray, ...]:
        """Run the shape function and the kernel."""
        for index, sizes in enumerate(self.shapes()):
            if None in sizes:
                self._outputs[index].rank = 0
            else:
                self._allocate(index, [size or 0 for size in sizes])
        with concurrent.futures.ThreadPoolExecutor(max_workers=threads) as pool:
            host = abi.Host(
                abi.PARALLEL_FOR(lambda *arguments: _parallel_for(pool, threads, *arguments)),
                abi.SCRATCH(self._scratch),
                abi.ALLOCATE_OUTPUT(self._allocate_output),
            )
            self._call.host = ctypes.pointer(host)
            self._finish(self._run(ctypes.byref(self._call)))
        for index, result in enumerate(self._results):
            if result is None:
                name = self._operator.outputs[min(index, len(self._operator.outputs) - 1)].name
                raise EngineError(
                    f"{self._operator.target}: the kernel did not allocate output {name!r}, whose sizes its shape "
                    "function left data-dependent.",
                    fix="call allocate_output in the kernel.",
                )
        return tuple(result for result in self._results if result is not None)

    def _finish(self, failed: int) -> None:
        if failed:
            raise EngineError(
                self._call.error.decode(errors="replace"),
                fix="pass what the operator takes, or correct the kernel.",
            )

    def _allocate(self, index: int, sizes: list[int]) -> None:
        result = np.empty(sizes, numpy_dtype(self._dtypes[index]))
        self._results[index] = result
        output = self._outputs[index]
        output.data = result.ctypes.data
        output.rank = len(sizes)
        for axis, size in enumerate(sizes):
            output.sizes[axis] = size

    def _allocate_output(self, call: Any, index: int, rank: int, sizes: Any) -> int:
        problem = ""
        if not 0 <= index < len(self._results) or self._results[index] is not None:
            problem = f"output {index} is allocated already: allocate_output is for data-dependent sizes, once"
        else:
            try:
                self._allocate(index, sizes[:rank])
            except (MemoryError, ValueError) as error:
                problem = f"output {index} can't be allocated: {error}"
        call.contents.error = problem.encode()
        return int(bool(problem))

    def _scratch(self, call: Any, size: int) -> int:
        try:
            memory = np.empty(size + _ALIGNMENT, np.uint8)
        except (MemoryError, ValueError):
            return 0
        self._keep.append(memory)
        return -(-memory.ctypes.data // _ALIGNMENT) * _ALIGNMENT


def _parallel_for(
    pool: concurrent.futures.Executor, threads: int, call: Any, total: int, grain: int, body: Any, user: Any
) -> None:
    size = max(grain, -(-total // threads))
    pieces = [pool.submit(body, user, begin, min(begin + size, total)) for begin in range(0, total, size)]
    concurrent.futures.wait(pieces)


def _checked_inputs(operator: KernelOperator, arrays: Sequence[np.ndarray | None]) -> list[np.ndarray | None]:
    """The arrays in native byte order: one per declared input, and any number for a variadic one."""
    declared = operator.inputs
    variadic = bool(declared) and declared[-1].variadic
    fixed = len(declared) - variadic
    needed = sum(not argument.optional and not argument.variadic for argument in declared)
    if len(arrays) < needed or (len(arrays) > fixed and not variadic):
        raise InputError(
            f"{operator.target} takes {operator.schema}, but got {len(arrays)} inputs.",
            fix="pass one array per input; None for an optional one in between.",
        )
    checked: list[np.ndarray | None] = []
    for index, array in enumerate(arrays):
        argument = declared[min(index, len(declared) - 1)]
        if array is None and not argument.optional:
            raise InputError(f"{operator.target}: input {argument.name!r} is required.", fix="pass an array.")
        if array is not None and (array.ndim > abi.MAX_RANK or array.dtype.name not in abi.DTYPES.values()):
            raise InputError(
                f"{operator.target}: input {argument.name!r} is {array.dtype.name} of rank {array.ndim}.",
                fix=f"kernels take ranks up to {abi.MAX_RANK} and the dtypes {', '.join(abi.DTYPES.values())}.",
            )
        checked.append(None if array is None else array.astype(array.dtype.newbyteorder("="), copy=False))
    return checked + [None] * (fixed - len(checked))


def _no_variant(operator: KernelOperator, dtypes: Sequence[str | None]) -> InputError:
    got = ", ".join(
        f"{operator.inputs[min(i, len(operator.inputs) - 1)].name}: {dtype}"
        for i, dtype in enumerate(dtypes)
        if dtype is not None
    )
    has = "; ".join(
        ", ".join(f"{name} = {dtype}" for name, dtype in zip(operator.type_variables, variant, strict=True))
        for variant in operator.variants
    )
    return InputError(
        f"{operator.target} has no kernel for {got or 'no inputs, so the output type is unknown'}.",
        fix=f"convert the inputs; it has kernels for {has or operator.schema}.",
    )


def _output_dtypes(operator: KernelOperator, dtypes: tuple[str, ...], count: int | None) -> tuple[str, ...]:
    if not operator.outputs[-1].variadic:
        return dtypes
    if count is None or count < len(dtypes) - 1:
        raise InputError(f"{operator.target} has any number of outputs.", fix="pass their number with output_count=.")
    return (*dtypes[:-1], *[dtypes[-1]] * (count - len(dtypes) + 1))


def _output(dtype: str, keep: list[Any]) -> abi.Tensor:
    sizes = (c_int64 * abi.MAX_RANK)()
    keep.append(sizes)
    number = next(number for number, name in abi.DTYPES.items() if name == dtype)
    return abi.Tensor(None, ctypes.cast(sizes, POINTER(c_int64)), None, 0, number)


def _values(operator: KernelOperator, raw: abi.Operator, given: Mapping[str, Any], keep: list[Any]) -> Any:
    known = [attribute.name for attribute in operator.attributes]
    for name in given:
        if name not in known:
            raise InputError(
                f"{operator.target} has no attribute {name!r}.", fix=f"it has: {', '.join(known) or 'none'}."
            )
    values = (abi.Value * max(len(known), 1))()
    for index, attribute in enumerate(operator.attributes):
        if attribute.name in given:
            try:
                values[index] = abi.value_of(attribute.kind, given[attribute.name], keep)
            except TypeError as error:
                raise InputError(
                    f"{operator.target}: attribute {attribute.name!r} takes a value of kind {attribute.kind}: {error}.",
                    fix=f"pass what the schema says: {operator.schema}",
                ) from error
        elif attribute.required:
            raise InputError(
                f"{operator.target}: attribute {attribute.name!r} is required.",
                fix=f"pass what the schema says: {operator.schema}",
            )
        else:
            values[index] = raw.attributes[index].default_value
    keep.append(values)
    return values
