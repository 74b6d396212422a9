"""Models with kernels, what goes into them and what must come out, for every version of ONNX Runtime."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opbridge.kernels.toolchain import find_compiler

FOLDER = Path(__file__).parent / "kernels"
NAMES = (
    "attributes",
    "clamp_swish",
    "faults",
    "largest",
    "lists",
    "my_add",
    "pieces",
    "roll",
    "scale",
    "sized",
    "statistics",
    "where_true",
)
SANITIZE = os.environ.get("OPBRIDGE_TEST_SANITIZE") == "1"
LARGE = os.environ.get("OPBRIDGE_TEST_LARGE") == "1"
SOURCES = [FOLDER / f"{name}.h" for name in NAMES]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, its inputs, and its outputs or the text of its error."""

    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]
    expected: tuple[np.ndarray, ...] = ()
    error: str | None = None
    tolerance: float = 0.0


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, tuple[int, Sequence[Any] | None]], outputs: Mapping[str, int]
) -> onnx.ModelProto:
    """A model that ONNX Runtime 1.17 takes. Its outputs have no shape of their own."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mylib", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def number(array: np.ndarray) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def node_case(
    name: str,
    operator: str,
    arrays: Sequence[np.ndarray | None],
    expected: Sequence[np.ndarray] = (),
    *,
    error: str | None = None,
    outputs: Sequence[str] | None = None,
    static: bool = False,
    tolerance: float = 0.0,
    **attributes: Any,
) -> Case:
    """A model of one node. An input None is left out; an output "" is one that nobody wants."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
    results = [f"y{i}" for i in range(max(len(expected), 1))] if outputs is None else list(outputs)
    node = helper.make_node(operator, names, results, domain="mylib")
    node.attribute.extend(_attribute(key, value) for key, value in attributes.items())
    given = {key: array for key, array in zip(names, arrays, strict=True) if array is not None}
    inputs = {
        key: (number(array), array.shape if static else [f"{key}_{axis}" for axis in range(array.ndim)])
        for key, array in given.items()
    }
    wanted = [result for result in results if result]
    kinds = [number(array) for array in expected] or [number(next(iter(given.values())))] * len(wanted)
    return Case(
        f"{name}{' static' if static else ''}",
        model_of([node], inputs, dict(zip(wanted, kinds, strict=True))),
        given,
        tuple(expected),
        error,
        tolerance,
    )


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    # The type can't be told by an empty list: here it is always one of ints.
    return helper.make_attribute(name, value, attr_type=onnx.AttributeProto.INTS if value == [] else None)


def cast_case(name: str, operator: str, arrays: Sequence[np.ndarray], expected: np.ndarray, dtype: int) -> Case:
    """A node between casts, for types that NumPy lacks."""
    names = [f"x{i}" for i in range(len(arrays))]
    nodes = [helper.make_node("Cast", [key], [f"{key}_c"], to=dtype) for key in names]
    nodes.append(helper.make_node(operator, [f"{key}_c" for key in names], ["y_c"], domain="mylib"))
    nodes.append(helper.make_node("Cast", ["y_c"], ["y"], to=number(expected)))
    inputs = {key: (number(array), [None] * array.ndim) for key, array in zip(names, arrays, strict=True)}
    model = model_of(nodes, inputs, {"y": number(expected)})
    return Case(name, model, dict(zip(names, arrays, strict=True)), (expected,))


