"""What is special about ExecuTorch: it takes a torch program, and plans its memory before it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_models import Extremes, SoftSteps, extremes
from places import SUPPORT

import opbridge
from opbridge import engines
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines.executorch import libraries, native
from opbridge.engines.executorch.out_variants import define_out_variants
from opbridge.engines.specs import read_specs
from opbridge.errors import EngineError, EngineNotInstalledError, InputError, UnsupportedOperatorError
from opbridge.kernels.compiler import build

pytest.importorskip("executorch", reason="not run: executorch is not installed")

pytestmark = pytest.mark.newest


@pytest.fixture
def engine():
    return engines.get("executorch")


class Mixed(torch.nn.Module):
    """Views, indices, reductions, several outputs, a number of another type."""

    def forward(self, x, index):
        return (
            x[:, index].reshape(-1, 2),
            x.argmax(1),
            torch.nn.functional.layer_norm(x, x.shape[1:]),
            (x > 0).to(torch.bfloat16),
        )


def test_a_program_runs_at_other_sizes_up_to_the_planned_ones(engine, tmp_path):
    inputs = (torch.randn(3, 4), torch.tensor([2, 0]))
    bundle = opbridge.export(
        Mixed(), inputs, path=tmp_path / "b", engines=["executorch"], dynamic_shapes={"x": {0: "rows"}, "index": None}
    )
    assert bundle.verified, bundle.verification
    assert bundle.manifest["models"][0]["file"] == "model.executorch.pte"
    assert {step["rung"] for step in bundle.manifest["operators"]} == {"native"}
    session = opbridge.load(bundle.path, "executorch")
    assert (session.inputs, session.outputs) == read_specs(bundle.path / "model.executorch.json")
    assert [spec.dtype for spec in session.outputs] == ["float32", "int64", "float32", "bfloat16"]
    x, index = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32), np.array([1, 3])
    first = session(x, index)
    for result, expected in zip(first, Mixed()(torch.from_numpy(x), torch.from_numpy(index)), strict=True):
        np.testing.assert_allclose(result.astype(np.float32), expected.float().numpy(), rtol=1e-5, atol=1e-6)
    session(2 * x, index)
    assert np.array_equal(first[1], x.argmax(1)), "the next run must not overwrite earlier results"
    with pytest.raises(EngineError, match="ExecuTorch failed while running the program") as caught:
        session(np.zeros((17, 4), np.float32), index)
    assert "twice the example's" in caught.value.fix


def test_what_the_runtime_lacks_is_decomposed_or_named(engine, tmp_path):
    x = torch.randn(3, 4)
    bundle = opbridge.export(SoftSteps(), (x,), path=tmp_path / "b", engines=["executorch"], verify=False)
    (result,) = opbridge.load(bundle.path, "executorch")(x.numpy())
    np.testing.assert_allclose(result, SoftSteps()(x).numpy(), rtol=1e-6)
    rungs = {step["target"]: step["rung"] for step in bundle.manifest["operators"]}
    assert rungs["enginetest::soft_step"] == "function"
    (change,) = bundle.manifest["adaptations"]["executorch"]
    assert change["what"].startswith("enginetest::soft_step is decomposed: ExecuTorch")

    class Svd(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svd(x)[1]

    with pytest.raises(UnsupportedOperatorError) as caught:
        opbridge.export(Svd(), (torch.randn(3, 4),), path=tmp_path / "svd", engines=["executorch"])
    lacking = f"aten::linalg_svd: ExecuTorch {engine.version} has no kernel for aten::_linalg_svd, which"
    assert lacking in caught.value.message
    assert not (tmp_path / "svd").exists()


def test_what_only_the_whole_program_shows_is_an_error_with_a_fix(engine, tmp_path, monkeypatch):
    lacking = native.kernels() - {"aten::sigmoid.out"}
    model, x = torch.nn.Sigmoid(), torch.randn(2)
    engine._support  # noqa: B018, it is asked before the kernel goes
    opbridge.export(model, (x,), path=tmp_path / "a", engines=["executorch"], verify=False)
    monkeypatch.setattr(native, "kernels", lambda: lacking)
    with pytest.raises(
        EngineError, match=r"no kernel for aten::sigmoid\.out, which the compiled program calls"
    ) as caught:
        opbridge.export(model, (x,), path=tmp_path / "b", engines=["executorch"], verify=False)
    assert "@opbridge.decomposition" in caught.value.fix
    monkeypatch.setattr(
        native, "lowered", lambda program: (_ for _ in ()).throw(RuntimeError("\nno memory plan\nat x"))
    )
    with pytest.raises(EngineError, match="can't compile the program: no memory plan"):
        opbridge.export(model, (x,), path=tmp_path / "b", engines=["executorch"], verify=False)


def test_files_and_options_that_are_none(engine, tmp_path):
    bad = tmp_path / "bad.pte"
    bad.write_bytes(b"no program")
    with pytest.raises(InputError, match=r"bad\.json, which describes the model's inputs and outputs, is missing"):
        engine.load(bad)
    (tmp_path / "bad.json").write_text('{"inputs": [], "outputs": []}')
    with pytest.raises(EngineError, match=r"ExecuTorch .* refuses 'bad\.pte'") as caught:
        engine.load(bad)
    assert "export it again" in caught.value.fix
    for options, message in (
        ({"providers": ["x"]}, "no execution providers"),
        ({"libraries": [tmp_path / "k.so"]}, "k.so"),
        ({"threads": 0}, "at least one thread"),
    ):
        with pytest.raises(InputError, match=message):
            engine.load(bad, **options)
    with pytest.raises(InputError, match="does not exist"):
        engine.load(tmp_path / "none.pte")


def test_it_is_not_there(engine, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "executorch", None)
    with pytest.raises(EngineNotInstalledError, match="executorch is not installed") as caught:
        _ = engine.version
    assert "pip install --upgrade executorch" in caught.value.fix


needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++"))), reason="not run: kernels need a C++ compiler"
)


def bundle_of_extremes(folder: Path, *tensors: torch.Tensor) -> opbridge.Bundle:
    with without_kernels():
        return opbridge.export(Extremes(), tensors, path=folder / "bundle", engines=["executorch"], verify=False)


@needs_compiler
def test_a_kernel_that_is_loaded_here_is_none_of_the_runtimes_own(tmp_path):
    x = torch.randn(3, 4)
    before = native.kernels()
    opbridge.load(bundle_of_extremes(tmp_path, x, x).path, "executorch")
    assert "enginetest::extremes.out" in native.runtime().operator_registry.operator_names
    assert native.kernels() == before
    assert "enginetest::extremes.out" not in before


@needs_compiler
def test_a_kernel_is_verified_and_other_element_types_run_the_body(tmp_path):
    x = torch.randn(3, 4)
    bundle = opbridge.export(Extremes(), (x, x), path=tmp_path / "b", engines=["executorch"])
    assert bundle.verified, bundle.verification
    assert {step["rung"] for step in bundle.manifest["operators"]} == {"kernel"}
    bundle = bundle_of_extremes(tmp_path, x.half(), x.half())
    assert [step["rung"] for step in bundle.manifest["operators"] if "extremes" in step["target"]] == ["function"]
    results = opbridge.load(bundle.path, "executorch")(x.half().numpy(), x.half().numpy())
    expected = extremes.function(x.half(), x.half(), 3, 0)
    np.testing.assert_array_equal(results[0], expected[0].numpy())


def test_operators_of_a_kernel_file_that_torch_has_not_are_passed_over():
    """A file may declare several operators; the model, and torch, need not have them all."""
    define_out_variants(["test_engine_executorch::absent", "aten::relu"])
    assert not hasattr(torch.ops.test_engine_executorch, "absent")


@needs_compiler
def test_a_library_that_is_loaded_later_takes_over(engine, tmp_path):
    source = SUPPORT / "engine_kernels" / "extremes.h"
    x = torch.randn(3, 4)
    session = opbridge.load(bundle_of_extremes(tmp_path, x, x).path, "executorch")
    before = session(x.numpy(), x.numpy())
    changed = tmp_path / "extremes.h"
    changed.write_text(source.read_text().replace("values[i] = value;", "values[i] = value + 1000;"))
    options = {"adapters": [engine.kernel_adapter], "adapter_flags": engine.adapter_flags}
    libraries.load_libraries([build([changed], **options)])
    try:
        assert (session(x.numpy(), x.numpy())[0] > 900).any()
    finally:
        libraries.load_libraries([build([source], **options)])
    for result, expected in zip(session(x.numpy(), x.numpy()), before, strict=True):
        np.testing.assert_array_equal(result, expected)


@needs_compiler
def test_a_library_of_another_engine(tmp_path):
    x = torch.randn(3, 4)
    bundle = bundle_of_extremes(tmp_path, x, x)
    plain = build([SUPPORT / "engine_kernels" / "extremes.h"])
    with pytest.raises(EngineError, match="holds kernels, but not for executorch") as caught:
        engines.get("executorch").load(bundle.path / "model.executorch.pte", libraries=[plain])
    assert "--engine executorch" in caught.value.fix


PROGRAM = """
#include <dlfcn.h>
#include <iostream>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

