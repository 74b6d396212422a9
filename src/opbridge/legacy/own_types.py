"""The types of the values of our own graph, with the protocol of TorchScript's.

Where torch has a type of the same name, an instance says that it is one: ``isinstance`` and ``isSubtypeOf`` answer
``torch.onnx.symbolic_helper`` as they always did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opbridge.legacy import torchscript

__all__ = ["DeviceObjType", "ListType", "NoneType", "TensorType", "Type", "impersonating"]


def impersonating(name: str) -> property:
    """A ``__class__`` that names torch's own class, for ``isinstance``; the real one where torch has none."""
    return property(lambda self: torchscript.class_named(name) or type(self))


class Type:
    """What all types answer."""

    def kind(self) -> str:
        """The name of the type, as TorchScript spells it."""
        return type(self).__name__

    def isSubtypeOf(self, other: Any) -> bool:
        """Whether it is of the kind of ``other``, a type of ours or of torch's."""
        return bool(self.kind() == other.kind())

    def str(self) -> str:
        """The type as TorchScript prints it."""
        return str(self)


class NoneType(Type):
    """The type of None."""

    __class__ = impersonating("NoneType")  # type: ignore[assignment]

    def __str__(self) -> str:
        return "NoneType"


class DeviceObjType(Type):
    """The type of a device."""

    __class__ = impersonating("DeviceObjType")  # type: ignore[assignment]

    def __str__(self) -> str:
        return "Device"


class ListType(Type):
    """The type of a list.

    Args:
        element: Of its elements.
    """

    __class__ = impersonating("ListType")  # type: ignore[assignment]

    def __init__(self, element: Type | str) -> None:
        self._element = element

    def getElementType(self) -> Any:
        """The type of the elements."""
        return self._element

    def isSubtypeOf(self, other: Any) -> bool:
        """Whether the elements are of the same kind too."""
        return Type.isSubtypeOf(self, other) and str(self) == str(other)

    def __str__(self) -> str:
        return f"List[{self._element}]"


class TensorType(Type):
    """The type of a tensor.

    Args:
        dtype: Its element type; None if it is not known.
        sizes: None for one that is not fixed; None if the rank is not known.
    """

    __class__ = impersonating("TensorType")  # type: ignore[assignment]

    def __init__(self, dtype: torch.dtype | None = None, sizes: Sequence[int | None] | None = None) -> None:
        self._dtype = dtype
        self._sizes = None if sizes is None else list(sizes)

    def dtype(self) -> torch.dtype | None:
        """The element type."""
        return self._dtype

    def scalarType(self) -> str | None:
        """The element type's name: "Float", "Long"."""
        return _NAMES.get(self._dtype) if self._dtype is not None else None

    def dim(self) -> int | None:
        """The rank."""
        return None if self._sizes is None else len(self._sizes)

    def sizes(self) -> list[int] | None:
        """The sizes, if all are known."""
        known = self._sizes is not None and None not in self._sizes
        return list(self._sizes) if known else None  # type: ignore[arg-type]

    def varyingSizes(self) -> list[int | None] | None:
        """The sizes, None for one that is not known."""
        return None if self._sizes is None else list(self._sizes)

    def strides(self) -> list[int] | None:
        """The strides of a contiguous tensor of these sizes."""
        sizes = self.sizes()
        return None if sizes is None else list(torch.empty(sizes, device="meta").stride())

    def device(self) -> torch.device:
        """Where the tensor lies."""
        return torch.device("cpu")

    def requires_grad(self) -> bool:
        """Nothing is differentiated while exporting."""
        return False

    def undefined(self) -> bool:
        """Whether there is no tensor at all."""
        return False

    def with_sizes(self, sizes: Sequence[int | None] | None) -> TensorType:
        """The same type with other sizes."""
        return TensorType(self._dtype, sizes)

    def with_dtype(self, dtype: torch.dtype) -> TensorType:
        """The same type with another element type."""
        return TensorType(dtype, self._sizes)

    def __str__(self) -> str:
        return "Tensor"


_NAMES = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip
