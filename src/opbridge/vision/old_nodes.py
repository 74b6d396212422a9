"""Nodes that MMDeploy, mmcv and TensorRT's plugins defined, converted to operators that engines of today have.

Each conversion is a function in ``nodes/``, declared with :func:`old_node`. The files are found by listing that folder.
A node becomes standard operators if there are any that compute the same, otherwise an operator of ``ops/`` or of
torchvision, which has a function body and a kernel.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import onnx_ir as ir

from opbridge import vision
from opbridge.errors import TranslationError
from opbridge.kernels.declared import declared_kernels
from opbridge.onnx_model.adaptation import Adaptation
from opbridge.onnx_model.infer import fill_types
from opbridge.onnx_model.names import describe_node
from opbridge.onnx_model.opsets import convert_opset
from opbridge.onnx_model.opsets.building import Builder, Names
from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.site import Site
from opbridge.onnx_model.scopes import all_nodes

if TYPE_CHECKING:
    from opbridge.catalog.declare.catalog import Catalog

__all__ = ["OldNode", "OldSite", "convert_old_nodes", "declare_for", "old_node", "old_nodes"]

_Function = TypeVar("_Function", bound=Callable[["OldSite"], None])
_MARK = "__old_node__"
_REQUIRED = object()


@dataclasses.dataclass(frozen=True)
class OldNode:
    """The conversion of a node.

    Attributes:
        names: ``"domain::Op"``, in each of the domains that it was written in.
        opset: The lowest opset that has the standard operators that it becomes.
        source: The public documents and files that define the node.
        convert: The function that replaces a node.
    """

    names: tuple[str, ...]
    opset: int
    source: str
    convert: Callable[[OldSite], None]


def old_node(*names: str, source: str, opset: int = 13) -> Callable[[_Function], _Function]:
    """Declare the conversion of the nodes ``names``; the parameters are the attributes of :class:`OldNode`."""

    def mark(function: _Function) -> _Function:
        setattr(function, _MARK, OldNode(names, opset, source, function))
        return function

    return mark


class OldSite(Site):
    """One node that is converted."""

    def get(self, *names: str, default: Any = _REQUIRED) -> Any:
        """The value of an attribute.

        Args:
            names: The names that the attribute has had.
            default: The value if it is absent.

        Raises:
            CannotExpress: The attribute is absent and has no default.
        """
        for name in names:
            if (found := self.node.attributes.get(name)) is not None:
                return list(found.value) if isinstance(found.value, tuple) else found.value
        if default is _REQUIRED:
            raise CannotExpress(f"the attribute {names[0]!r} is missing")
        return default

    def require(self, position: int, name: str) -> ir.Value:
        """An input that must be present."""
        value = self.input(position)
        if value is None:
            raise CannotExpress(f"the input {name!r} is missing")
        return value

    def operator(
        self, target: str, *inputs: ir.Value, dtype: ir.DataType, sizes: Sequence[Any], **attributes: Any
    ) -> ir.Value:
        """The output of a node of a custom domain; see :meth:`operators`."""
        return self.operators(target, *inputs, outputs=[(dtype, sizes)], **attributes)[0]

    def operators(
        self, target: str, *inputs: ir.Value, outputs: Sequence[tuple[ir.DataType, Sequence[Any]]], **attributes: Any
    ) -> tuple[ir.Value, ...]:
        """The outputs of a node of a custom domain.

        Args:
            target: ``"domain::Op"``.
            inputs: The inputs.
            outputs: The element type and the sizes of each output, with None for a size that is not known: shape
                inference does not know the operator.
            attributes: The attributes of the node.
        """
        domain, _, name = target.partition("::")
        made = self.op.make(name, *inputs, domain=domain, outputs=len(outputs), **attributes)
        values: tuple[ir.Value, ...] = made if len(outputs) > 1 else (made,)
        for value, (dtype, sizes) in zip(values, outputs, strict=True):
            value.type, value.shape = ir.TensorType(dtype), ir.Shape(sizes)
        return values

    def size(self, value: ir.Value, axis: int) -> Any:
        """A size of a value; None if it is not known."""
        return None if value.shape is None else value.shape[axis]

    def equate(self, *places: tuple[ir.Value, int]) -> None:
        """Write down that sizes, given as values and axes, are equal: a body can't be made for sizes that differ.

        A fixed size takes precedence over a name. Inputs of the model keep what they declare.
        """
        shaped = [(value, axis) for value, axis in places if value.shape is not None and axis < len(value.shape)]
        known = [self.size(value, axis) for value, axis in shaped]
        sizes = [size for size in known if isinstance(size, int)] or [size for size in known if size.value]
        for (value, axis), size in zip(shaped, known, strict=True):
            if sizes and not isinstance(size, int) and not value.is_graph_input():
                assert value.shape is not None
                value.shape = ir.Shape([*value.shape[:axis], sizes[0], *value.shape[axis + 1 :]])

    def finish(self, *values: ir.Value) -> None:
        """Replace the outputs of the node by these values, converted to the element types that the model declares."""
        self.replace(
            *(
                self.op.cast(value, output.dtype) if output.name and output.dtype is not None else value
                for value, output in zip(values, self.node.outputs, strict=False)
            )
        )


@functools.cache
def old_nodes() -> tuple[OldNode, ...]:
    """All conversions."""
    package = importlib.import_module(f"{__package__}.nodes")
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
    ]
    return tuple(
        getattr(value, _MARK)
        for module in modules
        for value in vars(module).values()
        if getattr(value, "__module__", None) == module.__name__ and hasattr(value, _MARK)
    )


def declare_for(model: ir.Model) -> None:
    """Declare the bodies and kernels of the converted nodes, if the model has nodes that may be converted."""
    if any(map(_may_be_old, all_nodes(model))):
        for name in vision.__all__:
            getattr(vision, name)


def convert_old_nodes(model: ir.Model, catalog: Catalog) -> tuple[ir.Model, tuple[Adaptation, ...]]:
    """Convert the old nodes of a model.

    Args:
        model: The model, which is not changed.
        catalog: The declarations. A node for which the user declares a body or a kernel is not converted.

    Returns:
        The model itself if it has no old nodes, otherwise a new one, in a newer opset if necessary; and the changes.

    Raises:
        TranslationError: A node can't be converted.
    """
    without_body = [node for node in all_nodes(model) if node.op_identifier() not in model.functions]
    present = {_target(node) for node in without_body if _may_be_old(node)}
    if not present:
        return model, ()
    declared = {spec.target for spec in catalog.user if spec.rung == "function"}
    declared |= {kernel.target for kernel in declared_kernels()}
    rows = {name: row for row in old_nodes() for name in row.names if name in present and name not in declared}
    if not rows:
        return model, ()
    opset = max(model.opset_imports.get("", 1), *(row.opset for row in rows.values()))
    converted = convert_opset(_with_domains(model), opset)
    if converted.unexpressed:
        lost = converted.unexpressed[0]
        raise TranslationError(
            f"The model's nodes {', '.join(sorted(rows))} need opset {opset}, and {lost.operator} ({lost.node}) "
            f"can't be converted to it: {lost.reason}",
            fix="convert the model with opbridge convert-opset, which lists what to change.",
        )
    changes: dict[str, list[str]] = {}
    names = Names(converted.model)
    for node in all_nodes(converted.model):
        if (row := rows.get(_target(node))) is not None and node.op_identifier() not in converted.model.functions:
            place, target = describe_node(node), _target(node)
            made = _convert(converted.model, node, row, opset, names)
            changes.setdefault(f"{target} becomes {_described(made)}", []).append(place)
    _import_domains(converted.model)
    return converted.model, tuple(Adaptation(what, tuple(nodes)) for what, nodes in changes.items())


def _with_domains(model: ir.Model) -> ir.Model:
    """A copy in which the nodes of plugins are not in the standard domain."""
    copy = model.clone()
    for node in all_nodes(copy):
        if node.op_type.endswith("_TRT"):
            node.domain = node.domain or "TRT"
    return copy


def _convert(model: ir.Model, node: ir.Node, row: OldNode, opset: int, names: Names) -> list[ir.Node]:
    """Replace a node, and return the new nodes."""
    if any(value is not None and (value.dtype is None or value.shape is None) for value in node.inputs):
        # Shape inference refuses a model that does not import the domain of a node.
        _import_domains(model)
        fill_types(model, shapes=True)
    name, target = describe_node(node), _target(node)
    made: list[ir.Node] = []
    builder = Builder(node, opset, names, made.append)
    try:
        row.convert(OldSite(node, opset, opset, builder, builder))
    except CannotExpress as refusal:
        raise TranslationError(
            f"The node {name} ({target}) can't be converted: {refusal}.",
            fix=f"declare a body for it with opbridge.body_for({target!r}), and name the file with --ops.",
        ) from refusal
    return made


def _described(made: Sequence[ir.Node]) -> str:
    """The custom operators of new nodes, or the standard operator if there is only one besides constants and casts."""
    custom = sorted({_target(node) for node in made if node.domain})
    standard = sorted({node.op_type for node in made if not node.domain} - {"Constant", "Cast"})
    if not custom:
        return standard[0] if len(standard) == 1 else "standard operators"
    return " and ".join([*custom, *(["standard operators"] if standard else [])])


def _import_domains(model: ir.Model) -> None:
    """Import the domains of the nodes, and no others."""
    used = {node.domain for node in all_nodes(model)}
    for domain in [domain for domain in model.opset_imports if domain and domain not in used]:
        del model.opset_imports[domain]
    for domain in used:
        model.opset_imports.setdefault(domain, 1)
    for node in all_nodes(model):
        node.version = None


def _may_be_old(node: ir.Node) -> bool:
    return node.domain in ("mmdeploy", "mmcv") or node.op_type.endswith("_TRT")


def _target(node: ir.Node) -> str:
    # Scripts that add plugin nodes to a finished model leave the domain empty.
    return f"{node.domain or 'TRT'}::{node.op_type}"
