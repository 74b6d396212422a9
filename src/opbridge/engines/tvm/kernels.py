"""Kernels in TVM: calls of one packed function, which calls the C ABI library."""

from __future__ import annotations

import functools
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opbridge.engines.library_kernels import attributes_of, library_kernel
from opbridge.engines.tvm import native
from opbridge.errors import EngineError, OpbridgeError
from opbridge.kernels.library import KernelLibrary

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["Kernels", "calls_for", "renamed"]

_FUNCTION = "opbridge.kernel"
_PREFIX = "opbridge_kernel_"


def renamed(model: onnx.ModelProto, targets: Collection[str]) -> list[dict[str, Any]]:
    """Rename the operator of each node that a kernel computes to a unique name, in place: the frontend ignores domains.

    Args:
        model: The model.
        targets: ``"domain::Op"`` of the kernels.

    Returns:
        JSON data of each such node: its kernel, its attributes, the inputs that are present, and its outputs.

    Raises:
        EngineError: A node outside the standard domain has no kernel, or the type of an output is unknown.
    """
    values = _values(model) if targets else {}
    descriptions = []
    for node in model.graph.node:
        target = f"{node.domain}::{node.op_type}"
        if node.domain in ("", "ai.onnx"):
            continue
        if target not in targets:
            raise EngineError(
                f"TVM has no operator {target}, which node {node.name!r} is.",
                fix="export the model with `opbridge export --engine tvm`, and load the library of its kernels.",
            )
        descriptions.append(
            {
                "node": node.name,
                "target": target,
                "attributes": attributes_of(node),
                "inputs": [bool(name) for name in node.input],
                "outputs": [_output(values.get(name), target, node.name) if name else None for name in node.output],
            }
        )
        node.op_type = f"{_PREFIX}{len(descriptions) - 1}"
    return descriptions


def _values(model: onnx.ModelProto) -> dict[str, ir.Value]:
    import onnx_ir as ir

    from opbridge.onnx_model.infer import with_types

    typed = with_types(ir.serde.deserialize_model(model))
    return {value.name: value for node in typed.graph for value in node.outputs if value.name}


def _output(value: ir.Value | None, target: str, node: str) -> dict[str, Any]:
    if value is None or value.dtype is None or value.shape is None:
        raise EngineError(
            f"TVM can't call the kernel of {target} at node {node!r}: the type or the rank of an output is not known.",
            fix="infer shapes in the model.",
        )
    sizes = [size if isinstance(size, int) else str(size.value or "") for size in value.shape]
    return {"dtype": str(value.dtype.numpy().name), "shape": sizes}


def calls_for(model: onnx.ModelProto, descriptions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The converter of each renamed operator, by name, for the frontend's import of the model."""
    dynamic = frozenset(
        dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim if dim.dim_param
    )
    shared: dict[str, Any] = {}
    return {
        f"{_PREFIX}{position}": functools.partial(_call, position, description, shared, dynamic)
        for position, description in enumerate(descriptions)
    }


def _call(
    position: int,
    description: Mapping[str, Any],
    shared: dict[str, Any],
    dynamic: frozenset[str],
    builder: Any,
    inputs: list[Any],
) -> Any:
    """Emit the call with the shapes of its results: named sizes of the model's inputs, and new variables for others."""
    native.runtime()
    from tvm import relax

    given = [item for item in inputs if item is not None]
    described = list(description["outputs"])
    types = [
        relax.TensorType(ndim=len(item["shape"]), dtype=item["dtype"])
        if item
        else relax.TensorType(ndim=1, dtype="int8")
        for item in described
    ]
    result = types[0] if len(types) == 1 else relax.TupleType(types)
    call = relax.call_pure_packed(_FUNCTION, relax.prim_value(position), *given, ty_args=result)
    emitted = builder.emit(call)
    parts = [emitted] if len(types) == 1 else [builder.emit(relax.TupleGetItem(emitted, i)) for i in range(len(types))]
    known = _symbols(given, description, shared, dynamic)
    cast = [
        builder.match_cast(part, relax.TensorType([_size(size, known) for size in item["shape"]], item["dtype"]))
        if item
        else part
        for part, item in zip(parts, described, strict=True)
    ]
    return cast[0] if len(cast) == 1 else relax.Tuple(cast)


def _symbols(
    given: Sequence[Any], description: Mapping[str, Any], shared: dict[str, Any], dynamic: frozenset[str]
) -> dict[str, Any]:
    """The named sizes of the inputs as TVM's variables; one name is one variable in the whole model."""
    for value in given:
        for size in getattr(getattr(value.ty, "shape", None), "values", None) or ():
            name = getattr(size, "name", None)
            if name in dynamic:
                shared.setdefault(name, size)
    return shared


def _size(size: int | str, known: Mapping[str, Any]) -> Any:
    from tvm import tirx

    if isinstance(size, int):
        return size
    return known[size] if size in known else tirx.Var("size", "int64")


class Kernels:
    """The kernels of one model.

    Attributes:
        failure: The error of the last kernel that failed, since TVM does not keep an exception's class.

    Args:
        descriptions: The description of each call, from :func:`renamed`.
        libraries: The libraries with the kernels.
        threads: The number of threads of each call.

    Raises:
        EngineError: No library has one of the kernels.
    """

    def __init__(
        self, descriptions: Sequence[Mapping[str, Any]], libraries: Sequence[KernelLibrary], threads: int
    ) -> None:
        self.failure: OpbridgeError | None = None
        self._inputs = [description["inputs"] for description in descriptions]
        self._outputs = [description["outputs"] for description in descriptions]
        self._kernels = [library_kernel("tvm", description, libraries, threads) for description in descriptions]
        if descriptions:
            _register()

    def __enter__(self) -> Kernels:
        """Let the packed function call these kernels in this thread."""
        self.failure = None
        _current.kernels = self
        return self

    def __exit__(self, *exception: object) -> None:
        """Undo ``__enter__``."""
        _current.kernels = None

    def call(self, position: int, tensors: Sequence[Any]) -> Any:
        """Run one kernel on TVM's tensors."""
        given = iter(tensors)
        arrays = [next(given).numpy() if there else None for there in self._inputs[position]]
        try:
            results = self._kernels[position](arrays)
        except OpbridgeError as error:
            self.failure = error
            raise
        tensor = native.runtime().runtime.tensor
        made = [
            tensor(np.zeros(0, np.int8) if item is None else result)
            for item, result in zip(self._outputs[position], results, strict=False)
        ]
        return made[0] if len(made) == 1 else made


_current = threading.local()


@functools.cache
def _register() -> None:
    """Register the process-wide packed function, which finds the model's kernels by the thread that runs it."""

    def kernel(position: int, *tensors: Any) -> Any:
        kernels = getattr(_current, "kernels", None)
        if kernels is None:
            raise EngineError(
                "TVM calls a kernel of opbridge in another thread than the session's.", fix="use one thread."
            )
        return kernels.call(position, tensors)

    native.runtime().register_global_func(_FUNCTION, kernel, override=True)
