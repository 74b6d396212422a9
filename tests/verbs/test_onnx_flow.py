"""An existing ONNX model: diagnosed, mended, exported, verified against itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch
from one_node import save
from places import TUTORIAL

import opbridge
from opbridge.catalog.declare.spec import _declared as declared_specs
from opbridge.errors import InputError, UnsupportedOperatorError
from opbridge.kernels.declared import _declared as declared_kernels

pytestmark = pytest.mark.newest

# HardSwish on double is refused by ONNX Runtime: it expands it into a HardSigmoid that it has for float only.
MENDED = """<ir_version: 10, opset_import: ["": 22]>
net (float[n, 8] x) => (float[n, 8] y, double[n, 8] z) {
    g = Gelu(x)
    y = HardSwish(g)
    d = Cast<to = 11>(y)
    z = HardSwish(d)
}"""
FOREIGN = """<ir_version: 10, opset_import: ["": 18, "acme": 1]>
net (float[n, 4] x) => (float[n, 4] y) {
    s = acme.Scale<factor = 3.0>(x)
    y = Relu(s)
}"""


def written(text: str, path: Path) -> Path:
    return save(onnx.parser.parse_model(text), path)


@pytest.fixture
def mended(tmp_path: Path) -> Path:
    return written(MENDED, tmp_path / "mended.onnx")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    return written(FOREIGN, tmp_path / "foreign.onnx")


@pytest.fixture
def declarations():
    """What a test declares is forgotten after it."""
    specs, kernels = list(declared_specs), dict(declared_kernels)
    yield
    declared_specs[:] = specs
    declared_kernels.clear()
    declared_kernels.update(kernels)


@pytest.mark.slow
def test_what_the_engine_refuses_is_mended_and_verified(mended: Path, tmp_path: Path) -> None:
    diagnosis = opbridge.diagnose(mended)
    assert diagnosis.ok
    (found,) = diagnosis.findings
    assert (found.code, found.target, found.mended, found.rung) == (
        "refused-node",
        "ai.onnx::HardSwish",
        True,
        "decompose",
    )
    assert "into which ONNX Runtime expands ai.onnx::HardSwish" in found.message
    rungs = {operator.target: operator.rung for operator in diagnosis.operators}
    assert rungs == {"ai.onnx::Gelu": "native", "ai.onnx::HardSwish": "decompose", "ai.onnx::Cast": "native"}

    bundle = opbridge.export(mended, path=tmp_path / "b")
    assert bundle.verified, bundle.verification
    verification = bundle.verification
    assert verification["reference"].startswith("the original model in onnx's reference evaluator")
    assert len(verification["cases"]) == 3
    assert len({case["sizes"]["n"] for case in verification["cases"]}) == 3
    what = [item["what"] for item in bundle.manifest["adaptations"]["onnxruntime"]]
    assert "ai.onnx::HardSwish becomes its body in the standard" in what
    assert bundle.manifest["entry"] == "mended.onnx"
    assert bundle.manifest["dynamic"] == {"n": [1, None]}
    assert bundle.inputs[0].shape == ("n", 8)
    session = opbridge.load(tmp_path / "b")
    x = np.linspace(-4, 4, 8, dtype=np.float32)[None]
    y, z = session(x)
    gelu = torch.nn.functional.gelu(torch.from_numpy(x))
    expected = torch.nn.functional.hardswish(gelu)
    np.testing.assert_allclose(y, expected.numpy(), atol=1e-6)
    np.testing.assert_allclose(z, torch.nn.functional.hardswish(expected.double()).numpy(), atol=1e-6)


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("kind", ["proto", "ir"])
def test_models_in_memory(kind: str, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(MENDED)
    model: Any = proto if kind == "proto" else ir.from_proto(proto)
    assert opbridge.diagnose(model).ok
    bundle = opbridge.export(model, path=tmp_path / "b", with_reference=True)
    assert bundle.verified
    assert bundle.manifest["entry"] is None
    assert opbridge.verify(tmp_path / "b").passed, "the copy in the bundle is what it is compared with"


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("opset", [11, 13])
def test_another_opset(mended: Path, tmp_path: Path, opset: int) -> None:
    text = MENDED.replace("    d = Cast<to = 11>(y)\n    z = HardSwish(d)\n", "    z = Cast<to = 11>(y)\n")
    bundle = opbridge.export(written(text, tmp_path / "m.onnx"), path=tmp_path / "b", opset=opset)
    assert bundle.verified, bundle.verification
    model = onnx.load(tmp_path / "b" / "model.onnx")
    assert [(item.domain, item.version) for item in model.opset_import] == [("", opset)]
    assert model.ir_version == {11: 6, 13: 7}[opset]
    assert bundle.manifest["opset_reason"] == "requested"
    onnx.checker.check_model(model, full_check=True)


def test_what_an_opset_can_not_express(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 22]>
        net (float[n] x) => (string[n] y) { s = Cast<to = 8>(x)  y = StringConcat(s, s) }"""
    model = written(text, tmp_path / "m.onnx")
    diagnosis = opbridge.diagnose(model, opset=13)
    assert not diagnosis.ok
    assert any(
        finding.code == "inexpressible-node" and finding.message.startswith("Opset 13, for onnxruntime ")
        for finding in diagnosis.findings
    )
    with pytest.raises(UnsupportedOperatorError, match=r"ai.onnx::StringConcat: opset 13 can't express it") as caught:
        opbridge.export(model, path=tmp_path / "b", opset=13)
    assert "ai.onnx::StringConcat" in caught.value.targets
    assert not (tmp_path / "b").exists()


