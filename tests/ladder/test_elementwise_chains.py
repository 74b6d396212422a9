"""Chains of elementwise nodes as one kernel: which nodes they take, and that each operator is the engine's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from linalg_kernels import needs_compiler

import opbridge
from opbridge.engines import get
from opbridge.errors import EngineError
from opbridge.kernels.elementwise_kernel import DOMAIN, ELEMENTWISE
from opbridge.ladder import elementwise_chains
from opbridge.ladder.build import build
from opbridge.ladder.elementwise_chains import compile_chains
from opbridge.onnx_model.infer import fill_types
from opbridge.onnx_model.write import save_model

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.newest

HEADER = '<ir_version: 10, opset_import: ["": 20, "mine": 1]>\n'


def read(text: str) -> ir.Model:
    model = ir.from_onnx_text(HEADER + text)
    fill_types(model)
    return model


def operators(model: ir.Model) -> list[str]:
    return ["chain" if node.domain == DOMAIN else node.op_type for node in model.graph]


def compiled(text: str) -> list[str]:
    """The operators of the main graph after the change."""
    model = read(text)
    compile_chains(model)
    return operators(model)


N = "float[n, 64]"
CASES = {
    "a_chain": (f"g ({N} x) => ({N} y) {{ a = Sqrt(x) b = Add(a, x) c = Neg(b) y = Abs(c) }}", ["chain"]),
    "one_node_that_is_slow": (f"g ({N} x) => ({N} y) {{ y = Atanh(x) }}", ["chain"]),
    "too_little_to_gain": (f"g ({N} x) => ({N} y) {{ a = Neg(x) y = Abs(a) }}", ["Neg", "Abs"]),
    "few_elements": (
        "g (float[8, 8] x) => (float[8, 8] y) { a = Atanh(x) y = Atanh(a) }",
        ["Atanh", "Atanh"],
    ),
    "what_is_read_elsewhere_too_ends_a_chain": (
        f"g ({N} x) => ({N} y, {N} z) {{ a = Atanh(x) b = Add(a, x) c = Abs(b) y = Atanh(c) z = Erf(a) }}",
        ["chain", "chain", "Erf"],
    ),
    "what_is_an_output_ends_a_chain": (f"g ({N} x) => ({N} a, {N} y) {{ a = Atanh(x) y = Atanh(a) }}", ["chain"] * 2),
    "a_value_of_another_shape_is_an_input": (
        f"g ({N} x, float[1, 64] w) => ({N} y) {{ a = Neg(w) b = Abs(a) c = Add(x, b) y = Atanh(c) }}",
        ["Neg", "Abs", "chain"],
    ),
    "unknown_sizes_are_not_taken_as_equal": (
        "g (float[n, 64] x, float[m, 64] w) => (float[k, 64] y) { a = Atanh(w) b = Atanh(x) y = Add(a, b) }",
        ["chain", "chain", "Add"],
    ),
    "a_constant_may_not_change_the_rank": (
        "g (float[n] x) => (float[1, n] y) <float[1, 1] one = {1}> { a = Add(x, one) b = Atanh(a) y = Atanh(b) }",
        ["Add", "chain"],
    ),
    "no_operator_that_the_engine_vectorizes": (f"g ({N} x) => ({N} y) {{ a = Atanh(x) y = Erf(a) }}", ["chain", "Erf"]),
    "no_conversion_of_floats_to_integers": (
        f"g ({N} x) => (int64[n, 64] y) {{ a = Atanh(x) y = Cast <to = 7> (a) }}",
        ["chain", "Cast"],
    ),
    "no_16_bit_floats": ("g (float16[n, 64] x) => (float16[n, 64] y) { a = Atanh(x) y = Atanh(a) }", ["Atanh"] * 2),
    "no_operands_of_different_types": (
        f"g ({N} x, int64[n, 64] e) => ({N} y) {{ a = Pow(x, e) y = Atanh(a) }}",
        ["Pow", "chain"],
    ),
    "a_constant_alone_is_no_chain": (
        "g () => (float[64, 64] y) <float one = {1}, int64[2] s = {64, 64}> { a = Expand(one, s) y = Atanh(a) }",
        ["Expand", "chain"],
    ),
}


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_which_nodes_become_a_chain(name: str) -> None:
    text, expected = CASES[name]
    assert compiled(text) == expected


@needs_compiler
def test_chains_in_branches_read_values_outside() -> None:
    model = read(
        f"g (bool c, {N} x) => ({N} y) {{ a = Erf(x) y = If (c) <"
        f"then_branch = t () => ({N} u) {{ b = Atanh(a) u = Atanh(b) }}, "
        f"else_branch = e () => ({N} v) {{ v = Identity(a) }}> }}"
    )
    kernels, (change,) = compile_chains(model)
    (branch, _) = (attribute.as_graph() for attribute in model.graph[-1].attributes.values())
    assert [node.domain for node in branch] == [DOMAIN]
    assert [value.name for value in branch[0].inputs] == ["a"]
    assert len(kernels) == 1
    assert len(change.nodes) == 2


@pytest.mark.slow
@needs_compiler
def test_chains_in_the_bodies_of_other_nodes(tmp_path: Path) -> None:
    model = read(f"g ({N} x) => ({N} y) {{ y = mine.Twice(x) }}").clone()
    body = ir.from_onnx_text(HEADER + f"g ({N} a) => ({N} b) {{ c = Atanh(a) b = Atanh(c) }}").graph
    fill_types(ir.Model(body, ir_version=10))
    model.functions[("mine", "Twice", "")] = ir.Function("mine", "Twice", graph=body, attributes=[])
    model.opset_imports["mine"] = 1
    kernels, _ = compile_chains(model)
    assert [node.domain for node in body] == [DOMAIN]
    save_model(model, tmp_path, name="model.onnx")
    library = build(list(kernels), get("onnxruntime")).library.path
    x = np.linspace(-0.5, 0.5, 128, dtype=np.float32).reshape(2, 64)
    for libraries in ([], [library]):
        found = get("onnxruntime").load(tmp_path / "model.onnx", libraries=libraries).run({"x": x})["y"]
        np.testing.assert_allclose(found, np.arctanh(np.arctanh(x)), rtol=1e-6)


@needs_compiler
def test_equal_chains_share_a_kernel() -> None:
    model = read(f"g ({N} x) => ({N} y) {{ a = Atanh(x) b = Erf(a) c = Atanh(b) y = Erf(c) }}")
    kernels, _ = compile_chains(model)
    assert len(kernels) == len(model.functions) == 1
    assert operators(model) == ["chain", "Erf"] * 2


FLOATS = [0.0, -0.0, 0.3, -0.7, 0.999, 1.0, -1.0, 1.5, -2.5, 3.7, 88.0, -104.0, 1e-40, -1e-30, 3e38]
SPECIAL = [np.inf, -np.inf, np.nan]
INTEGERS = [0, 1, -1, 2, -3, 7, 100, -128, 127]
CALLS = {
    "Square": "y = Pow(a, two)",
    "Cube": "y = Pow(a, three)",
    "Exp2": "y = Pow(two, a)",
    "Mod": "y = Mod <fmod = 1> (a, b)",
    "Clip": "y = Clip(a, two, three)",
    "Cast": "y = Cast <to = 9> (a)",
    "LeakyRelu": "y = LeakyRelu <alpha = 0.3> (a)",
    "Where": "c = Less(b, two) y = Where(c, a, b)",
}
BINARY = frozenset(
    ["Add", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Pow", "Sub"]
)
LOGICAL = frozenset(["And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"])
PREDICATES = frozenset(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf", "Cast"])


def text_of(name: str, dtype: str) -> str:
    """A model that calls an operator."""
    calls = {"Where": "y = Where(a, b, a)"} if dtype == "bool" else CALLS
    call = calls.get(name, f"y = {name}({'a, b' if name in BINARY | LOGICAL else 'a'})")
    result = "bool" if name in PREDICATES else dtype
    constants = "" if dtype == "bool" else f"<{dtype} two = {{2}}, {dtype} three = {{3}}>"
    return f"g ({dtype}[n] a, {dtype}[n] b) => ({result}[n] y) {constants} {{ {call} }}"


def pairs(dtype: str) -> Sequence[np.ndarray]:
    """Each number with each other one."""
    numbers = [False, True] if dtype == "bool" else [*FLOATS, *SPECIAL] if dtype in NUMPY else INTEGERS
    first, second = np.meshgrid(*[np.array(numbers, NUMPY.get(dtype, dtype))] * 2)
    return first.ravel(), second.ravel()


NUMPY = {"float": "float32", "double": "float64"}
SERVED = {"float": 44, "double": 32, "int64": 20, "int32": 20, "bool": 6}
"""The number of operators that ONNX Runtime has, at least, for each element type."""


@needs_compiler
@pytest.mark.quick("bool", every=4)
@pytest.mark.parametrize("dtype", SERVED)
def test_each_operator_gives_what_the_engine_gives(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for infinities, NaN, negative zero, and integers that overflow."""
    monkeypatch.setattr(elementwise_chains, "_GAIN", 0)
    monkeypatch.setattr(elementwise_chains, "_SMALL", 0)
    engine, feeds = get("onnxruntime"), dict(zip("ab", pairs(dtype), strict=True))
    expected, kernels = {}, {}
    for name in ELEMENTWISE:
        model = read(text_of(name, dtype))
        save_model(model, tmp_path, name="nodes.onnx")
        try:
            expected[name] = engine.load(tmp_path / "nodes.onnx").run(feeds)["y"]
        except EngineError:
            continue  # ONNX or ONNX Runtime does not have it for this type.
        made, _ = compile_chains(model)
        save_model(model, tmp_path, name=f"{name}.onnx")
        np.testing.assert_array_equal(engine.load(tmp_path / f"{name}.onnx").run(feeds)["y"], expected[name])
        kernels.update({kernel.target: kernel for kernel in made})
    assert len(expected) >= SERVED[dtype]
    # As one file they are compiled in a fraction of the time.
    (tmp_path / "all.h").write_text("".join(kernel.file.read_text() for kernel in kernels.values()))
    together = [dataclasses.replace(kernel, file=tmp_path / "all.h") for kernel in kernels.values()]
    library = build(together, engine).library.path
    error = {"float": 4e-7, "double": 2e-15}.get(dtype, 0)
    for name, wanted in expected.items():
        found = engine.load(tmp_path / f"{name}.onnx", libraries=[library]).run(feeds)["y"]
        np.testing.assert_allclose(found, wanted, rtol=error, atol=1e-45 if error else 0, err_msg=name)
        # ONNX Runtime's Where makes 0 of -0; the kernel, like PyTorch, keeps it.
        zero = (wanted == 0) & (name != "Where")
        np.testing.assert_array_equal(np.signbit(1 * found[zero]), np.signbit(1 * wanted[zero]), err_msg=name)


