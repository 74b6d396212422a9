"""The table of planted faults, and how a bundle with one of them is made.

A fault is planted in the ONNX model of a sound bundle, or lies in the C++ of a kernel. Everything else of the bundle is
what an export wrote. Two are ONNX Runtime's own: a fusion that overflows at some weights, and its mean of nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fault_models
import numpy as np
import onnx_ir as ir

import opbridge
from opbridge.bundle.bundle import Bundle
from opbridge.bundle.write import write_bundle
from opbridge.capture.entry import Entry
from opbridge.proof.verify.verification import Verification

__all__ = ["FAULTS", "MODES", "NAMED", "Fault", "faulty_bundle", "named_node", "sound_bundle"]


MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "edge sizes": {"edge_sizes": True},
    "special values": {"special_values": "require"},
}
"""What opbridge.verify is asked for, besides the inputs that it always makes."""

NAMED = "named"
"""What :func:`named_node` says where bisection finds the planted node."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        name: What is wrong.
        model: The function of fault_models.py that makes the model.
        plant: Changes the ONNX model, and returns the names of the nodes that are wrong from then on; None for a fault
            of a kernel, whose node has the kernel's name.
        mode: The inputs that must show it, one of :data:`MODES`.
        said: What bisection must say of it: :data:`NAMED`, or a verdict that names no node.
    """

    name: str
    model: Callable[[], Entry]
    plant: Callable[[ir.Model], tuple[str, ...]] | None
    mode: str = "default"
    said: str = NAMED

    @property
    def options(self) -> dict[str, Any]:
        """The options of opbridge.verify that must show it."""
        return MODES[self.mode]

    @property
    def deterministic(self) -> bool:
        """Whether it shows in every run."""
        return self.said != "not deterministic"


def _node(model: ir.Model, name: str) -> ir.Node:
    """The node of this name, or the first of this operator: some names depend on torch's version."""
    return next(node for node in model.graph if name in (node.name, node.op_type))


def _name(node: ir.Node) -> str:
    assert node.name
    return node.name


def _attribute(name: str, attribute: ir.Attr) -> Callable[[ir.Model], tuple[str, ...]]:
    """The node ``name`` gets another value of an attribute."""

    def plant(model: ir.Model) -> tuple[str, ...]:
        _node(model, name).attributes[attribute.name] = attribute
        return (name,)

    return plant


def _dropped(name: str, attribute: str) -> Callable[[ir.Model], tuple[str, ...]]:
    """The node ``name`` loses an attribute, so that the standard's default holds."""

    def plant(model: ir.Model) -> tuple[str, ...]:
        del _node(model, name).attributes[attribute]
        return (name,)

    return plant


def _swapped(operator: str, first: int, second: int) -> Callable[[ir.Model], tuple[str, ...]]:
    """The only node of ``operator`` gets two of its inputs in the other order; its name depends on torch's version."""

    def plant(model: ir.Model) -> tuple[str, ...]:
        (node,) = (node for node in model.graph if node.op_type == operator)
        one, other = node.inputs[first], node.inputs[second]
        node.replace_input_with(first, other)
        node.replace_input_with(second, one)
        return (_name(node),)

    return plant


def _constant(name: str, index: int, change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., tuple[str, ...]]:
    """The constant that is input number ``index`` of the node ``name`` is another one, for this node only."""

    def plant(model: ir.Model) -> tuple[str, ...]:
        node = _node(model, name)
        old = node.inputs[index]
        assert old is not None
        assert old.const_value is not None
        array = change(np.array(old.const_value.numpy()))
        value = ir.Value(name=f"{old.name}_wrong", const_value=ir.tensor(array, name=f"{old.name}_wrong"))
        value.shape, value.dtype = ir.Shape(array.shape), old.dtype
        model.graph.register_initializer(value)
        node.replace_input_with(index, value)
        return (_name(node),)

    return plant


def _replaced(*names: str, by: Callable[[ir.Value], ir.Value]) -> Callable[[ir.Model], tuple[str, ...]]:
    """The chain of nodes ``names`` becomes the nodes that ``by`` makes of its input.

    The last of them gets the name and the output of the last one that goes.
    """

    def plant(model: ir.Model) -> tuple[str, ...]:
        first, last = _node(model, names[0]), _node(model, names[-1])
        source = first.inputs[0]
        assert source is not None
        made: list[ir.Node] = []
        result = by(source)
        pending = [result.producer()]
        while pending:
            node = pending.pop()
            if node is not None and node.graph is None and node not in made:
                made.insert(0, node)
                pending += [value.producer() for value in node.inputs if value is not None]
        output = last.outputs[0]
        ir.convenience.replace_nodes_and_values(
            model.graph, last, [_node(model, name) for name in names], made, [output], [result]
        )
        made[-1].name = names[-1]
        for number, node in enumerate(made[:-1]):
            node.name = f"{names[-1]}_wrong_{number}"
        return tuple(_name(node) for node in made)

    return plant


