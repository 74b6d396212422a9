"""Converts the body of a symbolic function to the body of a translation."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst
import onnx

from opbridge.legacy.migrate import helper_calls
from opbridge.legacy.migrate.constants import constant_value, is_arithmetic
from opbridge.legacy.migrate.script import Script, is_name
from opbridge.legacy.validity import is_kept

__all__ = ["DEFAULT_OPSET", "NotConvertible", "convert_body", "own_parameters", "parsed_letters"]

DEFAULT_OPSET = 18
"""The default opset of a translation."""

_SUFFIX = re.compile(r"(\w+)_([ifstgz])")


class NotConvertible(Exception):
    """A symbolic function contains a construct that a translation can't express.

    Args:
        reason: The reason, for the user.
        node: The node of the construct.
    """

    def __init__(self, reason: str, node: cst.CSTNode) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


def own_parameters(function: cst.FunctionDef) -> list[cst.Param]:
    """Return the parameters of a symbolic function after ``g``.

    Raises:
        NotConvertible: The function has starred parameters, or has no parameter ``g``.
    """
    parameters = function.params
    required = [parameter for parameter in parameters.kwonly_params if parameter.default is None]
    starred = isinstance(parameters.star_arg, cst.Param) or parameters.star_kwarg or required
    if starred or not parameters.params or parameters.posonly_params:
        raise NotConvertible("it has starred parameters", function)
    return list(parameters.params[1:])


def parsed_letters(script: Script, function: cst.FunctionDef) -> list[str]:
    """Return the argument descriptors of ``@parse_args``; empty without this decorator."""
    for decorator in function.decorators:
        call = decorator.decorator
        if isinstance(call, cst.Call) and script.path(call.func).endswith(".parse_args"):
            return [argument.value.evaluated_value for argument in call.args]  # type: ignore[attr-defined]
    return []


def convert_body(
    script: Script, function: cst.FunctionDef, renamed: dict[str, str], of_class: bool = False
) -> cst.BaseSuite:
    """Return the body of the function, converted to onnxscript calls and :func:`opbridge.custom_node`.

    Args:
        script: The script.
        function: The symbolic function.
        renamed: The new names of parameters that are renamed.
        of_class: Whether it is the symbolic function of an autograd.Function, which gets numbers as they are.

    Raises:
        NotConvertible: A construct in the body can't be converted.
    """
    converter = _Body(script, function, renamed, of_class)
    body = function.body.visit(converter)
    for returned in script.walk(cst.Return, function.body):
        elements = returned.value.elements if isinstance(returned.value, cst.Tuple) else ()
        if any(is_name(item.value, "None") for item in elements):
            raise NotConvertible("it returns None for a result", returned)
    for call in script.walk(cst.Call, body):  # type: ignore[arg-type]
        if _method(call) == "type" and not call.args:
            raise NotConvertible("it stores the type of a value", function.name)
        if _method(call) in ("with_sizes", "setDebugName"):
            raise NotConvertible(f"it uses .{_method(call)}() in an expression", function.name)
    for name in script.walk(cst.Name, body):  # type: ignore[arg-type]
        if name.value == converter.graph:
            raise NotConvertible(f"it uses {converter.graph} other than in {converter.graph}.op", function.name)
        if script.path(name).startswith(("torch.onnx.symbolic", "torch.onnx._internal", "torch.onnx.utils")):
            raise NotConvertible(f"it calls {name.value}, which has no counterpart", function.name)
    return body  # type: ignore[return-value]


class _Body(cst.CSTTransformer):
    """Converts operations on ``g`` and its values, innermost first."""

    def __init__(self, script: Script, function: cst.FunctionDef, renamed: dict[str, str], of_class: bool) -> None:
        super().__init__()
        self.script = script
        self.graph = function.params.params[0].name.value
        self.renamed = renamed
        self.arithmetic = _used_in_arithmetic(script, function, self.graph)
        self.custom: set[str] = set()
        self.with_sizes: dict[int, cst.BaseExpression] = {}
        self.typed = {parameter.name.value for parameter in function.params.params}
        self.parameters = frozenset(self.typed)
        self.of_class = of_class

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return updated_node.with_changes(value=self.renamed.get(updated_node.value, updated_node.value))

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        # A keyword is not a use of the parameter with the same name.
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        owner = original_node.value
        if isinstance(owner, cst.Name) and owner.value == self.graph and original_node.attr.value == "opset":
            self.script.needs.add("op")
            return cst.parse_expression("op.version")
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        return helper_calls.dtype_number(self.script, original_node) or updated_node

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.BaseSmallStatement:
        call = original_node.value
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
            return updated_node
        if _method(call) not in ("setType", "setTypeAs", "setDebugName"):
            return updated_node
        value = call.func.value
        if not isinstance(value, cst.Name):
            raise NotConvertible(
                f"it changes an expression that is not a name: {self.script.code(call)}", original_node
            )
        if _method(call) == "setDebugName":
            named = updated_node.value.args[0].value  # type: ignore[attr-defined]
            text = f"{self._name(value)}.name = {self.script.code(named)}"
        else:
            text = self._typed(value, call)
        return cst.parse_statement(text).body[0]  # type: ignore[index, union-attr, return-value]

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        assign = original_node.body[0]
        if isinstance(assign, cst.Import | cst.ImportFrom) and helper_calls.imports_helpers(self.script, assign):
            return cst.RemoveFromParent()
        if len(original_node.body) > 1 or not isinstance(assign, cst.Assign) or not isinstance(assign.value, cst.Call):
            return updated_node
        target = assign.targets[0].target
        if _method(assign.value) not in ("setType", "setTypeAs") or not isinstance(target, cst.Name):
            return updated_node
        return cst.FlattenSentinel([updated_node, cst.parse_statement(self._typed(target, assign.value))])

    def _typed(self, value: cst.Name, call: cst.Call) -> str:
        """Return the statement that sets the type and shape of a value to those of another one."""
        other = call.args[0].value
        sizes = ""
        if isinstance(other, cst.Call) and _method(other) == "with_sizes" and other.args:
            self.script.needs.add("ir")
            sizes = f"ir.Shape({self.script.code(self.with_sizes[id(other)])})"
            other = other.func.value  # type: ignore[attr-defined]
        if _method(call) == "setType" and isinstance(other, cst.Call) and _method(other) == "type":
            other = other.func.value  # type: ignore[attr-defined]
        if not isinstance(other, cst.Name):
            raise NotConvertible(
                f"it sets a type that is not the type of another value: {self.script.code(call)}", call
            )
        self.typed.add(value.value)
        to, origin = self._name(value), self._name(other)
        return f"{to}.type, {to}.shape = {origin}.type, {sizes or f'{origin}.shape'}"

    def _name(self, name: cst.Name) -> str:
        return self.renamed.get(name.value, name.value)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        function = original_node.func
        if isinstance(function, cst.Attribute) and is_name(function.value, self.graph):
            return self._graph_call(function.attr.value, original_node, updated_node)
        method = _method(original_node)
        if method in ("setType", "setTypeAs"):
            return updated_node.func.value  # type: ignore[attr-defined, no-any-return]
        if method == "with_sizes" and updated_node.args:
            self.with_sizes[id(original_node)] = updated_node.args[0].value
        if method in ("isCompleteTensor", "debugName"):
            return self._asked(method, original_node, updated_node)
        asked = helper_calls.asked_of_a_type(self.script, original_node, updated_node)
        if asked is not None:
            for name in self.script.walk(cst.Name, function.value):  # type: ignore[attr-defined]
                if method == "type" and name.value not in self.typed:
                    raise NotConvertible(f"it reads the type of {name.value}, which it computed itself", original_node)
            return asked
        if method in _UNKNOWN_METHODS:
            raise NotConvertible(f"it calls .{method}() on a value", original_node)
        path = self.script.path(function)
        if self.of_class and path.endswith("symbolic_helper._is_value") and self._is_parameter(original_node.args):
            self.script.needs.add("ir")
            return cst.parse_expression(f"isinstance({self.script.code(updated_node.args[0].value)}, ir.Value)")
        if path.startswith(("torch.onnx.symbolic", "torch.onnx._internal")):
            converted = helper_calls.helper_call(path, updated_node)
            if converted is None:
                raise NotConvertible(f"it calls {path.removeprefix('torch.onnx.')}", original_node)
            self.script.needs.add("op")
            return converted
        return updated_node

    def _is_parameter(self, arguments: Sequence[cst.Arg]) -> bool:
        value = arguments[0].value if len(arguments) == 1 else None
        return isinstance(value, cst.Name) and value.value in self.parameters

    def _asked(self, method: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Convert a method call on a value."""
        value = original.func.value  # type: ignore[attr-defined]
        name = self.script.code(updated.func.value)  # type: ignore[attr-defined]
        if method == "debugName":
            return cst.parse_expression(f"{name}.name")
        if not isinstance(value, cst.Name) or value.value not in self.typed | self.custom:
            raise NotConvertible(f"it calls .{method}() on the result of a standard node", original)
        return cst.parse_expression(f"({name}.shape is not None and {name}.shape.is_static())")

    def _graph_call(self, method: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        if method not in ("op", "at", "aten_op"):
            raise NotConvertible(f"it calls {self.graph}.{method}", original)
        try:
            name = str(self.script.value(original.args[0].value))
        except (ValueError, IndexError) as error:
            raise NotConvertible("the name of a node is not a literal", original) from error
        domain, _, operator = name.rpartition("::")
        if method != "op":
            domain, operator = "org.pytorch.aten", "ATen"
        standard = domain in ("", "onnx")
        if standard and operator == "Constant":
            return self._constant(original, updated)
        if any(argument.star == "**" for argument in original.args):
            raise NotConvertible("the names of its attributes are known only at run time", original)
        inputs = [argument.with_changes(comma=cst.MaybeSentinel.DEFAULT) for argument in updated.args[1:]]
        positional = [argument for argument in inputs if argument.keyword is None]
        keywords = self._attributes([item for item in inputs if item.keyword is not None], standard, original)
        if standard and is_kept(operator, [item.keyword.value for item in keywords if item.keyword is not None]):
            raise NotConvertible(f"ONNX has no {operator} with these attributes; give the node a domain", original)
        if standard:
            if not any(isinstance(node, cst.If | cst.IfExp) for node in self.script.parents(original)):
                _check_opset(operator, keywords, original)  # In a branch, it may be for an older opset.
            self.script.needs.add("op")
            keywords = [self._as_number(operator, item) for item in keywords]
            return _call(f"op.{operator}", [*positional, *keywords], updated)
        self.script.needs.add("opbridge")
        self.custom |= {_assigned_name(next(self.script.parents(original))) or ""}
        if method != "op":
            keywords.insert(0, cst.Arg(cst.SimpleString(repr(name)), cst.Name("operator")))
        node = cst.Arg(cst.SimpleString(f'"{domain}::{operator}"'))
        return _call("opbridge.custom_node", [node, *positional, *keywords], updated)

    def _as_number(self, operator: str, argument: cst.Arg) -> cst.Arg:
        """Convert an element type to its number, where it is looked up: onnxscript does not take torch's enum."""
        value, key = argument.value, argument.keyword.value if argument.keyword is not None else ""
        local = isinstance(value, cst.Name) and value.value not in self.parameters and value.value not in _WORDS
        if key != "to" or operator not in ("Cast", "Constant") or not (local or isinstance(value, cst.Subscript)):
            return argument
        return argument.with_changes(value=_call("int", [cst.Arg(value)], None))

    def _attributes(self, keywords: Sequence[cst.Arg], standard: bool, original: cst.Call) -> list[cst.Arg]:
        converted = []
        for argument in keywords:
            assert argument.keyword is not None
            key = argument.keyword.value
            if key == "outputs":
                if not standard:
                    converted.append(argument.with_changes(keyword=cst.Name("num_outputs")))
                continue
            found = _SUFFIX.fullmatch(key)
            if found is None:
                plain = key == "overload_name"
                if not plain:
                    raise NotConvertible(f"the attribute {key} has no suffix", original)
                converted.append(argument)
                continue
            converted.append(self._attribute(argument, found[1], found[2], original))
        return converted

    def _attribute(self, argument: cst.Arg, name: str, kind: str, original: cst.Call) -> cst.Arg:
        value = argument.value
        if kind in "gz":
            raise NotConvertible(f"the attribute {name}_{kind} is a graph", original)
        if kind == "t":
            self.script.needs.add("ir")
            if isinstance(value, cst.List | cst.Tuple):
                made = [element.with_changes(value=_tensor(element.value)) for element in value.elements]
                value = value.with_changes(elements=made)
            else:
                value = _tensor(value)
        if kind == "i" and "TensorProtoDataType" in self.script.path(value):
            value = cst.Call(cst.Name("int"), [cst.Arg(value)])
        if kind == "f" and isinstance(value, cst.Integer):
            value = cst.Float(f"{value.value}.0")
        return argument.with_changes(keyword=cst.Name(name), value=value)

    def _constant(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        parent = next(self.script.parents(original))
        arithmetic = _assigned_name(parent) in self.arithmetic or id(original) in self.arithmetic
        value = constant_value(self.script, original, updated, arithmetic)
        if value is None:
            raise NotConvertible("the contents of a Constant are unknown", original)
        if isinstance(parent, cst.Return):
            self.script.needs.add("op")
            return _call("op.Identity", [cst.Arg(value)], None)
        return value


def _check_opset(operator: str, keywords: Sequence[cst.Arg], original: cst.Call) -> None:
    """Raise NotConvertible for a node of another opset than that of the functions of onnxscript that are used."""
    if not onnx.defs.has(operator, DEFAULT_OPSET, ""):
        raise NotConvertible(f"{operator} is newer than opset {DEFAULT_OPSET}", original)
    known = onnx.defs.get_schema(operator, DEFAULT_OPSET, "").attributes
    for item in keywords:
        if item.keyword is not None and item.keyword.value not in known:
            reason = f"{operator} has no attribute {item.keyword.value} at opset {DEFAULT_OPSET}"
            raise NotConvertible(reason, original)


_WORDS = {"None", "True", "False"}
_UNKNOWN_METHODS = {"node", "isSubtypeOf", "mustBeNone", "kind"}


def _tensor(value: cst.BaseExpression) -> cst.Call:
    return _call("ir.tensor", [cst.Arg(value)], None)


def _used_in_arithmetic(script: Script, function: cst.FunctionDef, graph: str) -> set[object]:
    """Return the names and nested constants that are operands of arithmetic only, where numbers are promoted."""
    arithmetic: set[object] = set()
    other: set[object] = set()
    for call in script.walk(cst.Call, function):
        if not (isinstance(call.func, cst.Attribute) and is_name(call.func.value, graph)) or not call.args:
            continue
        used = arithmetic if is_arithmetic(call.args[0].value) else other
        for argument in call.args[1:]:
            if isinstance(argument.value, cst.Name):
                used.add(argument.value.value)
            elif isinstance(argument.value, cst.Call):
                used.add(id(argument.value))
    return arithmetic - other


def _assigned_name(parent: cst.CSTNode) -> str | None:
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0].target, cst.Name):
        return parent.targets[0].target.value
    return None


def _call(function: str, arguments: Sequence[cst.Arg], layout: cst.Call | None) -> cst.Call:
    """Return a call with the layout of the call that it replaces."""
    call = cst.Call(cst.parse_expression(function), [*arguments])
    if layout is None or not layout.args:
        return call
    commas: list[cst.Comma | cst.MaybeSentinel] = [argument.comma for argument in layout.args]
    between = next((comma for comma in commas if isinstance(comma, cst.Comma)), cst.MaybeSentinel.DEFAULT)
    spread = [argument.with_changes(comma=between) for argument in arguments]
    if spread:
        spread[-1] = spread[-1].with_changes(
            comma=commas[-1], whitespace_after_arg=layout.args[-1].whitespace_after_arg
        )
    return call.with_changes(args=spread, whitespace_before_args=layout.whitespace_before_args)


def _method(call: cst.Call) -> str:
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
