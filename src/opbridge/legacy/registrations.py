"""The registered symbolic functions as mappings of operators.

They are stored in torch's own registry, so functions that were registered before the bridge was turned on are included.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import onnxscript
import torch

from opbridge.catalog.declare.spec import OpSpec
from opbridge.errors import InputError, TranslationError
from opbridge.legacy import switch, torch_registry
from opbridge.legacy.old_names import OLD_NAMES
from opbridge.legacy.symbolic_call import emit, symbolic_opset
from opbridge.legacy.symbolic_method import PYTHON_OP
from opbridge.torch_graph import LOWEST_OPSET
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.example_values import has_example_fake, has_fake
from opbridge.torch_graph.sources import source_of_function
from opbridge.torch_graph.targets import overload_of, target_key

__all__ = [
    "Registration",
    "is_operator",
    "operators_without_fake",
    "register_custom_op_symbolic",
    "registered_specs",
    "registrations",
    "registrations_without_operator",
    "spec_of",
    "unregister_custom_op_symbolic",
]

Arguments = Callable[[Sequence[Any]], list[Any]]
"""Turns the arguments of the captured operator into those that the symbolic function expects."""


@dataclasses.dataclass(frozen=True)
class Registration:
    """The symbolic functions that the user registered for one operator.

    Attributes:
        name: The operator, such as "aten::asinh".
        functions: The symbolic functions, by the lowest opset to which each applies.
    """

    name: str
    functions: Mapping[int, Callable[..., Any]]

    @property
    def source(self) -> str:
        """``file:line`` of the function for the newest opset."""
        return _source(self.functions[max(self.functions)])

    def at(self, opset: int) -> Callable[..., Any] | None:
        """Return the user's newest function up to ``opset``, even if torch has a newer one; None if there is none."""
        versions = [version for version in self.functions if version <= opset]
        return self.functions[max(versions)] if versions else None


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Register a symbolic function, as ``torch.onnx.register_custom_op_symbolic`` does.

    Args:
        symbolic_name: The operator, as "namespace::name"; an empty namespace means aten.
        symbolic_fn: The symbolic function. Its parameters are the graph context and the arguments of the operator as
            values of the graph, in schema order.
        opset_version: The lowest opset to which the function applies.

    Raises:
        InputError: torch refuses the name.
    """
    try:
        torch_registry.register(symbolic_name, symbolic_fn, opset_version)
    except Exception as error:
        raise InputError(
            f"register_custom_op_symbolic({symbolic_name!r}): {str(error).strip()}",
            fix="write, for example, register_custom_op_symbolic('mylib::my_op', symbolic, 11).",
        ) from error


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Remove a registration, as ``torch.onnx.unregister_custom_op_symbolic`` does."""
    torch_registry.unregister(symbolic_name, opset_version)


def registrations() -> tuple[Registration, ...]:
    """Return the user's registrations, by operator.

    torchvision's own registrations count only for operators that torch does not map. The onnxscript functions that the
    old exporter registers for ``g.onnxscript_op`` do not count, because the user did not register them.
    """
    found = []
    for name, registered in torch_registry.registered().items():
        functions = {opset: one for opset, one in registered.items() if not isinstance(one, onnxscript.OnnxFunction)}
        by_users = {opset: function for opset, function in functions.items() if not _is_torchvision(function)}
        if by_users or (functions and not _is_mapped(name)):
            found.append(Registration(name, by_users or functions))
    return tuple(found)


def _is_torchvision(function: Callable[..., Any]) -> bool:
    return getattr(function, "__module__", None) == "torchvision.ops._register_onnx_ops"


def _is_mapped(name: str) -> bool:
    return any(str(key).partition(".")[0] == name for key in torch_internals.mapped_targets())


def registered_specs() -> tuple[OpSpec, ...]:
    """Return the mappings of all torch operators that have a registered symbolic function, one per overload."""
    found = registrations()
    names = {registration.name for registration in found}
    specs: list[OpSpec] = []
    for registration in found:
        for overload in _overloads(registration.name):
            specs.append(spec_of(registration, overload, list))
        for old in OLD_NAMES.get(registration.name, ()):
            if old.captured.partition(".")[0] not in names:
                specs.append(spec_of(registration, overload_of(old.captured), old.arguments))
    return tuple(specs)


def registrations_without_operator() -> tuple[Registration, ...]:
    """Return the registrations for names that never occur in a captured graph, such as TorchScript's ``prim::...``."""
    return tuple(
        one
        for one in registrations()
        if one.name != PYTHON_OP
        and (one.name.startswith("prim::") or not (one.name in OLD_NAMES or _overloads(one.name)))
    )


def is_operator(name: str) -> bool:
    """Return whether torch has an operator of this name, also one that a captured graph never has."""
    namespace, _, operator_name = name.partition("::")
    return namespace != "prim" and isinstance(
        getattr(getattr(torch.ops, namespace), operator_name, None), torch._ops.OpOverloadPacket
    )