def _op(operator: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
    return ir.node(operator, list(inputs), attributes=attributes).outputs[0]


def _number(value: Any) -> ir.Value:
    return _op("Constant", value=ir.tensor(value))


def _half_away_from_zero(x: ir.Value) -> ir.Value:
    magnitude = _op("Floor", _op("Add", _op("Abs", x), _number(np.float32(0.5))))
    return _op("Mul", _op("Sign", x), magnitude)


def _squares_in_half(x: ir.Value) -> ir.Value:
    # A multiplication in float16 would not do: ONNX Runtime has none on the CPU, and takes float32 by itself.
    return _op("Cast", _op("Cast", _op("Mul", x, x), to=ir.DataType.FLOAT16.value), to=ir.DataType.FLOAT.value)


def _truncated(x: ir.Value) -> ir.Value:
    return _op("Div", x, _number(np.int64(4)))


def _last_row_of_zeros(table: np.ndarray) -> np.ndarray:
    table[-1] = 0
    return table


def _one_deviation(values: np.ndarray) -> np.ndarray:
    values[0, 1] *= 1.0005
    return values


def _reads(name: str, index: int, change: Callable[[ir.Value], ir.Value]) -> Callable[[ir.Model], tuple[str, ...]]:
    """The node ``name`` reads what ``change`` makes of its input number ``index``."""

    def plant(model: ir.Model) -> tuple[str, ...]:
        node = _node(model, name)
        source = node.inputs[index]
        assert source is not None
        changed = change(source)
        made: list[ir.Node] = []
        pending = [changed.producer()]
        while pending:
            before = pending.pop()
            if before is not None and before.graph is None and before not in made:
                made.insert(0, before)
                pending += [value.producer() for value in before.inputs if value is not None]
        for number, new in enumerate(made):
            new.name = f"{name}_wrong_{number}"
        model.graph.insert_before(node, made)
        node.replace_input_with(index, changed)
        return (name, *(_name(new) for new in made))

    return plant


def _one_further(places: ir.Value) -> ir.Value:
    return _op("Mod", _op("Add", places, _number(np.int64(1))), _number(np.int64(48)))


def _descending(places: ir.Value) -> ir.Value:
    # Of float32 numbers, for which every engine has a TopK.
    numbers = _op("Cast", places, to=ir.DataType.FLOAT.value)
    node = ir.node("TopK", [numbers, _number(np.array([6]))], {"axis": 1}, num_outputs=2)
    return _op("Cast", node.outputs[0], to=ir.DataType.INT64.value)


def _kernel(name: str) -> Callable[[], Entry]:
    return functools.partial(fault_models.with_kernel, name)


FAULTS = (
    Fault("a constant is off by 0.05%", fault_models.image, _constant("node_div", 1, _one_deviation)),
    Fault("a dropped attribute: LeakyRelu's alpha", fault_models.image, _dropped("node_leaky_relu", "alpha")),
    Fault("swapped inputs of a subtraction", fault_models.sequence, _swapped("Sub", 0, 1)),
    Fault("swapped branches of a selection", fault_models.sequence, _swapped("Where", 1, 2)),
    Fault(
        "float16 overflows where float32 is due", fault_models.half_norm, _replaced("node_pow_1", by=_squares_in_half)
    ),
    Fault(
        "softmax along the axis before",
        fault_models.sequence,
        _attribute("node_aten__softmax_int", ir.AttrInt64("axis", -2)),
    ),
    Fault(
        "the divisor of a pool counts padding",
        fault_models.image,
        _attribute("node_avg_pool2d", ir.AttrInt64("count_include_pad", 1)),
    ),
    Fault("a lost transpose", fault_models.mixer, _replaced("node_transpose", by=lambda x: _op("Identity", x))),
    Fault(
        "a normalization's epsilon is 1e-3 for 1e-5",
        fault_models.sequence,
        _attribute("node_layer_norm", ir.AttrFloat32("epsilon", 1e-3)),
    ),
    Fault(
        "resizing from corners instead of centres",
        fault_models.image,
        _attribute("node_upsample_bilinear2d", ir.AttrString("coordinate_transformation_mode", "asymmetric")),
    ),
    Fault(
        "padding repeats the edge instead of reflecting",
        fault_models.image,
        _attribute("node_reflection_pad2d", ir.AttrString("mode", "edge")),
    ),
    Fault("ties are rounded away from zero", fault_models.steps, _replaced("node_round_1", by=_half_away_from_zero)),
    Fault(
        "integer division truncates instead of flooring",
        fault_models.counts,
        _replaced(
            *("node_Div_2", "node_Mul_3", "node_Less_4", "node_Cast_5", "node_floor_divide"),
            by=_truncated,
        ),
    ),
    Fault(
        "the last row of an embedding is zero",
        fault_models.sequence,
        _constant("node_embedding", 0, _last_row_of_zeros),
    ),
    Fault(
        "a fusion overflows in a convolution's weights",
        fault_models.scaled,
        lambda model: (),
        said="vanishes when observed",
    ),
    Fault(
        "the worst places instead of the best",
        fault_models.detector,
        _attribute("node_topk__1", ir.AttrInt64("largest", 0)),
    ),
    Fault("the boxes of the places after the best", fault_models.detector, _reads("node_gather", 1, _one_further)),
    Fault("boxes in another order than their labels", fault_models.detector, _reads("node_gather", 1, _descending)),
    Fault(
        "a suppression's threshold is 0.2 for 0.4",
        fault_models.suppressor,
        _constant("NonMaxSuppression", 3, lambda threshold: np.full_like(threshold, 0.2)),
    ),
    Fault("the mean of nothing is 0", fault_models.average, lambda model: ("node_mean",), "edge sizes"),
    Fault("a kernel wrong at odd sizes only", _kernel("odd_sizes"), None),
    Fault("a kernel wrong at size 1 only", _kernel("size_one"), None, "edge sizes"),
    Fault("a kernel wrong at size 0 only", _kernel("size_zero"), None, "edge sizes"),
    Fault("a kernel gives NaN for large inputs", _kernel("large_inputs"), None, "special values"),
    Fault("a kernel loses NaN", _kernel("nan_lost"), None, "special values"),
    Fault("a kernel loses the sign of zero", _kernel("signed_zero"), None, "special values"),
    Fault("a kernel wrong in a quarter of its runs", _kernel("some_runs"), None, said="not deterministic"),
)


_folders: list[tempfile.TemporaryDirectory[str]] = []
"""Each lasts as long as the process."""


@functools.cache
def sound_bundle(model: Callable[[], Entry]) -> tuple[Bundle, Entry]:
    """A model's bundle as exported, not verified; one per process. The bundle of a kernel's model has its fault."""
    entry = model()
    _folders.append(tempfile.TemporaryDirectory(prefix="opbridge-faults-"))
    path = Path(_folders[-1].name) / "bundle"
    shapes = entry.dynamic_shapes
    bundle = opbridge.export(entry.model, entry.args, path=path, dynamic_shapes=shapes, verify=False, nan="exact")
    return bundle, entry


def faulty_bundle(fault: Fault, folder: Path) -> tuple[Bundle, Entry, tuple[str, ...]]:
    """A bundle with a fault, in a folder that is made; its entry; and the names of the nodes that are wrong."""
    sound, entry = sound_bundle(fault.model)
    file = sound.model_file("onnxruntime")
    model = ir.load(file)
    nodes = fault.plant(model) if fault.plant else tuple(_name(n) for n in model.graph if n.domain == "faults")

    def write(target: Path) -> None:
        for name in sound.manifest["files"]:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(sound.path / name, target / name)
        if fault.plant:
            ir.save(model, target / file.relative_to(sound.path))

    return write_bundle(folder, sound.manifest, write, sources=sound.sources), entry, nodes


def named_node(found: Verification, nodes: Sequence[str]) -> str:
    """What bisection says of the planted nodes: :data:`NAMED` if all divergences are at one of them.

    Otherwise a verdict of a divergence that is not, or the node that was named instead.
    """
    if not found.divergences:
        return "no divergence"
    for divergence in found.divergences:
        if divergence.verdict != "diverges":
            return divergence.verdict
        first = divergence.first.node if divergence.first else ""
        if first not in nodes and not set(nodes) & set(divergence.between):
            return f"{first} instead"
    return NAMED
