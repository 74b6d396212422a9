"""The rung ``kernel``: compiled kernels in bundles, beside the function bodies, and in PyTorch."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import opbridge
from opbridge.errors import BuildError, EngineError, InputError
from opbridge.kernels import declared
from opbridge.operator import Operator, find_operator, without_kernels

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++"))), reason="not run: kernels need a C++ compiler"
)

SCALE = """\
#include "opbridge.h"

template <class T>
void scale(opbridge::Call& call) {
  const auto by = static_cast<opbridge::compute_t<T>>(call.attribute_float("by"));
  opbridge::elementwise(call, call.output<T>(0), [by](auto a) { return FORMULA; }, call.input<T>(0));
}

OPBRIDGE_OPERATOR(scale, opbridge::shape_of_first, "rungtest::NAME(T a, float by=2.0) -> T scaled",
                  opbridge::types<float, opbridge::half>)
"""


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declarations of a test are its own."""
    monkeypatch.setattr(declared, "_declared", {})


_count = iter(range(1000))


def scale_operator(folder: Path, formula: str = "by * a") -> Operator:
    """A new operator by * a with a kernel for float32 and float16 that computes ``formula``."""
    name = f"scale{next(_count)}"
    (folder / f"{name}.h").write_text(SCALE.replace("NAME", name).replace("FORMULA", formula))

    @opbridge.operator(f"rungtest::{name}")
    def scale(a: Tensor, by: float = 2.0) -> Tensor:
        return by * a

    scale.kernel(folder / f"{name}.h")
    return scale


class Scaled(nn.Module):
    def __init__(self, scale: Operator) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.scale(x, 3.0), self.scale(x.to(torch.int32))


def exported(folder: Path, scale: Operator, **options: object) -> opbridge.Bundle:
    return opbridge.export(
        Scaled(scale),
        (torch.randn(4, 5),),
        path=folder / "bundle",
        dynamic_shapes={"x": {0: "n"}},
        output_names=["floats", "integers"],
        **options,
    )


@pytest.mark.usefixtures("kernels")
def test_a_bundle_carries_the_kernel_and_the_bodies_and_both_are_verified(tmp_path: Path) -> None:
    scale = scale_operator(tmp_path)
    bundle = exported(tmp_path, scale)
    assert bundle.verified
    assert bundle.verification["engine"] == "onnxruntime with kernels, onnxruntime with function bodies"
    assert [step["rung"] for step in bundle.manifest["operators"] if "rungtest" in step["target"]] == ["kernel"]
    (library,) = bundle.manifest["kernels"]
    assert library["operators"] == [scale.target]
    assert library["optional"] is True
    files = set(bundle.manifest["files"])
    assert {library["file"], "kernels/CMakeLists.txt", "kernels/src/opbridge.h", "kernels/src/adapter.cc"} <= files

    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    for session in (opbridge.load(bundle.path), opbridge.load(bundle.path, kernels=False)):
        floats, integers = session(x)
        np.testing.assert_array_equal(floats, 3 * x)
        np.testing.assert_array_equal(integers, (2 * x).astype(integers.dtype))


@pytest.mark.usefixtures("kernels")
def test_a_node_that_the_kernel_does_not_cover_runs_its_body(tmp_path: Path) -> None:
    bundle = exported(tmp_path, scale_operator(tmp_path), verify=False)
    nodes = {node.domain: node.op_type for node in onnx.load(bundle.path / "model.onnx").graph.node}
    assert set(nodes) == {"", "rungtest", "opbridge.body"}
    (adaptation,) = bundle.manifest["adaptations"]["onnxruntime"]
    assert "runs its body: its kernel does not take these element types" in adaptation["what"]


@pytest.mark.usefixtures("kernels")
def test_a_wrong_kernel_fails_and_the_bodies_pass(tmp_path: Path) -> None:
    bundle = exported(tmp_path, scale_operator(tmp_path, formula="by + a"))
    assert bundle.verified is False
    verdicts = [(c["output"], c["status"]) for c in bundle.verification["comparisons"]]
    assert verdicts[:2] == [("floats", "differs"), ("integers", "equal")]
    assert ("floats", "equal") in verdicts


@pytest.mark.usefixtures("kernels")
def test_pytorch_calls_the_kernel_and_the_reference_is_the_function(tmp_path: Path) -> None:
    scale = scale_operator(tmp_path, formula="by + a")  # Wrong on purpose: it shows who computed.
    x = torch.tensor([10.0])
    assert scale(x, 3.0).item() == 13
    assert scale(x.double(), 3.0).item() == 30, "no kernel for float64"
    with without_kernels():
        assert scale(x, 3.0).item() == 30
    assert scale(x, 3.0).item() == 13


