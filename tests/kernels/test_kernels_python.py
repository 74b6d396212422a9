"""Kernels that are written in Python: what they may say, what Numba makes of it, and that no Python is left in it."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from places import SUPPORT
from torch import Tensor

import opbridge
from opbridge.catalog.declare.operator import Operator
from opbridge.errors import BuildError, EngineError, InputError
from opbridge.kernels import numba_compiler
from opbridge.kernels.compiler import build
from opbridge.kernels.library import KernelLibrary
from opbridge.kernels.python_source import fingerprint

numba = pytest.importorskip("numba", reason="not run: numba is not installed")
pytestmark = [
    pytest.mark.newest,
    pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="not run: kernels need a C++ compiler"),
]


@opbridge.operator("pykernel::blend")
def blend(a: Tensor, b: Tensor, alpha: float = 2.0, negate: bool = False) -> Tensor:
    return (-alpha if negate else alpha) * a + b


@blend.kernel(dtypes=["float32", "float64", "int64"])
def blend_kernel(a, b, alpha, negate):
    return (-alpha if negate else alpha) * a + b


@opbridge.operator("pykernel::inside")
def inside(x: Tensor, low: Tensor, high: Tensor, other: Tensor) -> Tensor:
    return (x > low) & (x < high) & (x != other)


@inside.kernel(layout="T x, T low, T high, T other -> bool found", dtypes=["int32"])
def inside_kernel(x, low, high, other):
    return low < x < high and x != other


@opbridge.operator("pykernel::norm")
def norm(x: Tensor, weight: Tensor, epsilon: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


@numba.njit
def root_of_mean_square(row, epsilon):
    squares = 0.0
    for value in row:
        squares += value * value
    return math.sqrt(squares / row.size + epsilon)


@norm.kernel(layout="x[..., n], weight[n] -> y[..., n]", grain=2)
def norm_kernel(x, weight, epsilon, y, begin, end):
    for row in range(begin, end):
        factor = 1 / root_of_mean_square(x[row], epsilon)
        for i in range(x.shape[1]):
            y[row, i] = x[row, i] * factor * weight[i]


@opbridge.operator("pykernel::picked")
def picked(x: Tensor, index: Tensor, scales: list[float], repeats: int = 1) -> tuple[Tensor, Tensor]:
    rows = x[index].repeat_interleave(repeats, 0)
    return rows * torch.tensor(scales, dtype=x.dtype), index + 1


@picked.kernel(
    layout="x[n, 2], I index[k] -> y[k * repeats, min(2, n + 2)], I next[k]",
    dtypes={"T": ["float32"], "I": ["int32", "int64"]},
)
def picked_kernel(x, index, scales, repeats, y, next):
    for i in range(index.size):
        assert 0 <= index[i] < x.shape[0], "an index is out of range"
        next[i] = index[i] + 1
        for k in range(i * repeats, (i + 1) * repeats):
            for column in range(2):
                y[k, column] = x[index[i], column] * scales[column]


def library_of(operator: Operator) -> KernelLibrary:
    return KernelLibrary(build([operator._kernel.header]))


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("sizes", [((3, 1, 5), (4, 1)), ((), ()), ((2, 0), (1,)), ((7,), ()), ((300, 401), (300, 401))])
def test_elements_are_broadcast(sizes):
    a, b = (torch.randn(size) for size in sizes)
    for dtype in (torch.float32, torch.float64):
        a, b = a.to(dtype), b.to(dtype)
        torch.testing.assert_close(blend(a, b, 3.0, True), blend.function(a, b, 3.0, True))
    torch.testing.assert_close(blend(a.long(), b.long()), blend.function(a.long(), b.long()).long())


@pytest.mark.slow
def test_elements_of_strided_tensors():
    a, b = torch.randn(6, 8).t()[::2], torch.randn(4, 6).flip(0)
    torch.testing.assert_close(blend(a, b), blend.function(a, b))


@pytest.mark.slow
def test_many_inputs_and_another_type_of_result():
    tensors = [torch.randint(-3, 3, size, dtype=torch.int32) for size in ((5, 4), (4,), (5, 1), ())]
    (found,) = library_of(inside).run("pykernel::inside", [tensor.numpy() for tensor in tensors])
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, inside.function(*tensors).numpy())


@pytest.mark.slow
@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 0, 4), (2, 1, 2, 3)])
def test_leading_axes_are_one(leading):
    x, weight = torch.randn(*leading, 6), torch.randn(6)
    torch.testing.assert_close(norm(x, weight), norm.function(x, weight))


@pytest.mark.slow
def test_parts_run_in_several_threads():
    x, weight = np.random.default_rng(0).standard_normal((101, 6)), np.ones(6)
    one, many = (library_of(norm).run("pykernel::norm", [x, weight], threads=number)[0] for number in (1, 5))
    np.testing.assert_array_equal(one, many)
    np.testing.assert_allclose(one, norm.function(torch.tensor(x), torch.tensor(weight)).numpy(), rtol=1e-12)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_lists_sizes_from_attributes_and_two_type_variables(dtype):
    x, index = torch.randn(4, 2), torch.tensor([3, 0, 3], dtype=dtype)
    for result, expected in zip(
        picked(x, index, [2.0, -1.0], 2), picked.function(x, index, [2.0, -1.0], 2), strict=True
    ):
        torch.testing.assert_close(result, expected)


@pytest.mark.slow
def test_errors_of_a_run_are_the_hosts():
    with pytest.raises(RuntimeError, match="pykernel::picked: an index is out of range"):
        picked(torch.randn(4, 2), torch.tensor([4]), [1.0, 1.0])
    library = library_of(norm)
    x, weight = np.ones((2, 6)), np.ones(5)
    with pytest.raises(EngineError, match=r"n is 6 in x\[..., n\], but 5 in weight\[n\]"):
        library.run("pykernel::norm", [x, weight])
    with pytest.raises(EngineError, match=r"expected weight\[n\], got sizes \(2, 6\)"):
        library.run("pykernel::norm", [x, x])
    with pytest.raises(EngineError, match=r"the size is 2 in the attribute, but 3 in x\[n, 2\]"):
        library_of(picked).shapes(
            "pykernel::picked", [np.ones((2, 3), np.float32), np.zeros(1, np.int64)], {"scales": [1.0]}
        )


def declared(function, *, name: str = "wrong", operator=None, **options):
    """An operator of one tensor, unless another is given, with this kernel."""

    def doubled(x: Tensor, factor: int = 2) -> Tensor:
        return x * factor

    made = opbridge.operator(f"pykernel::{name}")(operator or doubled)
    made.kernel(**options)(function)
    return made


def elementwise(x, factor):
    return x * factor


def arrays(x, factor, y):
    y[0] = x[0]


def texts(x: Tensor, mode: str = "a") -> Tensor:
    return x.clone()


def perhaps(x: Tensor, y: Tensor | None = None) -> Tensor:
    return x.clone()


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (elementwise, {"layout": "x[n] -> y[n]"}, r"it has the parameters \(x, factor\)"),
        (arrays, {}, r"it has the parameters \(x, factor, y\)"),
        (arrays, {"layout": "x[n] y[n]"}, "it has no '->'"),
        (arrays, {"layout": "x[n] ->"}, "there is no output"),
        (arrays, {"layout": "x[n] -> y"}, "some tensors have sizes and some have none"),
        (arrays, {"layout": "x[n] -> y[m]"}, "no input and no integer attribute defines the size 'm'"),
        (arrays, {"layout": "x[n] -> y[..., n]"}, "no input defines the leading axes"),
        (arrays, {"layout": "x[n] -> y[n ** 2]"}, r"the size 'n \*\* 2' may only have names"),
        (arrays, {"layout": "x[n + 1] -> y[n]"}, "'n \\+ 1' of the input .* is neither a name nor a number"),
        (arrays, {"layout": "x[] -> y[n]"}, "has no sizes; a tensor of any rank is"),
        (arrays, {"layout": "z[n] -> y[n]"}, r"its layout has the inputs \(z\), and the operator \(x\)"),
        (arrays, {"layout": "x[n] -> U y[n]"}, "the type 'U' of y"),
        (arrays, {"layout": "x[n] -> U y[n]", "dtypes": {"T": ["int8"], "U": ["int8"]}}, "no input has the type 'U'"),
        (elementwise, {"dtypes": ["float16"]}, "Numba can't compile a kernel for 'float16'"),
        (elementwise, {"operator": texts}, "no parameter like 'mode', of type str"),
        (elementwise, {"operator": perhaps}, "its input 'y' may be left out"),
    ],
)
def test_a_wrong_declaration(function, options, message):
    with pytest.raises(InputError, match=message) as caught:
        declared(function, **options)
    assert caught.value.fix
    if options.get("dtypes") == ["float16"]:
        assert "in C++ takes 16-bit floats" in caught.value.fix


HERE = Path(__file__).name


def unknown_method(x, factor, y):
    y[0] = x.frobnicate()


def unknown_name(x, factor, y):
    y[0] = no_such_name  # noqa: F821


def text_and_number(x, factor, y):
    y[0] = x[0] + "a"


def allocates(x, factor, y):
    for i in range(x.size):
        y[i] = np.zeros(x.size)[i] + np.sum(np.ones(i) * x[:i])


def prints(x, factor, y):
    print("hello")


def assigns_whole(x, factor, y):
    y[:] = x


@numba.njit
def failing(value):
    if value > 2:
        raise ValueError("too much")
    return value


def raises_elsewhere(x, factor, y):
    for i in range(x.size):
        y[i] = failing(x[i])


def text_is_not_constant(x, factor, y):
    raise ValueError(f"{factor}")


def returns_something(x, factor, y):
    return x[0]


def has_try(x, factor, y):
    try:
        y[0] = x[0]
    except ValueError:
        y[0] = 1


@pytest.mark.quick("unknown_method", "allocates-0", every=9)
@pytest.mark.parametrize(
    ("function", "line", "message"),
    [
        (unknown_method, 1, "Unknown attribute 'frobnicate' of type array"),
        (unknown_name, 0, "name 'no_such_name' is not defined"),
        (text_and_number, 1, r"No implementation of function Function\(<built-in function add>\): add\(float32, "),
        (allocates, 0, "allocates memory"),
        (prints, 0, "prints"),
        (assigns_whole, 0, "may raise an exception|allocates memory"),
        (raises_elsewhere, 0, "may raise an exception, itself or in what it calls"),
        (text_is_not_constant, 1, "raises an exception whose text is not constant"),
        (returns_something, 1, "returns a value"),
        (has_try, 1, "has a try statement"),
    ],
)
def test_a_kernel_that_can_not_be_compiled(function, line, message):
    made = declared(function, name=function.__name__, layout="x[n] -> y[n]", dtypes=["float32"])
    with pytest.raises(BuildError, match=message) as caught:
        _ = made._kernel.header
    assert f"{HERE}:{function.__code__.co_firstlineno + line}: " in caught.value.message
    assert caught.value.fix


def test_a_function_that_is_in_no_file():
    scope: dict = {}
    exec("def kernel(x, factor, y):\n    y[0] = x[0]\n", scope)
    made = declared(scope["kernel"], name="in_no_file", layout="x[n] -> y[n]")
    with pytest.raises(BuildError, match="is not in a file, but") as caught:
        _ = made._kernel.header
    assert "write the kernel in a file" in caught.value.fix


@pytest.mark.slow
def test_the_library_needs_nothing_of_python():
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("not run: there is no nm")
    path = build([blend._kernel.header, norm._kernel.header])
    undefined = subprocess.run([nm, "-D", "--undefined-only", path], capture_output=True, text=True, check=True).stdout
    assert "memcpy" in undefined or "GLIBC" in undefined
    assert not [line for line in undefined.splitlines() if any(word in line for word in ("Py", "NRT", "numba"))]


@pytest.mark.slow
def test_code_for_every_processor_and_for_those_with_avx2():
    text = blend._kernel.header.read_text()
    if not numba_compiler._llvm().get_process_triple().startswith("x86_64"):
        pytest.skip("not run: AVX2 is of x86-64")
    portable, mark, wide = text.partition("opbridge_python_pykernel_blend_float32_0_avx2")
    assert mark
    assert "xmm" in portable
    assert "ymm" not in portable
    assert "ymm" in wide
    # It rounds once instead of twice: results would be others on other machines.
    assert "vfmadd" not in text


OFFSET = 1.0


def test_what_the_kernel_uses_is_part_of_its_hash(monkeypatch):
    def scaled(x):
        return x * OFFSET + root_of_mean_square(x, 0.0)

    first = fingerprint(scaled)
    assert first == fingerprint(scaled)
    monkeypatch.setitem(globals(), "OFFSET", 2.0)
    assert fingerprint(scaled) not in (None, first)
    monkeypatch.setitem(globals(), "OFFSET", object())
    assert fingerprint(scaled) is None


class Both(torch.nn.Module):
    def forward(self, a: Tensor, weight: Tensor) -> Tensor:
        return norm(blend(a, a, 0.5), weight)


@pytest.mark.slow
def test_a_bundle_in_a_process_without_torch_numba_and_opbridge(tmp_path):
    pytest.importorskip("onnxruntime", reason="not run: onnxruntime is not installed")
    inputs = (torch.randn(3, 6), torch.randn(6))
    bundle = opbridge.export(Both(), inputs, path=tmp_path / "bundle", dynamic_shapes={"a": {0: "n"}, "weight": {}})
    assert bundle.verified
    assert {step["rung"] for step in bundle.manifest["operators"]} == {"kernel"}
    sources = sorted(path.name for path in (bundle.path / "kernels" / "src").iterdir() if path.suffix == ".h")
    assert sources == ["opbridge.h", "pykernel_blend.h", "pykernel_norm.h"]
    a = np.random.default_rng(1).standard_normal((5, 6)).astype(np.float32)
    np.savez(tmp_path / "given.npz", a=a, weight=inputs[1].numpy())
    script = f"""