def test_a_foreign_node_without_anything(foreign: Path, tmp_path: Path) -> None:
    diagnosis = opbridge.diagnose(foreign)
    (found,) = diagnosis.findings
    assert (found.code, found.target, found.severity) == ("refused-node", "acme::Scale", "error")
    assert "@opbridge.body_for('acme::Scale')" in found.fix
    with pytest.raises(
        UnsupportedOperatorError, match=r"acme::Scale: no kernel for acme::Scale \[onnxruntime\]"
    ) as caught:
        opbridge.export(foreign, path=tmp_path / "b")
    assert "opbridge.kernel_for('acme::Scale'" in caught.value.fix
    assert not (tmp_path / "b").exists()


@pytest.mark.slow
def test_a_declared_body_serves_a_foreign_node(foreign: Path, tmp_path: Path, declarations: None) -> None:
    @opbridge.body_for("acme::Scale")
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    (operator, _) = opbridge.diagnose(foreign).operators
    assert (operator.target, operator.rung, operator.kernel) == ("acme::Scale", "function", True)
    bundle = opbridge.export(foreign, path=tmp_path / "b")
    assert bundle.verified, bundle.verification
    x = np.array([[-1, 0, 1, 2]], np.float32)
    assert opbridge.load(tmp_path / "b")(x)[0].tolist() == [[0, 0, 3, 6]]
    assert opbridge.verify(tmp_path / "b").passed


@pytest.mark.slow
def test_a_body_that_calls_a_declared_operator(foreign: Path, tmp_path: Path, declarations: None) -> None:
    @opbridge.operator("test_onnx_flow::inner", samples=lambda: [opbridge.Sample((torch.randn(2, 3),))])
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 2

    @opbridge.body_for("acme::Scale")
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return (inner(x) + 1) * factor

    bundle = opbridge.export(foreign, path=tmp_path / "b")
    assert bundle.verified, bundle.verification
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    (found,) = opbridge.load(tmp_path / "b")(x)
    np.testing.assert_allclose(found, np.maximum((np.sin(x) * 2 + 1) * 3, 0), rtol=1e-5)


@pytest.mark.slow
def test_two_attributes_make_two_bodies(tmp_path: Path, declarations: None) -> None:
    @opbridge.body_for("acme::Scale")
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    text = FOREIGN.replace("y = Relu(s)", "y = acme.Scale<factor = 0.5>(s)")
    bundle = opbridge.export(written(text, tmp_path / "m.onnx"), path=tmp_path / "b")
    assert bundle.verified
    x = np.array([[-1, 0, 1, 2]], np.float32)
    assert opbridge.load(tmp_path / "b")(x)[0].tolist() == [[-1.5, 0, 1.5, 3]]