def sanitizer_runtimes() -> list[str]:
    """The libraries of the sanitizers, which have to be in the process before all others; none on other systems."""
    if sys.platform != "linux":
        return []
    compiler = find_compiler()
    names = [f"libclang_rt.asan-{platform.machine()}.so"] if compiler.is_clang else ["libasan.so", "libubsan.so"]
    answers = [
        subprocess.run([*compiler.command, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in names
    ]
    return [answer.stdout.strip() for answer in answers]


def check_pieces(begins: np.ndarray, total: int, grain: int) -> None:
    """What ``pieces.h`` writes: the whole is covered in order, and no piece but the last is smaller than the grain."""
    starts, sizes = np.unique(begins, return_counts=True)
    assert begins.shape == (total,)
    np.testing.assert_array_equal(np.repeat(starts, sizes), begins)
    np.testing.assert_array_equal(np.cumsum([0, *sizes[:-1]]), starts)
    assert all(size >= grain for size in sizes[:-1])


def _swish(x: np.ndarray) -> np.ndarray:
    return (np.maximum(x, 0) / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)


def cases() -> list[Case]:
    return [*_arithmetic(), *_shapes(), *_signatures(), *_attributes(), *_errors()]


def _arithmetic() -> list[Case]:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((3, 1, 5)).astype(np.float32), random.standard_normal((4, 1)).astype(np.float32)
    big = random.standard_normal((300, 401)).astype(np.float32)
    whole = np.arange(12).reshape(3, 4)
    found = []
    for static in (False, True):
        found += [
            node_case("add", "my_add", [a, b], [2 * a + b], static=static),
            node_case("add with an attribute", "my_add", [a, b], [-3 * a + b], alpha=-3.0, static=static),
            node_case("add in threads", "my_add", [big, big[:1]], [2 * big + big[:1]], static=static),
            node_case("swish", "clamp_swish", [big], [_swish(big)], tolerance=1e-6, static=static),
        ]
    for dtype in (np.float64, np.float16, np.int64, np.uint8):
        x = whole.astype(dtype)
        found.append(node_case(f"add {dtype.__name__}", "my_add", [x, x[:, :1]], [2 * x + x[:, :1]]))
    x = whole.astype(np.float32)
    found.append(cast_case("add bfloat16", "my_add", [x, x], 3 * x, onnx.TensorProto.BFLOAT16))
    return found


def _shapes() -> list[Case]:
    random = np.random.default_rng(1)
    x = random.standard_normal((2, 3, 4)).astype(np.float32)
    mask = np.array([[True, False, True], [False, True, True]])
    one = np.float32(3)
    float_type, int_type = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    nodes = [
        helper.make_node("Reshape", ["flat", "sizes"], ["x"]),
        helper.make_node("my_add", ["x", "x"], ["y"], domain="mylib"),
        helper.make_node("Shape", ["y"], ["s"]),
    ]
    inputs = {"flat": (float_type, ["n"]), "sizes": (int_type, ["r"])}
    unknown_rank = Case(
        "an input of unknown rank",
        model_of(nodes, inputs, {"y": float_type, "s": int_type}),
        {"flat": x.reshape(-1), "sizes": np.array([2, 3, 4])},
        (3 * x, np.array([2, 3, 4])),
    )
    found = [unknown_rank]
    for static in (False, True):
        found += [
            node_case("rank 0", "my_add", [np.array(one), np.array(one)], [np.array(9, np.float32)], static=static),
            node_case("no elements", "my_add", [x[:, :0], x[:, :1]], [x[:, :0]], static=static),
            node_case("no elements to find", "where_true", [mask[:0]], [np.zeros((0, 2), np.int64)], static=static),
            node_case("data-dependent", "where_true", [mask], [np.argwhere(mask)], static=static),
            node_case("data-dependent rank 0", "where_true", [np.array(True)], [np.zeros((1, 0), np.int64)]),
            node_case("a shape from contents", "arange", [np.array(5)], [np.arange(5)], static=static),
            node_case("two outputs", "largest", [x], [x.max(-1), x.argmax(-1)], static=static),
            node_case("an axis", "largest", [x], [x.max(0), x.argmax(0)], axis=0, static=static),
        ]
    sized = {"lengths": [2, 3], "factor": 2, "mode": "twice", "threshold": 0.75, "more": [1.0, 2.0]}
    for static in (False, True):
        found.append(
            node_case(
                "a shape from attributes", "sized", [x[0, 0]], [np.full((32, 4), x[0, 0, 0])], static=static, **sized
            )
        )
    return found


def _signatures() -> list[Case]:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    factor, bias = np.array([1, 2, 3], np.float32), np.array([[10], [20]], np.float32)
    weights = np.array([[1, 2, 1], [0, 1, 3]], np.int32)
    mean = np.average(x, weights=weights).astype(np.float32)
    variance = np.average(x**2, weights=weights).astype(np.float32) - mean**2
    both = [np.array(mean), np.array(variance, np.float32)]  # NumPy 1 squares into float64.
    return [
        node_case("optional input given", "scale", [x, factor, bias], [x * factor + bias]),
        node_case("optional input missing", "scale", [x, factor], [x * factor]),
        node_case("optional input left out", "scale", [x, factor, None], [x * factor], static=True),
        node_case("one of many", "sum_all", [x], [x]),
        node_case("three of many", "sum_all", [x, x, factor * x], [2 * x + factor * x], static=True),
        node_case("many int64", "sum_all", [weights.astype(np.int64)] * 9, [9 * weights.astype(np.int64)]),
        node_case("none of many", "count_more", [weights.astype(np.int64)], [np.zeros(2, np.int64)]),
        node_case("none of many, known", "count_more", [x], [np.zeros(2, np.float32)], static=True),
        node_case("two of many", "count_more", [x, x, x[0]], [np.array([2, 9], np.float32)]),
        _no_inputs(),
        node_case("many outputs", "unstack", [x], list(x)),
        node_case("an output of many unwanted", "unstack", [x], [x[1]], outputs=["", "y"]),
        node_case("optional output wanted", "statistics", [x, weights], both, tolerance=1e-6),
        node_case("optional output missing", "statistics", [x, weights], both[:1], tolerance=1e-6),
        node_case("optional output left out", "statistics", [x, weights], both[:1], outputs=["m", ""], tolerance=1e-6),
        node_case("another variant", "statistics", [x, weights.astype(np.float32)], both, tolerance=1e-6),
        node_case("first output unwanted", "largest", [x], [x.argmax(-1)], outputs=["", "i"]),
        node_case("last output unwanted", "largest", [x], [x.max(-1)], outputs=["v", ""], static=True),
        node_case("last output missing", "largest", [x], [x.max(-1)], static=True),
        node_case("ints", "roll", [x], [np.roll(x, (1, -5), (0, 1))], shifts=[1, -5], axes=[0, 1]),
        node_case("ints by default", "roll", [x], [np.roll(x, 1, 0)], shifts=[1]),
        node_case("ints, none", "roll", [x], [x], shifts=[], axes=[]),
        node_case("bool", "roll", [x > 2], [np.roll(x > 2, 1, 0)], shifts=[1]),
        node_case("int64", "roll", [weights.astype(np.int64)], [np.roll(weights, 1, 0).astype(np.int64)], shifts=[3]),
    ]


def _no_inputs() -> Case:
    """A node without any input, beside one that gives the model its own."""
    x = np.arange(3, dtype=np.float32)
    nodes = [
        helper.make_node("how_many", [], ["n"], domain="mylib"),
        helper.make_node("Identity", ["x"], ["y"]),
    ]
    types = {"n": onnx.TensorProto.INT64, "y": onnx.TensorProto.FLOAT}
    model = model_of(nodes, {"x": (onnx.TensorProto.FLOAT, ["k"])}, types)
    return Case("no inputs at all", model, {"x": x}, (np.array(0), x))


def _attributes() -> list[Case]:
    x = np.zeros(1)
    names = numpy_helper.from_array(np.array(["é", ""], object))
    table = numpy_helper.from_array(np.array([[0.5], [1.5]], np.float32))
    given = {
        "n": -(2**40),
        "factor": 0.75,
        "mode": "€",
        "axes": [],
        "scales": [0.5, 4.0],
        "names": names,
        "table": table,
    }
    everything = [-(2**40), 0.75, *np.frombuffer("€".encode(), np.int8), 0.5, 4.0, 2, 0, 0.5, 1.5]
    defaults = [3, -0.25, ord("a"), ord("b"), 7, -8, 3, 5]
    return [
        node_case("attributes", "attributes", [x], [np.array(everything, np.float64)], **given),
        node_case("defaults", "attributes", [x], [np.array(defaults, np.float64)], n=3),
        node_case("an empty string", "attributes", [x], [np.array([3, -0.25, 7, -8, 3, 5.0])], n=3, mode=""),
    ]


def _errors() -> list[Case]:
    x = np.zeros((2, 3), np.float32)
    faults = {
        "std::exception": "mylib::faults: beyond the end",
        "number": "mylib::faults: an exception that is no std::exception",
        "check": "mylib::faults: expected 3, got sizes (2, 3) and 2.5",
        "parallel": "mylib::faults: in a thread",
        "shape throws": "mylib::faults: no such shape",
        "negative": "mylib::faults: output 'y' would have the sizes (-7,)",
        "forget": "mylib::faults: the kernel did not allocate output 'y', whose sizes its shape function left",
        "twice": "mylib::faults: output 0 is allocated already",
        "unneeded": "mylib::faults: output 0 is allocated already",
        "type": "mylib::faults: input 'x' is float32, but the kernel reads int8",
        "attribute": "mylib::faults: the schema has no attribute 'absent'",
        "kind": "mylib::faults: attribute 'how' is read as another kind",
        "input": "mylib::faults: there is no input 5",
        "scratch": "mylib::faults: no memory for 144115188075855872 elements of scratch",
        "long": "mylib::faults: xxxxx",
    }
    found = [node_case(f"fault: {how}", "faults", [x], error=text, how=how) for how, text in faults.items()]
    found += [
        node_case(
            "fault: shape throws, known", "faults", [x], error=faults["shape throws"], how="shape throws", static=True
        ),
        node_case("scratch", "faults", [x + 1], [x + 1]),
        node_case("a wrong shape", "my_add", [x, x[:, :2]], error="sizes (2, 3) and (2, 2) can't be broadcast"),
        node_case("a wrong shape, known", "my_add", [x, x[:, :2]], error="can't be broadcast", static=True),
        node_case("an axis too far", "largest", [x], error="mylib::largest: axis 2 is out of range for rank 2", axis=2),
        node_case("no such dtype", "scale", [x.astype(np.float64)] * 2, error="tensor(double)"),
        node_case("mixed dtypes", "my_add", [x, x.astype(np.float64)], error="my_add"),
        node_case("a required attribute", "roll", [x], error="the node has no attribute 'shifts', which is required"),
    ]
    wrong = {
        "an int": ("my_add", [x, x], {"alpha": 2}, "a float"),
        "a string": ("roll", [x], {"shifts": "far"}, "a list of ints"),
        "a list of floats": ("largest", [x], {"axis": [0.5]}, "an int"),
        "a float": ("faults", [x], {"how": 0.5}, "a string"),
        "a tensor": ("my_add", [x, x], {"alpha": numpy_helper.from_array(x)}, "a float"),
        "a list of ints": ("faults", [x], {"how": [1]}, "a string"),
    }
    text = "a list of strings must be given as a tensor of strings"
    doubles = [x[0].astype(np.float64)]
    found.append(node_case("a list of strings", "attributes", doubles, error=text, n=1, names=["one", "two"]))
    found.append(node_case("a list of other things", "roll", [x], error="is a list of floats, but", shifts=[0.5]))
    for kind, (operator, arrays, attributes, takes) in wrong.items():
        name = next(iter(attributes))
        text = f"mylib::{operator}: attribute '{name}' is {kind}, but the kernel takes {takes}"
        found.append(node_case(f"attribute given as {kind}", operator, arrays, error=text, **attributes))
    return found