import sys
for name in ("torch", "numba", "llvmlite", "opbridge"):
    sys.modules[name] = None
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(r"{bundle.path / "kernels" / bundle.manifest["kernels"][0]["file"].split("/")[-1]}")
session = onnxruntime.InferenceSession(r"{bundle.path / "model.onnx"}", options, providers=["CPUExecutionProvider"])
numpy.save(r"{tmp_path / "result.npy"}", session.run(None, dict(numpy.load(r"{tmp_path / "given.npz"}")))[0])
"""
    subprocess.run([sys.executable, "-P", "-c", script], check=True)
    a = torch.tensor(a)
    expected = norm.function(blend.function(a, a, 0.5), inputs[1])
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_without_numba_the_function_body_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(numba_compiler, "_llvm", numba_compiler._llvm.__wrapped__)
    with pytest.warns(UserWarning, match="the slower function body runs instead of the kernel") as caught:
        bundle = opbridge.export(Both(), (torch.randn(3, 6), torch.randn(6)), path=tmp_path / "bundle")
    assert 'pip install "numba>=0.62.0"' in str(caught[0].message)
    assert bundle.verified
    assert {step["rung"] for step in bundle.manifest["operators"]} == {"function"}


def test_two_kernels_for_one_operator():
    with pytest.raises(InputError, match="has two kernels"):
        blend.kernel(SUPPORT / "kernels" / "my_add.h")