@pytest.mark.slow
def test_an_open_size_is_not_taken_for_a_fixed_one(tmp_path: Path, declarations: None) -> None:
    @opbridge.body_for("acme::Rank")
    def rank(x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        return x * (rows if rows == columns else torch.sym_min(rows, columns))

    text = """<ir_version: 8, opset_import: ["": 18, "acme": 1]>
        net (float[n, 3] x) => (float[n, 3] y) { y = acme.Rank(x) }"""
    opbridge.export(written(text, tmp_path / "m.onnx"), path=tmp_path / "b")
    for rows in (2, 3, 6):
        assert opbridge.load(tmp_path / "b")(np.ones((rows, 3), np.float32))[0].max() == min(rows, 3)


@pytest.mark.slow
def test_a_kernel_alone_is_not_verified(tmp_path: Path, declarations: None) -> None:
    """The original runs nowhere: that is said, and is no proof."""
    declared_specs[:] = [spec for spec in declared_specs if spec.target != "mylib::my_add"]
    opbridge.kernel_for("mylib::my_add", TUTORIAL / "my_add.h")
    text = """<ir_version: 8, opset_import: ["": 18, "mylib": 1]>
        net (float[n] x) => (float[n] y) { y = mylib.my_add(x, x) }"""
    bundle = opbridge.export(written(text, tmp_path / "m.onnx"), path=tmp_path / "b")
    assert bundle.verified is False
    assert bundle.verification["verdict"] == "not verified"
    assert "No engine runs the original model, so there is nothing to compare with" in bundle.verification["error"]
    assert bundle.manifest["operators"][0]["rung"] == "kernel"
    assert opbridge.load(tmp_path / "b")(np.array([1, 2], np.float32))[0].tolist() == [3, 6]


@pytest.mark.slow
def test_verify_finds_the_original_again_or_says_that_it_is_gone(mended: Path, tmp_path: Path) -> None:
    opbridge.export(mended, path=tmp_path / "b", verify=False)
    assert opbridge.verify(tmp_path / "b").passed
    moved = mended.rename(tmp_path / "elsewhere.onnx")
    with pytest.raises(InputError, match=r"The ONNX model that .* was made from .* is not here") as caught:
        opbridge.verify(tmp_path / "b")
    assert "--reference model.onnx" in caught.value.fix
    assert opbridge.verify(tmp_path / "b", reference=moved).passed
    other = written(MENDED.replace("Gelu", "Relu"), tmp_path / "other.onnx")
    with pytest.raises(InputError, match=r"other.onnx is not the model that .* was made from"):
        opbridge.verify(tmp_path / "b", reference=other)
    for no_model in ("entry.py:model", torch.nn.ReLU()):
        with pytest.raises(InputError, match=r"b was exported from an ONNX model, which .* is not\."):
            opbridge.verify(tmp_path / "b", reference=no_model)


@pytest.mark.slow
def test_a_wrong_model_fails(mended: Path, tmp_path: Path) -> None:
    """The proof is one: a bundle whose model computes something else does not pass."""
    from opbridge.bundle.bundle import read_bundle
    from opbridge.engines import get
    from opbridge.engines.process.isolation import IsolatedSession
    from opbridge.onnx_model.read import read_model
    from opbridge.proof.verify.reference_onnx import OnnxReference
    from opbridge.proof.verify.verify import verify

    opbridge.export(mended, path=tmp_path / "b", verify=False)
    wrong = written(MENDED.replace("y = HardSwish(g)", "y = Elu(g)"), tmp_path / "wrong.onnx")
    opbridge.export(wrong, path=tmp_path / "w", verify=False)
    model = read_bundle(tmp_path / "w").model_file("onnxruntime")
    with (
        OnnxReference(read_model(mended), get("onnxruntime")) as reference,
        IsolatedSession("onnxruntime", model) as session,
    ):
        found = verify(reference, session, engine="onnxruntime")
    assert found.verdict == "failed"
    assert {comparison.status for comparison in found.comparisons} == {"differs"}


@pytest.mark.slow
def test_given_inputs_and_tolerances(mended: Path, tmp_path: Path) -> None:
    opbridge.export(mended, path=tmp_path / "b", verify=False)
    given = [{"x": np.ones((5, 8), np.float32)}]
    found = opbridge.verify(tmp_path / "b", inputs=given, rtol=1e-5, atol=1e-6)
    assert found.passed
    assert [case.name for case in found.cases] == ["given 1"]
    with pytest.raises(InputError, match="rtol=-1 is not valid: a tolerance is a number of at least 0"):
        opbridge.verify(tmp_path / "b", rtol=-1)


@pytest.mark.slow
def test_indices_stay_within_their_table(tmp_path: Path) -> None:
    table = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "table")
    text = '<ir_version: 8, opset_import: ["": 18]> net (int64[batch, length] ids) => (float[batch, length, 4] y)'
    model = onnx.parser.parse_model(
        text + " <float[3, 4] table = {0,0,0,0,0,0,0,0,0,0,0,0}> { y = Gather(table, ids) }"
    )
    model.graph.initializer[0].CopyFrom(table)
    bundle = opbridge.export(model, path=tmp_path / "b")
    assert bundle.verified, bundle.verification
    assert [sorted(case["sizes"]) for case in bundle.verification["cases"]] == [["batch", "length"]] * 5


