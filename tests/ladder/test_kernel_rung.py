"""The rung ``kernel``: compiled kernels in bundles, beside the function bodies, and in PyTorch."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import opbridge
from opbridge.catalog.declare import spec
from opbridge.catalog.declare.operator import Operator, find_operator, without_kernels
from opbridge.cli import main
from opbridge.errors import BuildError, EngineError, InputError
from opbridge.kernels import declared

pytestmark = [
    pytest.mark.newest,
    pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="not run: kernels need a C++ compiler"),
]

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


@pytest.mark.slow
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
    sources = {
        "kernels/src/opbridge.h",
        "kernels/src/onnxruntime/adapter.cc",
        "kernels/src/onnxruntime/adapter/c_api.h",
    }
    assert {library["file"], "kernels/CMakeLists.txt", *sources} <= files

    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    for session in (opbridge.load(bundle.path), opbridge.load(bundle.path, kernels=False)):
        floats, integers = session(x)
        np.testing.assert_array_equal(floats, 3 * x)
        np.testing.assert_array_equal(integers, (2 * x).astype(integers.dtype))


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_a_node_that_the_kernel_does_not_cover_runs_its_body(tmp_path: Path) -> None:
    bundle = exported(tmp_path, scale_operator(tmp_path), verify=False)
    nodes = {node.domain: node.op_type for node in onnx.load(bundle.path / "model.onnx").graph.node}
    assert set(nodes) == {"", "rungtest", "opbridge.body"}
    (adaptation,) = bundle.manifest["adaptations"]["onnxruntime"]
    assert "runs its body: its kernel does not take these element types" in adaptation["what"]


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_a_wrong_kernel_fails_and_the_bodies_pass(tmp_path: Path) -> None:
    bundle = exported(tmp_path, scale_operator(tmp_path, formula="by + a"))
    assert bundle.verified is False
    verdicts = [(c["output"], c["status"]) for c in bundle.verification["comparisons"]]
    assert verdicts[:2] == [("floats", "differs"), ("integers", "equal")]
    assert ("floats", "equal") in verdicts


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_pytorch_calls_the_kernel_and_the_reference_is_the_function(tmp_path: Path) -> None:
    scale = scale_operator(tmp_path, formula="by + a")  # Wrong on purpose: it shows who computed.
    x = torch.tensor([10.0])
    assert scale(x, 3.0).item() == 13
    assert scale(x.double(), 3.0).item() == 30, "no kernel for float64"
    with without_kernels():
        assert scale(x, 3.0).item() == 30
    assert scale(x, 3.0).item() == 13


@contextlib.contextmanager
def double_node(folder: Path) -> Iterator[tuple[nn.Module, tuple[object, ...]]]:
    """A model that becomes a node with a kernel and without a body, and the mapping that it needs."""
    (folder / "double.h").write_text(SCALE.replace("NAME", "Double").replace("FORMULA", "by * a"))
    declared.declare_kernel("rungtest::Double", "double.h", folder / "here.py", "here.py:1")

    @opbridge.translation("aten::atanh")
    def atanh(self):  # type: ignore[no-untyped-def]
        return opbridge.custom_node("rungtest::Double", self, by=2.0)

    class Atanh(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.atanh(x)

    try:
        yield Atanh(), (atanh,)
    finally:
        spec._declared[:] = [item for item in spec._declared if item.function is not atanh]


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_a_kernel_for_somebody_elses_node(tmp_path: Path) -> None:
    with double_node(tmp_path) as (model, ops):
        bundle = opbridge.export(model, (torch.ones(3),), path=tmp_path / "b", verify=False, ops=ops)
    assert bundle.manifest["kernels"][0]["optional"] is False
    (result,) = opbridge.load(bundle.path)(np.ones(3, np.float32))
    np.testing.assert_array_equal(result, np.full(3, 2, np.float32))
    with pytest.raises(EngineError, match="Double"):
        opbridge.load(bundle.path, kernels=False)


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_a_library_of_another_platform_gives_way_to_the_bodies_and_a_damaged_one_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = exported(tmp_path, scale_operator(tmp_path), verify=False)
    manifest = json.loads((bundle.path / "bundle.json").read_text())
    manifest["kernels"][0]["platform"] = "darwin-arm64"
    foreign = dataclasses.replace(bundle, manifest=manifest)
    from opbridge.bundle.load import _kernels_of

    library, note = _kernels_of(foreign, "onnxruntime")
    assert library is None
    assert re.search(r"built for darwin-arm64, and this is .*: the slower function bodies run", note)

    name = bundle.manifest["kernels"][0]["file"]
    library = bundle.path / name
    whole = library.read_bytes()
    np.savez(tmp_path / "x.npz", x=np.ones((2, 5), np.float32))
    run = ["run", "--input", str(tmp_path / "x.npz"), "-o", str(tmp_path / "y.npz")]
    elsewhere = whole[:18] + (b"\x3e\0" if whole[18] != 0x3E else b"\xb7\0") + whole[20:]
    for damaged, says in (
        (None, "is missing"),
        (b"", "has 0 bytes instead of"),
        (whole[: len(whole) // 2], "bytes instead of"),
        (elsewhere, "does not match its sha256"),
    ):
        library.unlink(missing_ok=True)
        if damaged is not None:
            library.write_bytes(damaged)
        for command in (["verify"], run, ["view", "--no-browser"]):
            assert main([*command, str(bundle.path)]) == 1
            said = capsys.readouterr().err
            assert name in said
            assert says in said
            assert "fix: copy the bundle again" in said
        for isolated in (False, True):
            with pytest.raises(InputError, match=says):
                opbridge.load(bundle.path, isolated=isolated)


@pytest.mark.sweep
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


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.usefixtures("kernels", "no_compiler")
def test_without_a_compiler_the_bodies_run_and_a_finding_says_so(tmp_path: Path) -> None:
    scale = scale_operator(tmp_path)
    with pytest.warns(UserWarning, match="the slower function body runs instead of the kernel.*no g.. or clang"):
        bundle = exported(tmp_path, scale)
    assert bundle.verified
    assert bundle.manifest["kernels"] == []
    (step,) = (step for step in bundle.manifest["operators"] if step["target"] == scale.target)
    assert step["rung"] == "function"
    (finding,) = (item for item in bundle.to_dict()["sources"]["findings"] if item["code"] == "no-compiler")
    assert (finding["severity"], finding["target"], finding["mended"]) == ("warning", scale.target, True)
    assert "there is no g++ or clang++ on the path" in finding["message"]
    assert "apt install g++" in finding["fix"]
    x = np.ones((2, 5), np.float32)
    np.testing.assert_array_equal(opbridge.load(bundle.path)(x)[0], 3 * x)
    with pytest.warns(UserWarning, match="runs its Python function, because its kernel can't be built"):
        assert scale(torch.tensor([10.0]), 3.0).item() == 30


@pytest.mark.slow
@pytest.mark.usefixtures("kernels", "no_compiler")
def test_without_a_compiler_diagnose_says_so(tmp_path: Path) -> None:
    found = opbridge.diagnose(Scaled(scale_operator(tmp_path)), (torch.randn(4, 5),))
    (finding,) = (item for item in found.findings if item.code == "no-compiler")
    assert (finding.severity, finding.rung) == ("warning", "function")


@pytest.mark.slow
@pytest.mark.usefixtures("kernels", "no_compiler")
def test_without_a_compiler_a_kernel_without_a_body_is_an_error(tmp_path: Path) -> None:
    with double_node(tmp_path) as (model, ops):
        with pytest.raises(BuildError, match="So rungtest::Double can't run: there is no function body"):
            opbridge.export(model, (torch.ones(3),), path=tmp_path / "bundle", ops=ops)
        assert not (tmp_path / "bundle").exists()
        found = opbridge.diagnose(model, (torch.ones(3),), ops=ops)
    (finding,) = (item for item in found.findings if item.code == "no-compiler")
    assert (finding.severity, finding.target, finding.mended) == ("error", "rungtest::Double", False)


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_without_a_required_library_the_body_runs_and_a_finding_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = scale_operator(tmp_path)
    header = declared.declared_kernels()[0].header
    header.write_text(f"// opbridge: requires eigen\n{header.read_text()}")
    monkeypatch.setattr("opbridge.kernels.sources._prefixes", lambda: [tmp_path])
    with pytest.warns(UserWarning, match="the slower function body runs instead of the kernel.*requires eigen, which"):
        bundle = exported(tmp_path, scale)
    assert bundle.verified
    assert bundle.manifest["kernels"] == []
    (finding,) = (item for item in bundle.to_dict()["sources"]["findings"] if item["code"] == "no-compiler")
    assert (finding["severity"], finding["target"], finding["mended"]) == ("warning", scale.target, True)
    assert "pip install cmeel-eigen" in finding["fix"]
    found = opbridge.diagnose(Scaled(scale), (torch.randn(4, 5),))
    assert [item.severity for item in found.findings if item.code == "no-compiler"] == ["warning"]


@pytest.mark.sweep
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


@pytest.mark.sweep
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


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("sizes", "types", "says"),
    [
        ("{call.size(0, 1), call.size(0, 0)}", "T x) -> T y", r"float32 of shape \(5, 4\)"),
        ("{call.size(0, 0)}", "T x) -> T y", r"float32 of shape \(4\)"),
        ("call.sizes(0)", "T x) -> float64 y", r"float64 of shape \(4, 5\)"),
    ],
)
def test_a_shape_function_that_disagrees_with_the_fake(tmp_path: Path, sizes: str, types: str, says: str) -> None:
    name = f"shaped{next(_count)}"
    (tmp_path / "shaped.h").write_text(f"""#include "opbridge.h"
