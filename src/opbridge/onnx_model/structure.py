"""Checks the names, versions and graph structure of a model in protocol buffer form."""

from __future__ import annotations

import difflib
import graphlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import onnx

from opbridge.errors import InputError
from opbridge.onnx_model.names import describe_operator

__all__ = ["check_structure", "did_you_mean"]

_MOST_NODES = 1_000_000
"""The most nodes that a model with functions may expand to: 40 functions that call each other twice make 10**12."""
_DEEPEST_CALLS = 100
"""The most functions that call one another in a chain: the limit of ``onnx.inliner``."""
_LONGEST_COMPARED, _MOST_COMPARED = 200, 3000
"""The characters of a name, and the number of names, that a name with a typing error is compared with."""
_SHOWN_NODES = 8
"""The nodes of a cycle that an error names."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"did you mean 'x' or 'y'?"`` for similar known names; if there are none, the first few known names."""
    names = [item for item in known if item]
    # Comparing takes the product of two lengths for each name.
    near = [item for item in names if len(item) <= _LONGEST_COMPARED][:_MOST_COMPARED]
    close = difflib.get_close_matches(name, near, n=3, cutoff=0.5) if len(name) <= _LONGEST_COMPARED else []
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"one of {', '.join(map(repr, names[:8]))}{', …' if len(names) > 8 else ''}." if names else "there are none."


def check_structure(proto: onnx.ModelProto, name: str) -> None:
    """Check that the graph is acyclic, that every value is defined, and that the versions are supported.

    Args:
        proto: The model; its weights are not checked.
        name: The name of the model in error messages.

    Raises:
        InputError: A check failed; the message names the node and the value.
    """
    if not proto.HasField("graph"):
        raise InputError(f"{name} has no graph.", fix="pass an .onnx file of a model.")
    _check_versions(proto, name)
    _check_unsupported(proto, name)
    _check_graph(proto.graph, name, ())
    for function in proto.functions:
        where = f"The function {describe_operator(function.domain, function.name)} of {name}"
        _check_nodes(function.node, set(function.input), where, (), set(function.output))
    if proto.functions:
        _check_functions(proto, name)


def _check_versions(proto: onnx.ModelProto, name: str) -> None:
    if not 1 <= proto.ir_version <= onnx.IR_VERSION:
        raise InputError(
            f"{name} has the IR version {proto.ir_version}; the installed onnx supports 1 to {onnx.IR_VERSION}.",
            fix="pip install --upgrade onnx, or write the model with a supported IR version.",
        )
    imports: dict[str, int] = {}
    for item in proto.opset_import:
        domain = _standard(item.domain)
        if imports.setdefault(domain, item.version) != item.version:
            raise InputError(
                f"{name} imports the domain {domain or 'ai.onnx'!r} as version {imports[domain]} and {item.version}.",
                fix="write the model again with one opset per domain.",
            )
    _check_imports(imports, proto.graph.node, name)
    for function in proto.functions:
        own = {_standard(item.domain): item.version for item in function.opset_import}
        _check_imports(
            own, function.node, f"The function {describe_operator(function.domain, function.name)} of {name}"
        )


def _check_imports(imports: Mapping[str, int], nodes: Iterable[onnx.NodeProto], name: str) -> None:
    newest = onnx.defs.onnx_opset_version()
    if "" in imports and not 1 <= imports[""] <= newest:
        raise InputError(
            f"{name} has the unknown opset {imports['']}; the installed onnx supports 1 to {newest}.",
            fix="pip install --upgrade onnx, or write the model with a supported opset.",
        )
    for node in _all_nodes(nodes):
        if not (node.op_type + node.domain).isprintable():
            raise InputError(
                f"{name} has a node with the operator {node.op_type!r} in the domain {node.domain!r}: control "
                "characters in these names could show text of the model as if it were a message of opbridge.",
                fix="give the operator another name, and write the model again.",
            )
        if _standard(node.domain) not in imports:
            raise InputError(
                f"{name} has the node {_describe(node)} in the domain {node.domain or 'ai.onnx'!r}, "
                "but does not import an opset for that domain.",
                fix="add an opset import for that domain and write the model again.",
            )


def _check_unsupported(proto: onnx.ModelProto, name: str) -> None:
    for what, present in (
        ("sparse initializers", len(proto.graph.sparse_initializer)),
        ("training information", len(proto.training_info)),
    ):
        if present:
            raise InputError(f"{name} has {what}, which opbridge can't keep.", fix=f"write the model without {what}.")


def _check_graph(graph: onnx.GraphProto, name: str, outer: tuple[Set[str], ...]) -> set[str]:
    """Check a graph, and return the values that it reads from outside."""
    initializers = [tensor.name for tensor in graph.initializer]
    for duplicate in _duplicates(initializers):
        raise InputError(f"{name} has two initializers named {duplicate!r}.", fix="rename one of them.")
    inputs = [value.name for value in graph.input]
    for duplicate in _duplicates(inputs):
        raise InputError(f"{name} has two inputs named {duplicate!r}.", fix="rename one of them.")
    return _check_nodes(graph.node, {*initializers, *inputs}, name, outer, {value.name for value in graph.output})


