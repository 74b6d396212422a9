"""Kernels in TVM: nodes that become calls of one packed function, which calls the C-ABI library."""

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
    """Give each node that a kernel computes an operator name of its own, in place: the frontend looks at names alone.

    Args:
        model: The model.
        targets: ``"domain::Op"`` of the kernels.

    Returns:
        JSON data of each such node: what runs it, its attributes, which inputs are there, and its outputs.

    Raises:
        EngineError: A node is of no standard operator, and has no kernel; or the type of an output is not known.
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
    """What each renamed operator becomes while the frontend imports the model."""
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
    """Emit the call, and state the shapes of its results: sizes of the model's inputs by name, others as new ones."""
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
    """The sizes that the inputs' types name, as TVM's own variables; one name is one variable in the whole model."""
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
        failure: What the last kernel that failed said: an error loses its class on its way through TVM.

    Args:
        descriptions: One per call, as :func:`renamed` made it.
        libraries: Where the kernels are.
        threads: For each call.

    Raises:
        EngineError: No library has one of them.
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
        """Be what the packed function calls in this thread."""
        self.failure = None
        _current.kernels = self
        return self

    def __exit__(self, *exception: object) -> None:
        """Be that no longer."""
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
    """Make the packed function, which is the process's, and finds the model's kernels by the thread that runs it."""

    def kernel(position: int, *tensors: Any) -> Any:
        kernels = getattr(_current, "kernels", None)
        if kernels is None:
            raise EngineError("TVM calls a kernel of opbridge's in a thread of its own.", fix="use one thread.")
        return kernels.call(position, tensors)

    native.runtime().register_global_func(_FUNCTION, kernel, override=True)