def operators_without_fake() -> list[str]:
    """Return the operators that have a registered symbolic function, but no shape function, by overload.

    The old exporter ran operators on real tensors, and needed no shape functions.
    """
    overloads = [
        overload
        for one in registrations()
        if not one.name.startswith(("aten::", "prim::"))
        for overload in _overloads(one.name)
    ]
    return [overload.name() for overload in overloads if not has_fake(overload)]


_NO_FAKE = (
    "the operator has no shape function, so the sizes of its results are unknown during the export; declare them with "
    "opbridge.fake_for({!r})"
)


def spec_of(
    registration: Registration, overload: torch._ops.OpOverload, arguments: Arguments, *, noted: bool = True
) -> OpSpec:
    """Return the mapping of one operator by symbolic functions.

    Args:
        registration: The symbolic functions.
        overload: The operator in the captured graph.
        arguments: Turns its arguments into those that the symbolic functions expect.
        noted: Whether each use is recorded as a registered symbolic function.
    """
    return OpSpec(
        target=str(target_key(overload)),
        rung="translate",
        function=_translation(registration, overload, arguments, noted),
        opset=max(LOWEST_OPSET, min(registration.functions)),
        overrides="a symbolic function is registered for it",
        source=registration.source,
    )


def _overloads(name: str) -> list[torch._ops.OpOverload]:
    namespace, _, operator_name = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), operator_name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return []
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return [one for one in overloads if not one._schema.is_mutable and "Dimname" not in str(one._schema)]


def _translation(
    registration: Registration, overload: torch._ops.OpOverload, arguments: Arguments, noted: bool
) -> Callable[..., Any]:
    """Return the translation of ``overload``; torch.onnx calls it without the arguments that have their default."""
    newest = registration.functions[max(registration.functions)]

    @functools.wraps(newest)
    def translation(*args: Any, **kwargs: Any) -> Any:
        opset = symbolic_opset()
        function = registration.at(opset)
        if function is None:
            raise _too_new(registration, overload, opset)
        returns = overload._schema.returns
        values = [_value(argument, _given(position, argument, args, kwargs)) for position, argument in _all(overload)]
        made = emit(
            function,
            arguments(values),
            _counted(function, overload, values),
            name=registration.name,
            results=None if isinstance(returns[0].type, torch.ListType) else len(returns),
            registered=True,
            noted=noted,
        )
        if noted and has_example_fake(overload):
            note = _NO_FAKE.format(overload.name())
            switch.note("registered symbolic", registration.name, _source(function), note, count=0)
        return made

    return translation


def _counted(function: Callable[..., Any], overload: torch._ops.OpOverload, values: Sequence[Any]) -> dict[str, int]:
    """Return ``_outputs``, with which the old exporter passes the length of the list that an operator returns.

    It is left out for a symbolic function that does not take it, and where the length depends on a dynamic size.
    """
    source, *others = values or [None]
    if "_outputs" not in _parameters(function) or not isinstance(source, ir.Value) or source.shape is None:
        return {}
    counts = set()
    for unknown in (64, 96):
        shape = [size if isinstance(size, int) else unknown for size in source.shape]
        try:
            counts.add(len(overload(torch.empty(shape, device="meta"), *others)))
        except Exception:  # A size among the arguments is dynamic, or does not fit the made-up ones.
            return {}
    return {"_outputs": counts.pop()} if len(counts) == 1 else {}


def _parameters(function: Callable[..., Any]) -> Collection[str]:
    try:
        return inspect.signature(inspect.unwrap(function)).parameters
    except (TypeError, ValueError):  # A function written in C has no signature.
        return ()


def _too_new(registration: Registration, overload: torch._ops.OpOverload, opset: int) -> TranslationError:
    lowest = min(registration.functions)
    return TranslationError(
        f"The symbolic function of {registration.name} at {_source(registration.functions[lowest])} is registered for "
        f"opset {lowest} and newer, but opset {opset} is requested.",
        fix=f"request opset {lowest} or newer, or register a function for opset {opset}.",
        target=str(target_key(overload)),
    )


def _source(function: Callable[..., Any]) -> str:
    return str(source_of_function(inspect.unwrap(function)) or "")


def _all(overload: torch._ops.OpOverload) -> list[tuple[int, Any]]:
    return list(enumerate(overload._schema.arguments))


def _given(position: int, argument: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if not argument.kwarg_only and position < len(args):
        return args[position]
    return kwargs.get(argument.name, argument.default_value)


_MEMORY_FORMATS = {
    "torch.contiguous_format": 0, "torch.preserve_format": 1, "torch.channels_last": 2, "torch.channels_last_3d": 3,
}  # fmt: skip


def _value(argument: Any, given: Any) -> Any:
    """Convert an argument to TorchScript's form: torch.onnx passes ONNX types for dtypes, strings for devices."""
    kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
    if argument.name == "dtype" and given == -1:
        return None
    if isinstance(given, ir.DataType):
        return ir.tensor_adapters.to_torch_dtype(given)
    if isinstance(given, str) and re.fullmatch(r"[\w.]+(:\d+)?", given):
        if given in _MEMORY_FORMATS:
            return _MEMORY_FORMATS[given]
        if kind == "Device" or argument.name == "device":
            return torch.device(given)
        if given == "torch.strided":
            return 0
    return given