@pytest.mark.slow
def test_random_outputs_are_compared_by_distribution(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
        net (float[n, 64] x) => (float[n, 64] y) { r = RandomNormalLike(x) y = Mul(r, r) }"""
    bundle = opbridge.export(written(text, tmp_path / "m.onnx"), path=tmp_path / "b")
    statuses = {comparison["status"] for comparison in bundle.verification["comparisons"]}
    assert (bundle.verified, statuses) == (True, {"random"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"opset": 10}, "Opset 10 can't be written: 11 is the oldest"),
        ({"opset": 99}, "Opset 99 is newer than"),
        ({"opset": 13, "ir_version": 6}, "ONNX IR version 6 can't be written: opset 13 needs at least 7"),
        ({"ir_version": 99}, "ONNX IR version 99 is newer than"),
        ({"engines": ("onnxruntime==0",)}, "pip offers no onnxruntime 0"),
        ({"input_names": ["a"]}, "input_names is for PyTorch models"),
        ({"dynamic_shapes": ({},)}, "dynamic_shapes is for PyTorch models"),
        ({"kwargs": {"q": np.ones(2, np.float32)}}, "the model has no input 'q'"),
        ({"args": (np.ones(8, np.float32),)}, r"'x' has the shape \[8\], and the model takes \['n', 8\]"),
        ({"args": (np.ones((2, 9), np.float32),)}, r"'x' has the shape \[2, 9\], and the model takes \['n', 8\]"),
        ({"ir_version": 7}, "ONNX IR version 7 can't be written: opset 22 needs at least 8"),
    ],
)
def test_options_that_do_not_fit(mended: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        opbridge.export(mended, path=tmp_path / "b", **options)
    assert not (tmp_path / "b").exists()


def test_an_ir_version_that_the_models_own_opset_allows(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 13]> net (float[n] x) => (float[n] y) { y = Relu(x) }'
    opbridge.export(written(text, tmp_path / "m.onnx"), path=tmp_path / "b", ir_version=7, verify=False)
    assert onnx.load(tmp_path / "b" / "model.onnx").ir_version == 7


def test_the_original_in_a_bundle_is_as_it_was(mended: Path, tmp_path: Path) -> None:
    opbridge.export(mended, path=tmp_path / "b", with_reference=True, verify=False)
    reference = onnx.load(tmp_path / "b" / "reference.onnx")
    assert [node.op_type for node in reference.graph.node] == ["Gelu", "HardSwish", "Cast", "HardSwish"]
    assert not any(node.metadata_props for node in reference.graph.node)


def cyclic() -> onnx.ModelProto:
    model = onnx.parser.parse_model(MENDED)
    model.graph.node[0].input[0] = model.graph.node[1].output[0]
    return model


def dangling() -> onnx.ModelProto:
    model = onnx.parser.parse_model(MENDED)
    model.graph.node[0].input[0] = "nowhere"
    return model


def external(location: str) -> onnx.ModelProto:
    text = '<ir_version: 8, opset_import: ["": 18]> net (float[2] x) => (float[2] y) <float[2] w = {1, 2}>'
    model = onnx.parser.parse_model(text + " { y = Add(x, w) }")
    weight = model.graph.initializer[0]
    weight.ClearField("float_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "8")):
        weight.external_data.add(key=key, value=value)
    return model


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"this is no model", "not an ONNX model"),
        (b"", "is empty"),
        (cyclic, "cycl"),
        (dangling, "'nowhere'"),
        (lambda: external("weights.bin"), "weights.bin"),
        (lambda: external("../weights.bin"), "leaves the model's folder"),
        (lambda: external("/etc/hostname"), "absolute path"),
    ],
)
def test_files_that_can_not_be_used(content: Any, named: str, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(content if isinstance(content, bytes) else content().SerializeToString())
    for verb in (opbridge.diagnose, lambda path: opbridge.export(path, path=tmp_path / "b")):
        with pytest.raises(InputError, match=named):
            verb(file)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.slow
def test_the_command_line(mended: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "opbridge", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    said = run("diagnose", "mended.onnx", "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["findings"][0]["code"] == "refused-node"
    said = run("export", "mended.onnx", "-o", "b", "-q")
    assert said.returncode == 0, said.stderr
    assert "compared with the original model in onnx's reference evaluator" in " ".join(said.stdout.split())
    assert run("verify", "b", "-q").returncode == 0
    said = run("diagnose", "nothing.onnx")
    assert (said.returncode, "nothing.onnx" in said.stderr, "Traceback" in said.stderr) == (1, True, False)
