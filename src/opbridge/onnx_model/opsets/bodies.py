"""Replaces a node by the function body that the ONNX standard defines for its operator."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from opbridge.onnx_model.opsets.result import CannotExpress
from opbridge.onnx_model.opsets.schemas import find_schema
from opbridge.onnx_model.opsets.site import Site

__all__ = ["expand_body"]


def expand_body(site: Site) -> None:
    """Replace the node by the standard's function body of its operator."""
    proto = _body(site)
    names = list(proto.output)
    made = {name for node in proto.node for name in node.output} | set(proto.input)
    del proto.output[:]
    # A body may not compute outputs that the node does not use.
    proto.output.extend(name for name in names if name in made)
    function = ir.serde.deserialize_function(proto)
    results = {value.name: value for value in function.outputs} | _bind(site, function)
    nodes = list(function)
    _resolve_attributes(site, function)
    function.outputs.clear()
    for node in nodes:
        function.graph.remove(node)
    for node in nodes:
        site.body.adopt(node)
    site.replace(*(results.get(name) for name in names))


def _body(site: Site) -> onnx.FunctionProto:
    schema = find_schema(site.node.op_type, site.opset)
    proto = onnx.FunctionProto()
    if schema.has_function:
        proto.ParseFromString(schema.get_function_with_opset_version(site.opset))
        if not proto.node:
            raise CannotExpress(f"the standard gives it no body in opset {site.opset}")
        return proto
    if schema.has_context_dependent_function:
        types = [onnx.TypeProto() if value is None else _type(site, value) for value in site.node.inputs]
        node = ir.serde.serialize_node(site.node).SerializeToString()
        found = schema.get_context_dependent_function_with_opset_version(
            site.opset, node, [item.SerializeToString() for item in types]
        )
        if found:
            proto.ParseFromString(found)
            return proto
    raise CannotExpress(f"opset {site.target} has no such operator, and the standard gives it no body for this use")


def _type(site: Site, value: ir.Value) -> onnx.TypeProto:
    if value.type is None:
        raise CannotExpress(f"the element type of {value.name} is not known")
    proto: onnx.TypeProto = ir.serde.serialize_value(value).type
    return proto


def _bind(site: Site, function: ir.Function) -> dict[str | None, ir.Value]:
    """Connect the body to the node's inputs."""
    bound: dict[str | None, ir.Value] = {}
    for position, formal in enumerate(function.inputs):
        actual = site.input(position)
        if actual is None:
            for user, index in tuple(formal.uses()):
                user.replace_input_with(index, None)
        else:
            formal.replace_all_uses_with(actual)
            bound[formal.name] = actual
    return bound


def _resolve_attributes(site: Site, function: ir.Function) -> None:
    """Replace references to the body's parameters by the node's attributes or their defaults."""
    schema = find_schema(site.node.op_type, site.opset)
    for node in function.all_nodes():
        for name, attribute in list(node.attributes.items()):
            if not attribute.is_ref():
                continue
            parameter: Any = attribute.ref_attr_name
            given = site.node.attributes.get(parameter)
            if given is not None and given.is_ref():
                raise CannotExpress(f"its attribute {parameter!r} is a parameter of the function that it stands in")
            if given is None and schema.attributes[parameter].default_value.name:
                given = ir.serde.deserialize_attribute(schema.attributes[parameter].default_value)
            if given is None:
                del node.attributes[name]
            else:
                node.attributes[name] = ir.Attr(name, given.type, given.value)
