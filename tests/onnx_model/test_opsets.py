"""Models at other opsets: every change is accounted for, ONNX's node tests hold, and nothing is silent."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from one_node import make_model, one_node, save, to_ir
from onnx import TensorProto, helper, numpy_helper
from places import ROOT

import opbridge
from opbridge.cli import main
from opbridge.errors import InputError, UnsupportedOperatorError
from opbridge.onnx_model.opsets import NEWEST_OPSET, OLDEST_OPSET, convert_opset, steps

pytestmark = [pytest.mark.newest, pytest.mark.one_worker]

ENGINE_NEWEST = min(26, NEWEST_OPSET)
RANDOM = np.random.default_rng(0)

# Every change of every operator in the standard.

SCHEMAS = {(s.name, s.since_version): s for s in onnx.defs.get_all_schemas_with_history() if not s.domain}


def older(name: str, version: int) -> Any:
    """The schema that ``version`` replaced, if there was one."""
    versions = [known for other, known in SCHEMAS if other == name and known < version]
    return SCHEMAS[name, max(versions)] if versions else None


def changes(direction: str) -> list[tuple[str, int]]:
    """What a walk may meet: up also what came before opset 11, down also new operators."""
    first = OLDEST_OPSET if direction == "down" else 7
    return sorted(k for k in SCHEMAS if k[1] > first and (direction == "down" or older(*k) is not None))


@pytest.mark.parametrize("direction", ["down", "up"])
def test_every_change_is_accounted_for(direction: Any) -> None:
    handled = {}
    for name, version in changes(direction):
        step = steps.find_step(direction, name, version)
        alike = steps.is_declared_alike(direction, name, version)
        handled[name, version] = f"converted by {step.file}" if step else "same" if alike else None
    assert [change for change, how in handled.items() if how is None] == []
    assert handled["LayerNormalization", 17] == "converted by layer_normalization.py" if direction == "down" else True


def attributes(schema: Any) -> dict[str, tuple[Any, bool, bytes]]:
    return {
        name: (item.type, item.required, item.default_value.SerializeToString())
        for name, item in schema.attributes.items()
    }


def options(parameters: Any) -> list[Any]:
    return [item.option for item in parameters]


def declared(direction: str, table: str) -> list[tuple[str, int]]:
    return [
        (name, version)
        for module in steps._modules(direction)
        for version, names in getattr(module, table, {}).items()
        for name in names.split()
        if (name, version) in SCHEMAS
    ]


@pytest.mark.parametrize(("name", "version"), declared("down", "TYPES_ONLY"), ids=lambda item: str(item))
def test_what_is_said_to_change_types_alone_does(name: str, version: int) -> None:
    old, new = older(name, version), SCHEMAS[name, version]
    assert attributes(old) == attributes(new)
    assert options(old.inputs) == options(new.inputs)
    assert options(old.outputs) == options(new.outputs)


@pytest.mark.parametrize(("name", "version"), declared("up", "ADDITIONS"), ids=lambda item: str(item))
def test_what_is_said_to_be_added_takes_nothing_away(name: str, version: int) -> None:
    old, new = older(name, version), SCHEMAS[name, version]
    before, after = attributes(old), attributes(new)
    for key, value in before.items():
        # A required attribute may have become optional, for example a Constant's value.
        assert after[key] == value or (value[1] and after[key][0] == value[0]), key
    assert not [key for key in after if key not in before and after[key][1]]
    assert len(new.inputs) >= len(old.inputs)
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    assert set(options(new.inputs)[len(old.inputs) :]) <= {optional}


def test_no_change_is_declared_twice() -> None:
    both = set(declared("down", "TYPES_ONLY")) & {k for k in SCHEMAS if steps.find_step("down", *k)}
    assert both == set()


def test_an_unknown_change_is_never_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    model = one_node("Relu", [("FLOAT", [2])], [("FLOAT", [2])], opset=20)
    monkeypatch.setattr(steps, "_steps", lambda direction: {})
    (item,) = convert_opset(to_ir(model), 13).unexpressed
    assert item.to_dict() == {
        "node": "the_node",
        "operator": "ai.onnx::Relu",
        "reason": "opbridge has no step for the change of Relu in opset 14",
    }


def test_the_step_of_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "opsets.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    step = steps.Step("Celu", 12, names["composed"], "celu.py")
    monkeypatch.setattr(steps, "_steps", lambda direction: {("Celu", 12): step})
    model = one_node("Celu", [("FLOAT", ["n"])], [("FLOAT", ["n"])], opset=12, alpha=0.7)
    result = check(model, 11, {"x0": 3 * floats(9)})
    assert [node.op_type for node in result.graph] == ["Constant", "Div", "Elu", "Constant", "Mul"]
    assert step.summary == "It becomes an Elu of the scaled input"


# ONNX's own node tests.


def benchmark() -> ModuleType:
    specification = importlib.util.spec_from_file_location("opset_benchmark", ROOT / "benchmarks" / "opsets.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


BENCHMARK = benchmark()
# Why no equivalent exists: types and values that the old opset does not have, and operators for text and images.
NO_SUCH = re.compile(
    r"opset \d+ (has no|does not take the type of|can't)|of opset \d+ does not take|quantization to float"
    r"|no operator before opset \d+|no Scan over a batch|does not define the rounding|known only at run time"
)


@pytest.fixture(scope="module")
def node_tests() -> dict[str, list[Any]]:
    """For each operator that a test is about: its tests with the fewest bytes."""
    found: dict[str, list[Any]] = {}
    for test in BENCHMARK.raw_tests():
        if len(test.model.graph.node) == 1:
            found.setdefault(test.model.graph.node[0].op_type, []).append(test)
    return {name: sorted(tests, key=lambda test: test.model.ByteSize())[:2] for name, tests in found.items()}


@pytest.mark.quick(every=0)
@pytest.mark.parametrize("target", [ENGINE_NEWEST, 11])
def test_the_node_tests_hold(target: int, node_tests: dict[str, list[Any]]) -> None:
    verdicts: dict[str, int] = {}
    wrong = []
    for tests in node_tests.values():
        for test in tests:
            case = BENCHMARK.Case(test)
            if case.opset == target:
                continue
            outcome = BENCHMARK.convert_case(case, target)
            verdicts[outcome.verdict] = verdicts.get(outcome.verdict, 0) + 1
            if outcome.verdict == "wrong" or (outcome.verdict == "unexpressed" and not NO_SUCH.search(outcome.reason)):
                wrong.append(outcome)
    assert wrong == []
    assert verdicts["right"] > 150
    assert verdicts.get("unexpressed", 0) < (30 if target == 11 else 5)


# Models of our own: the converted one gives what the original gives.


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run(model: onnx.ModelProto | ir.Model, feeds: dict[str, np.ndarray]) -> list[Any]:
    proto = model if isinstance(model, onnx.ModelProto) else ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def converted(model: onnx.ModelProto, opset: int, **options: Any) -> ir.Model:
    before = model.SerializeToString()
    result = convert_opset(to_ir(model), opset, **options)
    assert result.unexpressed == ()
    assert (result.opset, result.model.opset_imports[""]) == (opset, opset)
    assert model.SerializeToString() == before
    assert [value.name for value in result.model.graph.inputs] == [value.name for value in model.graph.input]
    assert [value.name for value in result.model.graph.outputs] == [value.name for value in model.graph.output]
    return result.model


def check(model: onnx.ModelProto, opset: int, *feeds: dict[str, np.ndarray], tolerance: float = 1e-5) -> ir.Model:
    result = converted(model, opset)
    for feed in feeds:
        for one, other in zip(run(result, feed), run(model, feed), strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
            assert one.dtype == other.dtype
    return result


def constant(name: str, value: Any, dtype: Any = np.int64) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, dtype=dtype), name)


# Operator, inputs beside x, attributes, from which opset, on which inputs (constants are numbers or lists).
NODES: dict[str, tuple[str, list[Any], dict[str, Any], int, list[np.ndarray]]] = {
    "softmax on an inner axis": ("Softmax", [], {"axis": 1}, 18, [floats(2, 3, 4), floats(5, 3, 2)]),
    "hardmax on an inner axis": ("Hardmax", [], {"axis": 0}, 18, [floats(4, 3)]),
    "mean over negative axes": ("ReduceMean", [[-1, 1]], {"keepdims": 0}, 18, [floats(2, 3, 4)]),
    "sum over nothing": ("ReduceSum", [], {"noop_with_empty_axes": 1}, 18, [floats(2, 3)]),
    "part of a shape": ("Shape", [], {"start": -2, "end": -1}, 18, [floats(2, 3, 4)]),
    "gelu": ("Gelu", [], {"approximate": "tanh"}, 20, [floats(3, 5)]),
    "mish": ("Mish", [], {}, 18, [floats(3, 5)]),
    "hard swish": ("HardSwish", [], {}, 14, [4 * floats(3, 5)]),
    "upper triangle": ("Trilu", [1], {"upper": 1}, 18, [floats(2, 4, 5)]),
    "cumulative product": ("CumProd", [-1], {"reverse": 1}, 26, [floats(2, 5)]),
    "pad some axes": ("Pad", [[1, 2], None, [-1]], {"mode": "reflect"}, 18, [floats(2, 3, 4)]),
    "wrap around": ("Pad", [[1, 0, 2, 3]], {"mode": "wrap"}, 19, [floats(3, 4)]),
    "resize some axes": ("Resize", [None, None, [5, 7]], {"axes": [2, 3], "mode": "linear"}, 18, [floats(1, 2, 3, 4)]),
    "resize to a ratio": (
        "Resize",
        [None, None, [6, 9]],
        {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"},
        18,
        [floats(1, 2, 3, 4)],
    ),
    "antialias": (
        "Resize",
        [None, [0.6, 0.55], None],
        {"axes": [2, 3], "antialias": 1, "mode": "cubic", "exclude_outside": 1},
        18,
        [floats(1, 3, 7, 10)],
    ),
    "dilated mean": (
        "AveragePool",
        [],
        {"kernel_shape": [2, 3], "dilations": [2, 1], "pads": [1, 1, 0, 1], "ceil_mode": 1, "strides": [2, 2]},
        19,
        [floats(1, 2, 7, 8)],
    ),
    "last of equal ones": ("ArgMax", [], {"axis": 1, "select_last_index": 1}, 18, [np.round(floats(3, 9))]),
    "fourier": ("DFT", [None, 1], {"onesided": 1}, 20, [floats(2, 9, 1)]),
    "images of blocks": (
        "Col2Im",
        [[5, 6], [2, 3]],
        {"pads": [0, 1, 0, 1], "strides": [2, 1], "dilations": [1, 1]},
        18,
        [floats(1, 12, 12)],
    ),
    "bits": ("BitwiseNot", [], {}, 18, [np.array([0, 5, -7, 2**31 - 1], np.int32)]),
    "maximum of int64": ("Max", [[2**62 + 1, -5]], {}, 13, [np.array([2**62, -4])]),
    "power of int64": ("Pow", [[3, 39]], {}, 15, [np.array([-7, 3])]),
    "relu of int8": ("Relu", [], {}, 14, [np.array([-3, 4], np.int8)]),
    "sum of uint8 wraps": ("Add", [[200, 100]], {}, 14, [np.array([100, 100], np.uint8)]),
    "range of half floats": ("CumSum", [0], {}, 14, [floats(7)]),
    "attention with a scale": ("Attention", ["x", "x"], {"scale": 0.3}, 23, [floats(2, 3, 4, 8)]),
    "16 bits": ("DequantizeLinear", [np.float32(0.01)], {}, 21, [np.array([-30000, 5], np.int16)]),
}
INTEGER_INPUTS = {"Resize": {2: np.float32}, "DequantizeLinear": {1: np.float32}}


STEPS_DOWN = [(name, target) for name in NODES for target in (17, 13, 11) if target < NODES[name][3] <= NEWEST_OPSET]


@pytest.mark.quick("attention with a scale-11", every=3)
@pytest.mark.parametrize(("name", "target"), STEPS_DOWN)
def test_one_node(name: str, target: int) -> None:
    op_type, others, given, opset, samples = NODES[name]
    rank = samples[0].ndim
    dtype = helper.np_dtype_to_tensor_dtype(samples[0].dtype)
    initializers, inputs = [], ["x"]
    for position, value in enumerate(others, start=1):
        inputs.append("" if value is None else value if isinstance(value, str) else f"c{position}")
        if value is not None and not isinstance(value, str):
            same = op_type in ("Max", "Pow", "Add")
            own = samples[0].dtype if same else INTEGER_INPUTS.get(op_type, {}).get(position, np.int64)
            initializers.append(constant(f"c{position}", value, own))
    node = helper.make_node(op_type, inputs, ["y"], "the_node", **given)
    static = op_type in ("Resize", "Col2Im", "AveragePool", "Pad")
    shape = list(samples[0].shape) if static or rank == 0 else [f"n{i}" for i in range(rank)]
    shape[-1] = 1 if op_type == "DFT" else shape[-1]
    graph = helper.make_graph(
        [node],
        "test",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [onnx.ValueInfoProto(name="y")],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model)
    check(inferred, target, *({"x": sample} for sample in samples))


EQUATIONS = [
    "ij,jk->ik",
    "bhqd,bhkd->bhqk",
    "ii->i",
    "bii->b",
    "i,j->ij",
    "...ij,...jk->...ik",
    "ij,jk",
    "ijk->kj",
    "ab,bc,cd->ad",
]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str) -> None:
    sizes = {letter: 2 + place for place, letter in enumerate(sorted(set(equation) - set("->,.")))}
    terms = equation.partition("->")[0].split(",")
    shapes = [
        [*([3, 2] if "..." in term else []), *(sizes[letter] for letter in term if letter.isalpha())] for term in terms
    ]
    arrays = {f"x{i}": floats(*shape) for i, shape in enumerate(shapes)}
    free = {name: ("FLOAT", [f"{name}_{i}" for i in range(array.ndim)]) for name, array in arrays.items()}
    result = np.einsum(equation, *arrays.values())
    node = helper.make_node("Einsum", list(arrays), ["y"], equation=equation)
    model = make_model([node], free, {"y": ("FLOAT", [None] * result.ndim)}, opset=18)
    (found,) = run(converted(model, 11), arrays)
    np.testing.assert_allclose(found, result, rtol=1e-5, atol=1e-5)


@pytest.mark.quick("linear", every=5)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample(mode: str, align: int, padding: str) -> None:
    model = one_node("GridSample", [("FLOAT", ["n", 2, "h", "w"]), ("FLOAT", ["n", "p", "q", 2])],
                     [("FLOAT", ["n", 2, "p", "q"])], opset=20, mode=mode, align_corners=align,
                     padding_mode=padding)  # fmt: skip
    grid = RANDOM.uniform(-1.6, 1.6, (2, 3, 5, 2)).astype(np.float32)
    check(model, 11, {"x0": floats(2, 2, 4, 6), "x1": grid}, tolerance=1e-4)


@pytest.mark.parametrize("mask", [False, True])
def test_deformable_convolution(mask: bool) -> None:
    shapes = [[1, 4, "h", "w"], [6, 2, 3, 2], [1, 24, "p", "q"], [6], [1, 12, "p", "q"]]
    inputs = [("FLOAT", shape) for shape in shapes[: 5 if mask else 4]]
    model = one_node("DeformConv", inputs, [("FLOAT", [1, 6, "p", "q"])], opset=19, group=2, offset_group=2,
                     kernel_shape=[3, 2], pads=[1, 0, 1, 0], strides=[2, 1], dilations=[1, 2])  # fmt: skip
    given = [floats(1, 4, 7, 8), floats(6, 2, 3, 2), 2 * floats(1, 24, 4, 6), floats(6), floats(1, 12, 4, 6)]
    check(model, 11, {f"x{i}": given[i] for i in range(len(inputs))}, tolerance=1e-4)


def test_boxes_smaller_than_a_pixel() -> None:
    model = one_node("RoiAlign", [("FLOAT", [2, 3, "h", "w"]), ("FLOAT", ["r", 4]), ("INT64", ["r"])],
                     [("FLOAT", ["r", 3, 2, 3])], opset=16, output_height=2, output_width=3, sampling_ratio=2,
                     spatial_scale=0.5)  # fmt: skip
    boxes = np.array([[1, 2, 1.4, 2.2], [-3, -2, 30, 9], [4, 0, 9, 12]], np.float32)
    check(model, 11, {"x0": floats(2, 3, 7, 9), "x1": boxes, "x2": np.array([1, 0, 1])}, tolerance=1e-4)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("op_type", ["ScatterND", "ScatterElements"])
def test_scattering_with_duplicates(op_type: str, reduction: str) -> None:
    rows = np.array([[1], [0], [1], [-1], [1]]) if op_type == "ScatterND" else RANDOM.integers(-4, 4, (9, 3))
    updates = floats(5, 3) if op_type == "ScatterND" else floats(9, 3)
    model = one_node(op_type, [("FLOAT", [4, "n"]), ("INT64", list(rows.shape)), ("FLOAT", ["m", "n"])],
                     [("FLOAT", [4, "n"])], opset=18, reduction=reduction)  # fmt: skip
    check(model, 11, {"x0": floats(4, 3), "x1": rows, "x2": updates})


@pytest.mark.parametrize("axes", [[1], [0, -1], []])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_axes_that_are_known_when_the_model_runs(axes: list[int], keepdims: int) -> None:
    shape: list[Any] = ["a", "b", "c"] if keepdims else [None] * (3 - len(axes) if axes else 0)
    model = one_node("ReduceL2", [("FLOAT", ["a", "b", "c"]), ("INT64", ["n"])], [("FLOAT", [None] * len(shape))],
                     opset=18, keepdims=keepdims)  # fmt: skip
    check(model, 11, {"x0": floats(2, 3, 4), "x1": np.array(axes, np.int64)})


def test_squeezing_and_splitting_when_the_model_runs() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axes"], ["wide"]),
        helper.make_node("Squeeze", ["wide", "axes"], ["again"]),
        helper.make_node("Split", ["again"], ["a", "b", "c"], axis=1, num_outputs=3),
    ]
    inputs = {"x": ("FLOAT", ["m", "n"]), "axes": ("INT64", [2])}
    outputs = {"wide": ("FLOAT", [None] * 4), **{name: ("FLOAT", ["m", None]) for name in "abc"}}
    model = make_model(nodes, inputs, outputs, opset=18)
    check(model, 11, {"x": floats(2, 7), "axes": np.array([0, -1])}, {"x": floats(0, 7), "axes": np.array([1, 2])})


def test_a_zero_in_a_shape() -> None:
    model = one_node("Reshape", [("FLOAT", ["a", "b"]), ("INT64", [2])], [("FLOAT", ["c", "d"])], opset=18, allowzero=1)
    for x, shape in ((floats(0, 3), [3, 0]), (floats(2, 3), [3, 2]), (floats(2, 3), [6, -1]), (floats(0, 2), [4, 0])):
        (found,) = run(converted(model, 11), {"x0": x, "x1": np.array(shape)})
        np.testing.assert_array_equal(found, x.reshape(shape))


def test_a_batch_that_stays_needs_no_more_nodes() -> None:
    nodes = [helper.make_node("Concat", ["n", "rest"], ["shape"], axis=0),
             helper.make_node("Shape", ["x"], ["n"], start=0, end=1),
             helper.make_node("Reshape", ["x", "shape"], ["y"], allowzero=1)]  # fmt: skip
    model = make_model([nodes[1], nodes[0], nodes[2]], {"x": ("FLOAT", ["n", 2, 6])}, {"y": ("FLOAT", ["n", 3, 4])},
                       opset=18, initializers=[constant("rest", [3, 4])])  # fmt: skip
    result = check(model, 13, {"x": floats(5, 2, 6)}, {"x": floats(0, 2, 6)})
    assert [node.op_type for node in result.graph].count("Reshape") == 1
    assert "Where" not in [node.op_type for node in result.graph]


def test_normalizations() -> None:
    weights = [constant("w", floats(6), np.float32), constant("b", floats(6), np.float32)]
    nodes = [
        helper.make_node("GroupNormalization", ["x", "w", "b"], ["group"], num_groups=3),
        helper.make_node("Transpose", ["group"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("LayerNormalization", ["turned", "w", "b"], ["y", "", "deviation"], axis=-1),
    ]
    outputs = {"y": ("FLOAT", ["n", "t", 6]), "deviation": ("FLOAT", ["n", "t", 1])}
    model = make_model(nodes, {"x": ("FLOAT", ["n", 6, "t"])}, outputs, opset=21, initializers=weights)
    for target in (20, 17, 11):
        result = check(model, target, {"x": 3 + floats(2, 6, 5)}, tolerance=1e-4)
        assert {"w", "b"} <= set(result.graph.initializers)


def test_a_training_step_of_batch_normalization() -> None:
    node = helper.make_node("BatchNormalization", ["x", "s", "s", "s", "v"], ["y", "mean", "var"], training_mode=1)
    weights = [constant("s", floats(3), np.float32), constant("v", [1, 2, 3], np.float32)]
    outputs = {"y": ("FLOAT", ["n", 3, "t"]), "mean": ("FLOAT", [3]), "var": ("FLOAT", [3])}
    model = make_model([node], {"x": ("FLOAT", ["n", 3, "t"])}, outputs, opset=15, initializers=weights)
    (y, mean, variance) = run(converted(model, 11), {"x": (x := floats(4, 3, 5))})
    scale, kept = (numpy_helper.to_array(item) for item in weights)
    now, spread = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(mean, 0.9 * scale + 0.1 * now, atol=1e-6)
    np.testing.assert_allclose(variance, 0.9 * kept + 0.1 * spread, atol=1e-6)
    normal = (x - now[:, None]) / np.sqrt(spread + 1e-5)[:, None]
    np.testing.assert_allclose(y, normal * scale[:, None] + scale[:, None], atol=1e-5)


def test_the_batch_first_in_a_recurrent_layer() -> None:
    weights = [constant("w", floats(1, 16, 3), np.float32), constant("r", floats(1, 16, 4), np.float32)]
    activations = ["Sigmoid", "Tanh", "Tanh"]
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "", "", "h"], ["y", "last"], hidden_size=4, layout=1, activations=activations
    )
    inputs = {"x": ("FLOAT", ["n", "t", 3]), "h": ("FLOAT", ["n", 1, 4])}
    outputs = {"y": ("FLOAT", ["n", "t", 1, 4]), "last": ("FLOAT", ["n", 1, 4])}
    model = make_model([node], inputs, outputs, opset=14, initializers=weights)
    feeds = {"x": floats(2, 5, 3), "h": floats(2, 1, 4)}
    y, last = run(converted(model, 11), feeds)
    turned = make_model([helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["y"], hidden_size=4)],
                        {"x": ("FLOAT", ["t", "n", 3]), "h": ("FLOAT", [1, "n", 4])},
                        {"y": ("FLOAT", ["t", 1, "n", 4])}, opset=14, initializers=weights)  # fmt: skip
    (expected,) = run(turned, {name: value.swapaxes(0, 1) for name, value in feeds.items()})
    np.testing.assert_allclose(y, expected.transpose(2, 0, 1, 3), atol=1e-6)
    np.testing.assert_allclose(last, y[:, -1], atol=1e-6)


# Up.


@pytest.mark.parametrize("source", [7, 9, 11, 13, 18])
def test_attributes_become_inputs(source: int) -> None:
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"], axis=2),
        helper.make_node("Softmax", ["x"], ["soft"], axis=1),
        helper.make_node("Dropout", ["soft"], ["kept"], **({"ratio": 0.3} if source < 12 else {})),
    ]
    if source < 13:
        nodes += [
            helper.make_node("Unsqueeze", ["kept"], ["wide"], axes=[0]),
            helper.make_node("ReduceSum", ["wide"], ["total"], axes=[0, 2]),
            helper.make_node("Split", ["flat"], ["a", "b"], split=[2, 2], axis=1),
        ]
    if source < 11:
        nodes += [
            helper.make_node("Clip", ["a"], ["clipped"], min=-0.5),
            helper.make_node("Pad", ["b"], ["padded"], pads=[0, 1, 0, 0], value=2.0),
        ]
    if source < 10:
        nodes.append(helper.make_node("Slice", ["flat"], ["cut"], starts=[1], ends=[2], axes=[0]))
    results = [name for node in nodes for name in node.output]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(nodes, "test", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])],
                              [onnx.ValueInfoProto(name=name) for name in results if name not in used])  # fmt: skip
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", source)], ir_version=6)
    )
    result = check(model, ENGINE_NEWEST, {"x": floats(2, 3, 4)})
    assert result.ir_version >= helper.find_min_ir_version_for([helper.make_opsetid("", ENGINE_NEWEST)])


def test_up_and_down_again() -> None:
    model = one_node("ReduceMax", [("FLOAT", ["n", 3])], [("FLOAT", [1, 1])], opset=11, axes=[0, 1])
    there = ir.to_proto(converted(model, NEWEST_OPSET))
    back = ir.to_proto(converted(there, 11))
    assert [node.op_type for node in back.graph.node] == ["ReduceMax"]
    assert list(back.graph.node[0].attribute[0].ints) == [0, 1]
    assert back.graph.initializer == []


# What surrounds the nodes.


def branches(opset: int) -> onnx.ModelProto:
    def branch(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", 4])])

    inside = [
        branch("then", helper.make_node("ReduceMean", ["x", "axes"], ["then"])),
        branch("else", helper.make_node("Softmax", ["x"], ["else"], axis=0)),
    ]
    node = helper.make_node("If", ["flag"], ["y"], "choice", then_branch=inside[0], else_branch=inside[1])
    inputs = {"flag": ("BOOL", []), "x": ("FLOAT", [3, 4])}
    return make_model([node], inputs, {"y": ("FLOAT", ["m", 4])}, opset=opset, initializers=[constant("axes", [0])])


def test_subgraphs() -> None:
    feeds = [{"flag": np.array(flag), "x": floats(3, 4)} for flag in (True, False)]
    result = check(branches(18), 11, *feeds)
    inside = sorted(node.op_type for node in result.graph.all_nodes())
    assert inside == ["If", "ReduceMean", "Softmax", "Transpose", "Transpose"]
    assert "axes" not in result.graph.initializers


def with_function(opset: int = 18) -> onnx.ModelProto:
    body = [
        helper.make_node("Constant", [], ["axes"], value_ints=[-1]),
        helper.make_node("ReduceMean", ["a", "axes"], ["mean"], keepdims=1),
        helper.make_node("Sub", ["a", "mean"], ["b"]),
    ]
    function = helper.make_function("mine", "Centre", ["a"], ["b"], body, [helper.make_opsetid("", opset)])
    node = helper.make_node("Centre", ["x"], ["y"], "call", domain="mine")
    return make_model([node], {"x": ("FLOAT", ["n", 3])}, {"y": ("FLOAT", ["n", 3])}, opset=opset,
                      functions=[function], domains=["mine"])  # fmt: skip


def test_functions_are_converted_or_inlined() -> None:
    feeds = {"x": floats(2, 3)}
    kept = check(with_function(), 16, feeds)
    (function,) = kept.functions.values()
    assert function.opset_imports[""] == 16
    inlined = check(with_function(), 13, feeds)
    assert (inlined.ir_version, len(inlined.functions)) == (7, 0)
    asked = converted(with_function(), 13, ir_version=8)
    assert (asked.ir_version, len(asked.functions)) == (8, 1)
    assert {item.what for item in convert_opset(to_ir(with_function()), 13).changes} >= {"its functions are inlined"}


def test_a_function_whose_types_differ_from_call_to_call_is_inlined() -> None:
    model = with_function()
    model.functions[0].node.append(helper.make_node("Softmax", ["b"], ["c"], axis=0))
    model.functions[0].output[0] = "c"
    model.graph.node.append(helper.make_node("Centre", ["z"], ["w"], "other", domain="mine"))
    for values, shape in ((model.graph.input, "z"), (model.graph.output, "w")):
        values.append(helper.make_tensor_value_info(shape, TensorProto.FLOAT, [2, 3, 4]))
    result = converted(model, 12, ir_version=8)
    assert not result.functions
    feeds = {"x": floats(2, 3), "z": floats(2, 3, 4)}
    for one, other in zip(run(result, feeds), run(model, feeds), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_other_domains_and_the_weights_are_untouched() -> None:
    weight = ir.tensor(floats(200, 3), name="w")
    nodes = [
        helper.make_node("Own", ["x"], ["own"], "mine", domain="mine", size=3),
        helper.make_node("Relu", ["own"], ["y"]),
    ]
    model = to_ir(make_model(nodes, {"x": ("FLOAT", [3])}, {"y": ("FLOAT", [3])}, opset=20, domains=["mine"],
                             initializers=[constant("w", floats(200, 3), np.float32)]))  # fmt: skip
    model.graph.initializers["w"].const_value = weight
    model.metadata_props["author"] = "me"
    result = convert_opset(model, 11)
    assert result.unexpressed == ()
    own = result.model.graph[0]
    assert (own.domain, own.name, own.attributes["size"].as_int()) == ("mine", "mine", 3)
    assert result.model.graph.initializers["w"].const_value is weight
    assert result.model.metadata_props["author"] == "me"
    assert model.opset_imports[""] == 20


def test_what_an_input_overrides_is_no_constant() -> None:
    model = one_node("Squeeze", [("FLOAT", [1, 3]), ("INT64", [1])], [("FLOAT", [3])], opset=18)
    model.graph.initializer.append(constant("x1", [0]))
    result = check(model, 11, {"x0": floats(1, 3), "x1": np.array([0])})
    assert "Compress" in [node.op_type for node in result.graph]


def test_names_of_new_nodes_begin_with_the_old_one() -> None:
    model = one_node("Softmax", [("FLOAT", [2, 3])], [("FLOAT", [2, 3])], opset=18, axis=0)
    assert [node.name for node in converted(model, 11).graph] == [
        "the_node/Transpose",
        "the_node/Softmax",
        "the_node/Transpose_2",
    ]


# What can't be expressed.

REFUSED: list[tuple[Callable[[], onnx.ModelProto], int, str]] = [
    (lambda: one_node("StringConcat", [("STRING", [2]), ("STRING", [2])], [("STRING", [2])]), 19,
     "no operator before opset 20 looks into a string"),
    (lambda: one_node("Cast", [("FLOAT", [2])], [("FLOAT8E4M3FN", [2])], to=TensorProto.FLOAT8E4M3FN), 18,
     "opset 18 has no float8e4m3fn"),
    (lambda: one_node("Add", [("BFLOAT16", [2]), ("BFLOAT16", [2])], [("BFLOAT16", [2])]), 12,
     "opset 12 has no bfloat16"),
    (lambda: one_node("Equal", [("STRING", [2]), ("STRING", [2])], [("BOOL", [2])]), 17,
     "Equal of opset 18 does not take string"),
    (lambda: one_node("Resize", [("FLOAT", ["n", 3]), None, None, ("INT64", [2])], [("FLOAT", [None, None])],
                      antialias=1, mode="linear"), 17,
     "antialias with sizes that are known only at run time"),
    (lambda: one_node("Upsample", [("FLOAT", [1, 1, 2, 2]), ("FLOAT", [4])], [("FLOAT", [None] * 4)], opset=9), 13,
     "opset 10 does not define the rounding of a smaller result"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "opset", "reason"), REFUSED, ids=[reason for *_, reason in REFUSED])
def test_what_cant_be_expressed_is_named(model: Callable[[], onnx.ModelProto], opset: int, reason: str) -> None:
    (item,) = convert_opset(to_ir(model()), opset).unexpressed
    assert (item.node, item.reason) == ("the_node", reason)
    with pytest.raises(UnsupportedOperatorError) as caught:
        opbridge.convert_opset(model(), opset)
    assert f"Opset {opset} can't express 1 node of the model:\n  the_node ({item.operator}): {reason}" in str(
        caught.value
    )
    assert caught.value.targets == (item.operator,)


# The public function and the command.


@pytest.mark.parametrize("kind", [lambda model, path: model, lambda model, path: to_ir(model), save])
def test_the_public_function(kind: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    model = one_node("ReduceMean", [("FLOAT", ["n", 3]), ("INT64", [1])], [("FLOAT", ["n", 1])], opset=18)
    edited = opbridge.convert_opset(kind(model, tmp_path / "m.onnx"), 13, ir_version=7)
    assert edited.changes
    feeds = {"x0": floats(4, 3), "x1": np.array([1])}
    path = edited.save(tmp_path / "out.onnx")
    written = onnx.load(path)
    assert (written.ir_version, written.opset_import[0].version) == (7, 13)
    np.testing.assert_allclose(run(written, feeds)[0], feeds["x0"].mean(1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize(
    ("opset", "ir_version", "message"),
    [
        (10, None, f"Opset 10 is unknown: 11 to {NEWEST_OPSET} can be written with onnx"),
        (NEWEST_OPSET + 1, None, f"Opset {NEWEST_OPSET + 1} is unknown"),
        ("13", None, "Opset '13' is unknown"),
        (13, 5, "IR version 5 is unknown: 6 to"),
    ],
)
def test_numbers_that_are_unknown(opset: Any, ir_version: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        opbridge.convert_opset(one_node("Relu", [("FLOAT", [2])], [("FLOAT", [2])]), opset, ir_version=ir_version)


def test_a_model_of_another_domain() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Own", ["x"], ["y"], domain="mine")], "test", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("mine", 3)], ir_version=8)
    with pytest.raises(InputError, match="The model has no opset of the standard domain, only of 'mine'"):
        opbridge.convert_opset(model, 13)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save(branches(18), tmp_path / "m.onnx")
    out = tmp_path / "out.onnx"
    command = ["convert-opset", str(model), "--opset", "12", "-o", str(out)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "ai.onnx::ReduceMean: The axes become an attribute (1)" in printed
    # The line is wrapped at a place that depends on the length of the path.
    assert f"{out}:opset12,IRversion7" in "".join(printed.split())
    assert onnx.load(out).opset_import[0].version == 12
    assert main(command) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["convert-opset", str(tmp_path / "none.onnx"), "--opset", "12", "-o", str(out)]) == 1
    assert "can't be read: No such file or directory" in capsys.readouterr().err
    assert main(["convert-opset", str(model), "--opset", "3", "-o", str(tmp_path / "o.onnx")]) == 1
    assert "Opset 3 is unknown" in capsys.readouterr().err
    assert not (tmp_path / "o.onnx").exists()