static void sizes(opbridge::ShapeCall& call) {{ call.set_output(0, {sizes}); }}
template <class T>
static void shaped(opbridge::Call&) {{}}
OPBRIDGE_OPERATOR(shaped, sizes, "rungtest::{name}({types}", opbridge::types<float>)
""")

    @opbridge.operator(f"rungtest::{name}")
    def shaped(x: Tensor) -> Tensor:
        return 2 * x

    shaped.kernel(tmp_path / "shaped.h")

    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return shaped(x)

    expected = (
        f"The shape function of the kernel of {shaped.target} disagrees with the operator's fake: of float32 of shape "
        rf"\(4, 5\) it makes output 0 {says}, and the fake float32 of shape \(4, 5\)"
    )
    with pytest.raises(InputError, match=expected):
        opbridge.export(Net(), (torch.randn(4, 5),), path=tmp_path / "b", dynamic_shapes={"x": {0: "n"}})
    assert not (tmp_path / "b").exists()


@pytest.mark.sweep
@pytest.mark.usefixtures("kernels")
def test_a_shape_function_that_is_wrong_at_other_sizes_is_found_by_the_verification(tmp_path: Path) -> None:
    scale = scale_operator(tmp_path)
    header = declared.declared_kernels()[0].header
    wrong = "static void wrong(opbridge::ShapeCall& call) { call.set_output(0, {4, call.size(0, 1)}); }\n"
    text = header.read_text().replace("opbridge::shape_of_first", "wrong")
    header.write_text(text.replace("OPBRIDGE_OPERATOR", f"{wrong}OPBRIDGE_OPERATOR"))
    bundle = exported(tmp_path, scale)
    assert bundle.verified is False
    errors = [case["error"] or "" for case in bundle.verification["cases"]]
    assert re.search(rf"{scale.target}: sizes \(\d, 5\) can't be broadcast to the output's \(4, 5\)", " ".join(errors))


GATHERED = """\
#include "opbridge.h"