def _check_nodes(
    proto_nodes: Iterable[onnx.NodeProto], given: Set[str], name: str, outer: tuple[Set[str], ...], outputs: Set[str]
) -> set[str]:
    """Check the nodes of a graph or function, and return the values that they read from outside."""
    nodes = list(proto_nodes)  # Each iteration over a message's own list makes new objects.
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for output in filter(None, node.output):
            if output in producers or output in given:
                first = producers.get(output)
                origin = "is an input or initializer" if first is None else f"{_describe(nodes[first])} produces"
                raise InputError(
                    f"{name}: the node {_describe(node)} produces {output!r}, which {origin} too.",
                    fix="give each value in a graph a unique name.",
                )
            producers[output] = index
    visible = ({*given, *producers}, *outer)
    reads = [_check_node(node, name, visible) for node in nodes]
    for output in sorted(outputs):
        if not _is_known(output, visible):
            raise _unknown(output, visible, f"{name}: nothing produces the output {output!r}.")
    if any(producers.get(value, -1) >= index for index, values in enumerate(reads) for value in values):
        _check_acyclic(nodes, reads, producers, name)
    return set(outputs).union(*reads) - visible[0]


def _check_node(node: onnx.NodeProto, name: str, visible: tuple[Set[str], ...]) -> set[str]:
    """Check the inputs, attributes and subgraphs of a node, and return the values that they read."""
    reads = set(filter(None, node.input))
    if not reads <= visible[0]:
        for value in filter(None, node.input):
            if not _is_known(value, visible):
                message = f"{name}: the node {_describe(node)} reads {value!r}, which nothing produces."
                raise _unknown(value, visible, message)
    for attribute in node.attribute:
        if not (attribute.type or attribute.ref_attr_name):
            raise InputError(
                f"{name}: the attribute {attribute.name!r} of the node {_describe(node)} has no type.",
                fix="the file is damaged, or older than ONNX 1.0: write the model again.",
            )
    for graph in _subgraphs(node):
        reads |= _check_graph(graph, f"{name}, inside the node {_describe(node)}", visible)
    return reads


def _is_known(value: str, visible: tuple[Set[str], ...]) -> bool:
    return any(value in scope for scope in visible)


def _unknown(value: str, visible: tuple[Set[str], ...], message: str) -> InputError:
    return InputError(message, fix=did_you_mean(value, sorted(set().union(*visible))))


def _check_acyclic(
    nodes: Sequence[onnx.NodeProto], reads: Sequence[Set[str]], producers: Mapping[str, int], name: str
) -> None:
    order: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter()
    for index, values in enumerate(reads):
        order.add(index, *(producers[value] for value in values if value in producers))
    try:
        order.prepare()
    except graphlib.CycleError as error:
        found = [_describe(nodes[index]) for index in error.args[1]]
        if len(found) > _SHOWN_NODES:
            found = [*found[: _SHOWN_NODES - 1], "…", found[-1]]
        cycle = " → ".join(found)
        raise InputError(
            f"{name} has a cycle: {cycle}.", fix="remove the cycle, or express the repetition with a Loop."
        ) from error


def _check_functions(proto: onnx.ModelProto, name: str) -> None:
    """Check that functions do not call each other in a circle, and do not expand to a model without end."""
    bodies = {(function.domain, function.name): function.node for function in proto.functions}
    calls = {key: Counter((node.domain, node.op_type) for node in _all_nodes(nodes)) for key, nodes in bodies.items()}
    order = graphlib.TopologicalSorter({key: called.keys() & bodies.keys() for key, called in calls.items()})
    try:
        ordered = list(order.static_order())
    except graphlib.CycleError as error:
        cycle = " → ".join(describe_operator(*item) for item in error.args[1])
        raise InputError(f"{name} has recursive functions: {cycle}.", fix="use a Loop instead.") from error
    sizes: dict[tuple[str, str], int] = {}
    depths: dict[tuple[str, str], int] = {}
    for key in ordered:
        depths[key] = 1 + max((depths.get(called, 0) for called in calls[key]), default=0)
        if depths[key] > _DEEPEST_CALLS:
            raise InputError(
                f"{name} has a chain of more than {_DEEPEST_CALLS} functions that call one another, up to "
                f"{describe_operator(*key)}: the installed onnx inlines no longer one.",
                fix="inline some of them in the program that writes the model.",
            )
        sizes[key] = sum(count * sizes.get(called, 1) for called, count in calls[key].items())
    size = sum(sizes.get((node.domain, node.op_type), 1) for node in _all_nodes(proto.graph.node))
    if size > _MOST_NODES:
        raise InputError(
            f"{name} has functions that call functions so often that it expands to more than {_MOST_NODES:,} nodes.",
            fix="use a Loop instead, or fewer calls.",
        )


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for graph in _subgraphs(node):
            yield from _all_nodes(graph.node)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _duplicates(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


def _standard(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _describe(node: onnx.NodeProto) -> str:
    return (
        f"{node.name!r} ({describe_operator(node.domain, node.op_type)})"
        if node.name
        else describe_operator(node.domain, node.op_type) + f" that produces {next(iter(node.output), '')!r}"
    )
