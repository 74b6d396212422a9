"""Kernels for chains of elementwise ONNX nodes, as C++ text: one loop instead of one per node."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

from opbridge.kernels.cache import cache_folder, made_once
from opbridge.kernels.python_kernel import DTYPES

__all__ = ["DOMAIN", "ELEMENTWISE", "Chain", "Cost", "Link", "literal", "write_kernels"]

DOMAIN = "opbridge.elementwise"
"""The domain of the nodes."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What an operator costs per element of float32, in nanoseconds.

    Attributes:
        engine: As a node of ONNX Runtime.
        kernel: In a loop whose input and output are counted elsewhere.
    """

    engine: float
    kernel: float


_CHEAP = Cost(0.45, 0.05)
_CHEAP_NAMES = """
Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Clip Cube Div Equal Floor Greater
GreaterOrEqual Identity IsInf IsNaN LeakyRelu Less LessOrEqual Max Min Mul Neg Not Or Reciprocal Relu Round Sign Sqrt
Square Sub Xor
"""
ELEMENTWISE = {
    **dict.fromkeys(_CHEAP_NAMES.split(), _CHEAP),
    "Where": Cost(1.5, 0.1),
    "Exp": Cost(0.45, 0.4),
    "Sigmoid": Cost(0.65, 0.5),
    "Log": Cost(1.9, 0.8),
    "Sin": Cost(1.9, 1.9),
    "Cos": Cost(1.9, 2.1),
    "Tan": Cost(7.9, 5.8),
    "Sinh": Cost(11.1, 6.9),
    "Cosh": Cost(7.1, 5.5),
    "Asinh": Cost(16.6, 8.5),
    "Acosh": Cost(15.3, 8.5),
    "Atanh": Cost(19.5, 8.2),
    "Softplus": Cost(9.9, 1.5),
    "Pow": Cost(5.0, 4.5),
    "Exp2": Cost(5.0, 2.0),
    "Mod": Cost(9.0, 5.6),
}
"""The operators of which a chain may consist, and special cases of Pow, each a function in ``onnx_elements.h``.

Measured with ONNX Runtime 1.32 on x86-64, by one thread, on 2**18 elements; ``Where`` with conditions that the
processor predicts, otherwise it takes up to 8.6 ns. What ONNX Runtime vectorizes and ``<cmath>`` does not, such as Erf
and Tanh, is not listed.
"""


@dataclasses.dataclass(frozen=True)
class Link:
    """One node of a chain.

    Attributes:
        function: The function in ``onnx_elements.h``, with its template arguments.
        arguments: C++ literals, ``x0``, ``x1``, … for inputs, and ``v0``, ``v1``, … for the results of earlier links.
    """

    function: str
    arguments: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Chain:
    """Elementwise nodes that one loop computes.

    Attributes:
        inputs: The element types of the inputs, names of :data:`~opbridge.kernels.python_kernel.DTYPES`.
        output: That of the output, which the last link computes.
        links: The nodes, in order.
    """

    inputs: tuple[str, ...]
    output: str
    links: tuple[Link, ...]

    @property
    def name(self) -> str:
        """The name of the node's operator: equal chains have the same one."""
        text = repr((self.inputs, self.output, self.links))
        return f"Chain_{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def target(self) -> str:
        """``"domain::name"``."""
        return f"{DOMAIN}::{self.name}"

    def source(self) -> str:
        """The kernel in C++."""
        name = self.name
        parameters = ", ".join(f"{DTYPES[dtype]} x{i}" for i, dtype in enumerate(self.inputs))
        schema = ", ".join(f"{dtype} x{i}" for i, dtype in enumerate(self.inputs))
        inputs = ", ".join(f"call.input<{DTYPES[dtype]}>({i})" for i, dtype in enumerate(self.inputs))
        lines = "".join(
            f"    const auto v{i} = onnx::{link.function}({', '.join(link.arguments)});\n"
            for i, link in enumerate(self.links)
        )
        return (
            f"\n// {len(self.links)} nodes.\n"
            f"static void {name}(opbridge::Call& call) {{\n"
            "  namespace onnx = opbridge::onnx;\n"
            f"  const auto element = []({parameters}) {{\n{lines}    return v{len(self.links) - 1};\n  }};\n"
            f"  opbridge::elementwise(call, call.output<{DTYPES[self.output]}>(0), element, {inputs});\n}}\n\n"
            f"OPBRIDGE_OPERATOR({name}, opbridge::shape_of_broadcast,\n"
            f'                  "{self.target}({schema}) -> {self.output} y")\n'
        )


def write_kernels(chains: Sequence[Chain]) -> Path:
    """The C++ file of the kernels of several chains, in the cache. One file compiles faster than one for each."""
    text = (
        "// Chains of elementwise nodes of a model, each as one loop.\n"
        '#include "opbridge.h"\n#include "opbridge/onnx_elements.h"\n'
    ) + "".join(chain.source() for chain in chains)
    key = hashlib.sha256(text.encode()).hexdigest()
    file = cache_folder() / "elementwise" / f"chains_{key[:16]}.h"
    return made_once(file, lambda place: place.write_text(text, encoding="utf-8"))


def literal(value: float | int | bool, dtype: str) -> str:
    """A number as a C++ expression of an element type, exactly."""
    cpp = DTYPES[dtype]
    if cpp == "bool":
        return "true" if value else "false"
    if cpp not in ("float", "double"):
        return f"{cpp}({int(value)}{'u' if cpp.startswith('u') else ''}ll)"
    number = float(value)
    if math.isnan(number):
        return f"std::numeric_limits<{cpp}>::quiet_NaN()"
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}std::numeric_limits<{cpp}>::infinity()"
    return f"{number.hex()}{'f' if cpp == 'float' else ''}"
