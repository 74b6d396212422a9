"""The programs of the old tutorials, as they are: exported by run-script, and run where their nodes can."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import OLD_PROGRAMS

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import opbridge  # noqa: E402
from opbridge import legacy  # noqa: E402
from opbridge.capture.entry import load_file  # noqa: E402
from opbridge.catalog.declare import spec  # noqa: E402
from opbridge.errors import BuildError  # noqa: E402
from opbridge.kernels.toolchain import find_compiler  # noqa: E402
from opbridge.legacy.migrate import migrate  # noqa: E402
from opbridge.legacy.run_script import run_script  # noqa: E402

LOOPS = ("traced", "scripted")


def need_compiler() -> None:
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(error.message)


@contextlib.contextmanager
def unregistered(name: str, opset: int) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            torch.onnx.unregister_custom_op_symbolic(name, opset)


def exported(script: str, folder: Path, *arguments: str) -> Any:
    """The model that a script writes, run with the bridge on."""
    file = folder / "model.onnx"
    run = run_script(OLD_PROGRAMS / script, [str(file), *arguments])
    assert run.exit_code == 0
    assert run.bridged
    return onnx.load(file)


def nodes(model: Any) -> list[str]:
    """The operators in order, but for constants."""
    made = [node for node in model.graph.node if node.op_type != "Constant"]
    return [f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in made]


def run(model: Any, *inputs: Any) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([value.name for value in session.get_inputs()], inputs, strict=True)))


def test_asinh_by_register_op_is_the_users_mapping(tmp_path: Path) -> None:
    with unregistered("aten::asinh", 9):
        model = exported("asinh.py", tmp_path)
    assert nodes(model) == ["Mul", "Add", "Sqrt", "Add", "Log"]
    x = np.linspace(-2, 2, 300, dtype=np.float32).reshape(1, 3, 10, 10)
    np.testing.assert_allclose(run(model, x)[0], np.arcsinh(x), 1e-5, 1e-6)


def test_deform_conv_of_two_inputs_node_for_node(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    with unregistered("torchvision::deform_conv2d", 9):
        model = exported("deform_conv.py", tmp_path)
    assert nodes(model) == ["Conv", "custom::deform_conv2d"]
    conv, custom = model.graph.node
    assert list(custom.input) == [model.graph.input[0].name, conv.output[0]]
    assert not custom.attribute
    assert list(custom.output) == [model.graph.output[0].name]


@pytest.mark.slow
def test_deform_conv_of_all_inputs_runs_with_a_kernel(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    need_compiler()
    example = load_file(str(OLD_PROGRAMS / "deform_conv.py"))
    torch.manual_seed(0)
    model, x = example.Model().eval(), torch.randn(2, 3, 12, 14)
    with unregistered("torchvision::deform_conv2d", 9), declared_here():
        torch.onnx.register_custom_op_symbolic("torchvision::deform_conv2d", example.symbolic_of_all, 9)
        opbridge.kernel_for("custom::deform_conv2d", OLD_PROGRAMS / "deform_conv.h")
        with legacy.enable():
            bundle = opbridge.export(model, (x,), path=tmp_path / "bundle")
    assert bundle.verified
    assert nodes(onnx.load(bundle.path / "model.onnx")) == ["Conv", "custom::deform_conv2d"]
    with torch.no_grad():
        np.testing.assert_allclose(opbridge.load(bundle.path)(x.numpy())[0], model(x).numpy(), 1e-4, 1e-5)


@contextlib.contextmanager
def declared_here() -> Iterator[None]:
    """Take back what is declared meanwhile."""
    from opbridge.kernels import declared

    kernels, specs = dict(declared._declared), list(spec._declared)
    try:
        yield
    finally:
        declared._declared.clear()
        declared._declared.update(kernels)
        spec._declared[:] = specs


@pytest.mark.slow
def test_super_resolution_takes_its_factor_at_run_time(tmp_path: Path) -> None:
    model = exported("super_resolution.py", tmp_path)
    assert nodes(model).count("Resize") == 1
    assert [value.name for value in model.graph.input] == ["input", "factor"]
    example = load_file(str(OLD_PROGRAMS / "super_resolution.py"))
    network = example.init_torch_model()
    for factor in (2.0, 3.0):
        x, scales = torch.randn(1, 3, 32, 32), torch.tensor([1, 1, factor, factor])
        with torch.no_grad():
            expected = network(x, scales)
        found = run(model, x.numpy(), scales.numpy())[0]
        np.testing.assert_allclose(found, expected.numpy(), 1e-3, 1e-4)


def test_clamp_swish_with_and_without_symbolic(tmp_path: Path) -> None:
    model = exported("clamp_swish.py", tmp_path)
    names = nodes(model)
    assert names[-1] == "custom_domain::customOp2"
    assert sorted(set(names[:-1]) - {"Clip", "Max", "Relu"}) == ["Add", "Div", "Exp", "Neg", "Sub"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["body", "kernel"])
def test_its_custom_node_runs(by: str, tmp_path: Path) -> None:
    example = load_file(str(OLD_PROGRAMS / "clamp_swish.py"))
    x = torch.randn(2, 3, 16, 16)
    with declared_here(), legacy.enable():
        if by == "kernel":
            need_compiler()
            opbridge.kernel_for("custom_domain::customOp2", OLD_PROGRAMS / "clamp_swish.h")
        else:
            opbridge.body_for("custom_domain::customOp2")(lambda x: x.clamp(min=0) / (1 + torch.exp(-x.clamp(min=0))))
        bundle = opbridge.export(
            example.Model().eval(), (x,), path=tmp_path / "bundle", dynamic_shapes={"x": {0: "batch"}}
        )
    assert bundle.verified
    model = onnx.load(bundle.path / "model.onnx")
    assert nodes(model)[-1] == "custom_domain::customOp2"
    assert [function.name for function in model.functions] == (["customOp2"] if by == "body" else [])
    assert bool(bundle.manifest["kernels"]) is (by == "kernel")
    y = torch.randn(5, 3, 16, 16)
    with torch.no_grad():
        np.testing.assert_allclose(opbridge.load(bundle.path)(y.numpy())[0], example.Model()(y).numpy(), 1e-4, 1e-5)


_LIGHT = """
// What my_add.cpp uses of torch/extension.h: the whole takes a compiler half a minute.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>
namespace torch { using at::Tensor; }
"""

_BOTH_WAYS = """
import runpy, sys
from opbridge.legacy.run_script import run_script