@pytest.mark.usefixtures("kernels")
def test_a_kernel_for_somebody_elses_node(tmp_path: Path) -> None:
    (tmp_path / "double.h").write_text(SCALE.replace("NAME", "Double").replace("FORMULA", "by * a"))
    declared.declare_kernel("rungtest::Double", "double.h", tmp_path / "here.py", "here.py:1")

    @opbridge.translation("aten::atanh")
    def atanh(self):  # type: ignore[no-untyped-def]
        return opbridge.custom_node("rungtest::Double", self, by=2.0)

    class Atanh(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.atanh(x)

    from opbridge import spec

    try:
        bundle = opbridge.export(Atanh(), (torch.ones(3),), path=tmp_path / "b", verify=False, ops=(atanh,))
    finally:
        spec._declared[:] = [item for item in spec._declared if item.function is not atanh]
    assert bundle.manifest["kernels"][0]["optional"] is False
    (result,) = opbridge.load(bundle.path)(np.ones(3, np.float32))
    np.testing.assert_array_equal(result, np.full(3, 2, np.float32))
    with pytest.raises(EngineError, match="Double"):
        opbridge.load(bundle.path, kernels=False)


@pytest.mark.usefixtures("kernels")
def test_a_library_of_another_platform_gives_way_to_the_bodies(tmp_path: Path) -> None:
    bundle = exported(tmp_path, scale_operator(tmp_path), verify=False)
    manifest = json.loads((bundle.path / "bundle.json").read_text())
    manifest["kernels"][0]["platform"] = "darwin-arm64"
    foreign = dataclasses.replace(bundle, manifest=manifest)
    from opbridge.load import _kernels_of

    with pytest.warns(UserWarning, match=r"built for darwin-arm64, and this is .*: the slower function bodies run"):
        assert _kernels_of(foreign, "onnxruntime") is None


@pytest.mark.usefixtures("kernels")
def test_cmake_builds_the_library_of_a_bundle_again(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("not run: needs cmake")
    bundle = exported(tmp_path, scale_operator(tmp_path), verify=False)
    build = tmp_path / "build"
    for command in (["cmake", "-S", str(bundle.path / "kernels"), "-B", str(build)], ["cmake", "--build", str(build)]):
        subprocess.run(command, check=True, capture_output=True)
    (library,) = build.glob("onnxruntime_kernels*")
    x = np.ones((2, 5), np.float32)
    floats, _ = opbridge.load(bundle.path, kernels=False, libraries=[library])(x)
    np.testing.assert_array_equal(floats, 3 * x)


@pytest.mark.usefixtures("kernels")
def test_without_a_compiler_an_export_says_so_and_pytorch_runs_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = scale_operator(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BuildError, match="compiler") as raised:
        exported(tmp_path, scale)
    assert "install" in raised.value.fix
    assert not (tmp_path / "bundle").exists()
    with pytest.warns(UserWarning, match="runs its Python function, because its kernel can't be built"):
        assert scale(torch.tensor([10.0]), 3.0).item() == 30


@pytest.mark.usefixtures("kernels")
def test_a_file_that_has_another_operator(tmp_path: Path) -> None:
    scale = scale_operator(tmp_path)
    header = declared.declared_kernels()[0].header
    header.write_text(header.read_text().replace(scale.target, "rungtest::other"))
    with pytest.raises(InputError, match=r"has no kernel for 'rungtest::scale\d+'.*it has: rungtest::other"):
        exported(tmp_path, scale)


@pytest.mark.usefixtures("kernels")
def test_declarations_that_do_not_fit(tmp_path: Path) -> None:
    scale = scale_operator(tmp_path)
    with pytest.raises(InputError, match=r"there is no file 'nowhere\.h'"):
        opbridge.kernel_for("rungtest::Nowhere", "nowhere.h")
    with pytest.raises(InputError, match="a kernel is for a node 'domain::Op'"):
        opbridge.kernel_for("Nowhere", "nowhere.h")
    (tmp_path / "second.h").write_text("")
    with pytest.raises(InputError, match=r"has two kernels: scale\d+\.h .* and second\.h"):
        scale.kernel(tmp_path / "second.h")
    assert find_operator(scale.target) is scale


def test_kernel_functions_of_one_name_in_two_files_are_refused(tmp_path: Path) -> None:
    """The linker would keep one of them, and both operators would compute the same."""
    from opbridge.kernels.compiler import build
    from opbridge.kernels.library import KernelLibrary

    files = [tmp_path / "first.h", tmp_path / "second.h"]
    for file, formula in zip(files, ("by * a", "by + a"), strict=True):
        file.write_text(SCALE.replace("NAME", file.stem).replace("FORMULA", formula))
    with pytest.raises(InputError, match="the kernel functions of rungtest::first and rungtest::second have one name"):
        KernelLibrary(build(files))
    files[1].write_text(files[1].read_text().replace("void scale(", "static void scale("))
    library = KernelLibrary(build(files))
    x = np.full(2, 5, np.float32)
    assert [library.run(f"rungtest::{file.stem}", [x])[0][0] for file in files] == [10, 7]