@needs_compiler
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_shifts_give_what_the_engine_gives(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise_chains, "_GAIN", 0)
    monkeypatch.setattr(elementwise_chains, "_SMALL", 0)
    shifts = 'l = BitShift <direction = "LEFT"> (a, b) r = BitShift <direction = "RIGHT"> (a, b)'
    model = read(f"g ({dtype}[n] a, {dtype}[n] b) => ({dtype}[n] y) {{ {shifts} y = BitwiseXor(l, r) }}")
    kernels, _ = compile_chains(model)
    assert operators(model) == ["chain"]
    save_model(model, tmp_path, name="model.onnx")
    library = build(list(kernels), get("onnxruntime")).library.path
    width = np.dtype(dtype).itemsize * 8
    numbers = np.array([0, 1, 3, 100, 2**width - 1, 2 ** (width - 1)], dtype)
    first, second = np.meshgrid(numbers, np.arange(width, dtype=dtype))
    feeds = {"a": first.ravel(), "b": second.ravel()}
    expected = np.left_shift(first, second) ^ np.right_shift(first, second)
    for libraries in ([], [library]):
        if libraries or width != 16:  # ONNX Runtime shifts no uint16.
            found = get("onnxruntime").load(tmp_path / "model.onnx", libraries=libraries).run(feeds)["y"]
            np.testing.assert_array_equal(found, expected.ravel())


@pytest.mark.slow
@needs_compiler
def test_an_export_with_chains(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.where(x > 0, torch.hypot(x, y), torch.copysign(y, x)) @ y.T

    args = (torch.randn(100, 64), torch.randn(100, 64))
    bundle = opbridge.export(
        Net(), args, path=tmp_path / "bundle", kernels="always", dynamic_shapes=({0: "rows"}, {0: "rows"})
    )
    assert bundle.verified
    (kernels,) = bundle.manifest["kernels"]
    assert [name.partition("_")[0] for name in kernels["operators"]] == [f"{DOMAIN}::Chain"]
    assert kernels["optional"] is True
    file = next(bundle.path.glob("*.onnx"))
    assert operators(ir.load(file)) == ["chain", "Transpose", "MatMul"]