// Runs the program of argv[1] with the library of argv[2] on x = 0, 1, 2, ... and an offset of 1.
int main(int, char** argv) {
  void* library = dlopen(argv[2], RTLD_NOW);
  if (library == nullptr) return std::cerr << dlerror(), 1;
  const auto add = reinterpret_cast<const char* (*)()>(dlsym(library, "opbridge_executorch_register"));
  if (const char* problem = add()) return std::cerr << problem, 1;
  executorch::extension::Module module(argv[1]);
  float x[6], offset[6];
  for (int i = 0; i < 6; ++i) x[i] = static_cast<float>(i), offset[i] = 1;
  const auto first = executorch::extension::from_blob(x, {3, 2});
  const auto second = executorch::extension::from_blob(offset, {3, 2});
  const auto results = module.forward({first, second});
  if (!results.ok()) return 2;
  for (int i = 0; i < 2; ++i) std::cout << results->at(0).toTensor().const_data_ptr<float>()[i] << " ";
  for (int i = 0; i < 2; ++i) std::cout << results->at(1).toTensor().const_data_ptr<int64_t>()[i] << " ";
}
"""


def built_by_cmake(kernels: Path, build_folder: Path, package: Path) -> Path:
    """The library that a bundle's CMakeLists.txt makes; without optimizing, which takes most of the time."""
    cmake = kernels / "CMakeLists.txt"
    cmake.write_text(cmake.read_text().replace(" -O3 ", " -O0 "))
    setting = f"-DCMAKE_PREFIX_PATH={package}"
    subprocess.run(["cmake", "-S", kernels, "-B", build_folder, setting], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build_folder], check=True, capture_output=True)
    return build_folder / "executorch_kernels.so"