sys.argv = ["migrated.py", "migrated.onnx"]
runpy.run_path("migrated.py", run_name="__main__")
print([item.name for item in run_script("export.py", ["model.onnx"]).bridged])
"""


@pytest.mark.slow
@pytest.mark.newest
def test_my_add_with_its_extension(tmp_path: Path) -> None:
    pytest.importorskip("libcst")
    need_compiler()
    folder = Path(shutil.copytree(OLD_PROGRAMS / "my_add", tmp_path / "my_add"))
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    header = tmp_path / "light" / "torch" / "extension.h"
    header.parent.mkdir(parents=True)
    header.write_text(_LIGHT)
    flags = f"-O0 -g0 -I{tmp_path / 'light'}"
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    quickly = {**os.environ, "CFLAGS": flags, "CXXFLAGS": flags}
    built = subprocess.run(command, cwd=folder, env=quickly, capture_output=True, text=True, timeout=900, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    (folder / "migrated.py").write_text(migrate(folder / "export.py").text)
    command = [sys.executable, "-c", _BOTH_WAYS]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("['MyAddFunction']\n")
    a, b = (np.random.default_rng(seed).random((1, 3, 10, 10), np.float32) for seed in (0, 1))
    for name in ("model.onnx", "migrated.onnx"):
        model = onnx.load(folder / name)
        assert nodes(model) == ["Mul", "Add"]
        assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["a", "b", "sum"]
        np.testing.assert_allclose(run(model, a, b)[0], 2 * a + b, 1e-6)


_OLD_AND_MIGRATED = """
import runpy, sys
from opbridge.legacy.run_script import run_script

for name in sys.argv[1:]:
    assert run_script(f"{name}.py", [f"{name}_old"]).exit_code == 0
for name in list(sys.argv[1:]):
    sys.argv = [f"{name}_migrated.py", f"{name}_new"]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.sweep
@pytest.mark.newest
def test_migrated_examples_write_models_that_compute_the_same(tmp_path: Path) -> None:
    pytest.importorskip("libcst")
    pytest.importorskip("torchvision")
    names = ["asinh", "clamp_swish", "deform_conv", "loop", "super_resolution"]
    for name in names:
        shutil.copy(OLD_PROGRAMS / f"{name}.py", tmp_path)
        migration = migrate(OLD_PROGRAMS / f"{name}.py")
        assert migration.left == ()
        (tmp_path / f"{name}_migrated.py").write_text(migration.text)
    command = [sys.executable, "-c", _OLD_AND_MIGRATED, *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for name in ("clamp_swish", "deform_conv"):
        old, new = (onnx.load(tmp_path / f"{name}_{kind}") for kind in ("old", "new"))
        assert nodes(new)[-1] == nodes(old)[-1]
        assert "::" in nodes(new)[-1]
    files = ["asinh_{}", "super_resolution_{}", *(f"loop_{{}}/{n}_{kind}.onnx" for n in (2, 3) for kind in LOOPS)]
    generator = np.random.default_rng(0)
    for file in files:
        old, new = (onnx.load(tmp_path / file.format(kind)) for kind in ("old", "new"))
        sizes = [size.dim_value for size in old.graph.input[0].type.tensor_type.shape.dim]
        inputs = [generator.random(sizes, np.float32), np.array([1, 1, 2, 2], np.float32)][: len(old.graph.input)]
        np.testing.assert_allclose(run(new, *inputs)[0], run(old, *inputs)[0], 1e-4, 1e-5)
