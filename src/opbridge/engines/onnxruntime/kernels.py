"""The operator schemas and kernels that a build of ONNX Runtime lists, matched with a node's types."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["KernelList", "TypeMatch"]

# A kernel that is registered for "this version and every later one" has this as its last version.
_OPEN_END = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class TypeMatch:
    """How well the kernels of an operator match the types of a node.

    Attributes:
        has_kernels: Whether there is a kernel for this version of the operator, for any types.
        missing: The type in the node, such as ``"tensor(double)"``, of each type variable that no kernel matches.
        available: The types that kernels support, for each of those type variables.
    """

    has_kernels: bool
    missing: Mapping[str, str]
    available: Mapping[str, tuple[str, ...]]


class KernelList:
    """The kernels and schemas of a build, by operator.

    Args:
        schemas: The operator schemas of the build.
        kernels: The kernels of the build, of which those for the CPU are used.
    """

    def __init__(self, schemas: Sequence[Any], kernels: Sequence[Any]) -> None:
        self._schemas: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self._kernels: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for schema in schemas:
            self._schemas[schema.domain, schema.name].append(schema)
        for kernel in kernels:
            if kernel.provider == "CPUExecutionProvider":
                self._kernels[kernel.domain, kernel.op_name].append(kernel)

    def knows(self, domain: str, op_type: str) -> bool:
        """Whether the build has an operator of this name, in any version."""
        return (domain, op_type) in self._schemas

    def first_version(self, domain: str, op_type: str) -> int:
        """The version of the domain in which the operator appeared."""
        return min(schema.since_version for schema in self._schemas[domain, op_type])

    def schema(self, domain: str, op_type: str, opset: int) -> Any:
        """The operator's schema at this version of its domain; None if the operator is newer or was removed."""
        versions = [schema for schema in self._schemas[domain, op_type] if schema.since_version <= opset]
        latest = max(versions, key=lambda schema: schema.since_version, default=None)
        return None if latest is None or latest.deprecated else latest

    def versions(self, domain: str, op_type: str) -> list[str]:
        """The versions of the operator that have kernels: ``["opset 7 to 12", "opset 13"]``."""
        ranges = sorted({tuple(kernel.version_range) for kernel in self._kernels[domain, op_type]})
        return [
            f"opset {first}" if last in (first, _OPEN_END) else f"opset {first} to {last}" for first, last in ranges
        ]

    def match(
        self, schema: Any, inputs: Sequence[str | None], outputs: Sequence[str | None], *, half_is_float: bool = False
    ) -> TypeMatch:
        """Compare a node's types (None for absent or unknown) with the kernels of its schema.

        Args:
            schema: The operator's schema, from :meth:`schema`.
            inputs: The types of the node's inputs in order, such as ``"tensor(float)"``.
            outputs: The types of the node's outputs in order.
            half_is_float: Whether float16 may run in a float32 kernel, since the engine inserts casts around it.
        """
        node_types = _bound_types(schema, inputs, outputs)
        best: dict[str, str] | None = None
        available: dict[str, dict[str, None]] = defaultdict(dict)
        for kernel in self._kernels[schema.domain, schema.name]:
            if not _serves(kernel.version_range, schema.since_version):
                continue
            missing = {}
            for variable, types in node_types.items():
                allowed = kernel.type_constraints.get(variable)
                if allowed is None:
                    continue
                available[variable].update(dict.fromkeys(allowed))
                for name in types:
                    stand_in = "tensor(float)" if half_is_float and name == "tensor(float16)" else name
                    if stand_in not in allowed:
                        missing[variable] = name
            if best is None or len(missing) < len(best):
                best = missing
        missing = best or {}
        return TypeMatch(best is not None, missing, {variable: tuple(available[variable]) for variable in missing})


def _serves(version_range: tuple[int, int], since_version: int) -> bool:
    """ONNX Runtime's rule: an open-ended kernel serves only the schema version that it starts with."""
    first, last = version_range
    return first == since_version or (last != _OPEN_END and first <= since_version <= last)


def _bound_types(schema: Any, inputs: Sequence[str | None], outputs: Sequence[str | None]) -> dict[str, list[str]]:
    """The types in the node of the schema's type variables, by the names that kernels use for them."""
    bound: dict[str, list[str]] = defaultdict(list)
    for formals, actuals in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for position, actual in enumerate(actuals):
            if actual is None or not formals:
                continue
            # Values beyond the formal parameters belong to the last one, which is variadic.
            variable = formals[min(position, len(formals) - 1)].typeStr
            if actual not in bound[variable]:
                bound[variable].append(actual)
    return bound