@needs_compiler
def test_a_program_without_python_runs_the_model_and_its_kernels(engine, tmp_path):
    made = bundle_of_extremes(tmp_path, torch.randn(3, 2), torch.randn(3, 2))
    (tmp_path / "run.cc").write_text(PROGRAM)
    flags, program = engine.adapter_flags, str(tmp_path / "run")
    compiler = shutil.which("g++") or shutil.which("clang++")
    linking = [*flags.link, "-Wl,--no-as-needed", "-lexecutorch_kernels_optimized", "-Wl,-rpath-link,.", "-ldl"]
    command = [compiler, "-std=c++17", *flags.compile, str(tmp_path / "run.cc"), *linking, "-o", program]
    subprocess.run(command, check=True)
    folder = next(flag.removeprefix("-L") for flag in flags.link if flag.startswith("-L"))
    built = [made.path / made.kernels("executorch")["file"]]
    if shutil.which("cmake"):
        built.append(built_by_cmake(made.path / "kernels", tmp_path / "cmake", Path(folder).parent))
    for library in built:
        child = subprocess.run(
            [program, str(made.model_file("executorch")), str(library)],
            env={**os.environ, "LD_LIBRARY_PATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        assert child.returncode == 0, child.stderr
        assert child.stdout.split() == ["13", "16", "2", "2"]