void gathered_shape(opbridge::ShapeCall& call) {
  int64_t count = 0;
  for (int k = 0; k < call.input_count(); ++k) count += call.size(k, 0);
  call.set_output(0, {count});
}

template <class T>
void gathered(opbridge::Call& call) {
  T* next = call.output<T>(0).data();
  for (int k = 0; k < call.input_count(); ++k)
    for (T value : call.input<T>(k)) *next++ = value;
}

OPBRIDGE_OPERATOR(gathered, gathered_shape, "rungtest::gathered(T... parts) -> T y", opbridge::types<float, int64_t>)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_any_number_of_inputs_none_included(tmp_path: Path) -> None:
    """Without an input nothing tells the kernel its type, so that node runs its body."""
    (tmp_path / "gathered.h").write_text(GATHERED)

    @opbridge.operator("rungtest::gathered")
    def gathered(parts: list[Tensor]) -> Tensor:
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)

    gathered.kernel(tmp_path / "gathered.h")

    class Net(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return gathered([x, x]), gathered([x]), gathered([])

    bundle = opbridge.export(Net(), (torch.randn(4),), path=tmp_path / "b", dynamic_shapes={"x": {0: "n"}})
    assert bundle.verified
    domains = [node.domain for node in onnx.load(bundle.path / "model.onnx").graph.node if node.domain]
    assert domains == ["rungtest", "rungtest", "opbridge.body"]
    x = torch.randn(3)
    assert torch.equal(gathered([x, x]), torch.cat([x, x]))
    assert gathered([]).dtype == torch.int64


TAGS = """\
#include "opbridge.h"

// The size of each tag, after x.
void tags_shape(opbridge::ShapeCall& call) { call.set_output(0, {opbridge::data_dependent}); }
void tags(opbridge::Call& call) {
  const auto x = call.input<float>(0);
  const auto names = call.attribute_strings("names");
  const auto y = call.allocate_output<float>(0, {x.count() + names.size()});
  for (int64_t i = 0; i < x.count(); ++i) y[i] = x[i];
  for (int64_t i = 0; i < names.size(); ++i) y[x.count() + i] = static_cast<float>(names[i].size);
}

OPBRIDGE_OPERATOR(tags, tags_shape, "rungtest::Tags(float32 x, string[] names) -> float32 y")
"""


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("names", [["é", "", "three"], []])
def test_a_list_of_strings_reaches_the_kernel_of_a_bundle(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "tags.h").write_text(TAGS)
    declared.declare_kernel("rungtest::Tags", "tags.h", tmp_path / "here.py", "here.py:1")

    @opbridge.translation("aten::atanh")
    def atanh(self):  # type: ignore[no-untyped-def]
        return opbridge.custom_node("rungtest::Tags", self, names=names)

    class Atanh(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.atanh(x)

    try:
        bundle = opbridge.export(Atanh(), (torch.ones(2),), path=tmp_path / "b", verify=False, ops=(atanh,))
    finally:
        spec._declared[:] = [item for item in spec._declared if item.function is not atanh]
    (adaptation,) = bundle.manifest["adaptations"]["onnxruntime"]
    assert adaptation["what"] == "rungtest::Tags gets its list of strings as a tensor of strings"
    (result,) = opbridge.load(bundle.path)(np.ones(2, np.float32))
    assert result.tolist() == [1, 1, *(len(name.encode()) for name in names)]


@pytest.mark.usefixtures("kernels")
def test_a_kernel_of_the_users_goes_before_one_of_the_catalog(tmp_path: Path) -> None:
    own = Path(declared.__file__).parents[1] / "catalog" / "ops" / "vision" / "deform_conv2d.h"
    mine = tmp_path / "mine.h"
    mine.write_text("")
    for order in ([own, mine], [mine, own]):
        for file in order:
            opbridge.kernel_for("torchvision::deform_conv2d", file)
        (kernel,) = declared.declared_kernels()
        assert kernel.file == mine
