"""Nodes of MMDeploy, mmcv and TensorRT's plugins run on the engines of today."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from places import ROOT
from vision_cases import CASES, Case, detector
from vision_graphs import GRAPHS, Graph
from vision_references import flattened

import opbridge
from opbridge.catalog.declare.catalog import Catalog
from opbridge.cli import main
from opbridge.errors import TranslationError, UnsupportedOperatorError
from opbridge.surgery.verbs.attach import Attached, attach
from opbridge.vision.old_nodes import convert_old_nodes, old_nodes

pytestmark = pytest.mark.newest

STANDARD = [case for case in CASES if not case.has_operator]
ENGINES = ["onnxruntime", "openvino"]
OPERATORS = [case for case in CASES if case.has_operator]
KERNELS = [case for case in OPERATORS if case.target != "mmcv::MMCVCARAFE"]


def run(attached: Attached, case: Case, folder: Path, *, with_kernel: bool) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    if with_kernel:
        options.register_custom_ops_library(str(attached.libraries[0].library.path))
    file = attached.save(folder / "model.onnx", overwrite=True)
    return onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"]).run(None, case.feeds())


def check(results: list[np.ndarray], case: Case) -> None:
    expected = list(flattened(case.expected()))
    assert len(results) == len(expected)
    for result, right, dtype in zip(results, expected, case.outputs, strict=True):
        assert result.dtype == dtype
        np.testing.assert_allclose(result, right, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", STANDARD, ids=lambda case: case.name)
def test_standard_operators(case: Case, tmp_path: Path) -> None:
    attached = attach(case.model(dynamic=True))
    assert re.fullmatch(r"\S+ becomes (\w+|standard operators)", attached.changes[0].what)
    assert not {node.domain for node in attached.model.graph.all_nodes()} - {""}
    check(run(attached, case, tmp_path, with_kernel=False), case)


@pytest.mark.quick(every=0)
@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)
def test_operators_with_bodies(case: Case, tmp_path: Path) -> None:
    check(run(attach(case.model(dynamic=True)), case, tmp_path, with_kernel=False), case)


@pytest.mark.quick(every=0)
@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
def test_operators_with_kernels(case: Case, tmp_path: Path) -> None:
    attached = attach(case.model(dynamic=True), engines=["onnxruntime"])
    assert len(attached.libraries) == 1
    check(run(attached, case, tmp_path, with_kernel=True), case)


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bundles(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "old.onnx"
    onnx.save(case.model(), file)
    bundle = opbridge.export(str(file), path=tmp_path / "bundle", engines=ENGINES)
    assert bundle.verified, bundle.path
    for engine in ENGINES:
        check(list(opbridge.load(bundle.path, engine=engine)(*case.feeds().values())), case)


def agree(results: Sequence[np.ndarray], graph: Graph) -> None:
    expected = graph.expected()
    assert len(results) == len(expected)
    for result, right in zip(results, expected, strict=True):
        assert result.dtype == right.dtype
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-4)


@pytest.mark.quick("condinst", "mask_rcnn", "faster_rcnn", "TRT", every=0)
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_ends_of_detectors(graph: Graph, tmp_path: Path) -> None:
    file = attach(graph.model).save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    agree(session.run(None, dict(graph.feeds)), graph)


NOT_IN_ENGINE = {
    ("faster_rcnn", "openvino"): False,
    ("mask_rcnn", "openvino"): False,
    ("cornernet", "openvino"): False,
    ("borderdet", "openvino"): False,
    ("oriented_rcnn", "openvino"): None,
}
"""Known limits, of docs/vision.md, and what ``verified`` is: False, or None if the engine refuses an operator."""


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "engine"), NOT_IN_ENGINE)
def test_known_limits_of_ends_of_detectors(name: str, engine: str, tmp_path: Path) -> None:
    file = tmp_path / "old.onnx"
    onnx.save(next(graph.model for graph in GRAPHS if graph.name == name), file)
    if NOT_IN_ENGINE[name, engine] is None:
        with pytest.raises(UnsupportedOperatorError):
            opbridge.export(str(file), path=tmp_path / "bundle", engines=[engine])
    else:
        assert opbridge.export(str(file), path=tmp_path / "bundle", engines=[engine]).verified is False


@pytest.mark.sweep
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_bundles_of_ends_of_detectors(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "old.onnx"
    onnx.save(graph.model, file)
    engines = [engine for engine in ENGINES if (graph.name, engine) not in NOT_IN_ENGINE]
    bundle = opbridge.export(str(file), path=tmp_path / "bundle", engines=engines)
    assert bundle.verified, bundle.path
    for engine in engines:
        agree(opbridge.load(bundle.path, engine=engine)(*graph.feeds.values()), graph)


def test_every_conversion_has_a_case_and_a_row_in_the_documentation() -> None:
    page = (ROOT / "docs" / "vision.md").read_text()
    covered = {case.target for case in CASES}
    for row in old_nodes():
        assert covered & set(row.names), row.names
        assert re.fullmatch(r"((mmdeploy|mmcv|TensorRT): [\w\-/., ]+(; )?)+", row.source), row.source
        for name in row.names:
            assert f"`{name}`" in page, name


def test_other_models_stay_as_they_are() -> None:
    model = ir.from_proto(CASES[0].model())
    model.graph.node(0).domain = "acme"
    assert convert_old_nodes(model, Catalog((), ())) == (model, ())


def test_the_reason_for_the_newer_opset() -> None:
    diagnosis = opbridge.diagnose(next(case for case in CASES if case.name == "gather_topk").model())
    assert diagnosis.ok
    assert (diagnosis.opset, diagnosis.opset_reason) == (
        13,
        "its old nodes become operators of this opset; the model's own is 11",
    )


def test_a_declaration_of_the_user_takes_precedence(tmp_path: Path) -> None:
    ops = tmp_path / "mine.py"
    body = "def mine(data, indices):\n    return data * 2\n"
    ops.write_text(f"import opbridge\n\n\n@opbridge.body_for('mmdeploy::GatherTopk')\n{body}")
    case = next(case for case in CASES if case.name == "gather_topk")
    attached = attach(case.model(), ops=[ops])
    assert [change.what for change in attached.changes] == ["mmdeploy::GatherTopk has a body"]


@pytest.mark.parametrize(
    ("name", "changed", "reason"),
    [
        ("roi_align mmcv::MMCVRoiAlign 1 2", {"mode": "max"}, "mode 'max' is the largest sample"),
        ("EfficientNMS_TRT TRT", {"class_agnostic": 1}, "class_agnostic is set"),
        ("grid_priors", {"stride_h": None}, "the attribute 'stride_h' is missing"),
    ],
)
def test_a_node_that_can_not_be_converted_is_named(name: str, changed: dict[str, object], reason: str) -> None:
    model = next(case for case in CASES if case.name == name).model()
    node = model.graph.node[0]
    for key, value in changed.items():
        kept = [attribute for attribute in node.attribute if attribute.name != key]
        del node.attribute[:]
        node.attribute.extend(kept)
        if value is not None:
            node.attribute.append(onnx.helper.make_attribute(key, value))
    with pytest.raises(TranslationError, match=re.escape(reason)) as caught:
        attach(model)
    assert "The node old (" in caught.value.message
    assert "opbridge.body_for(" in caught.value.fix


@pytest.mark.sweep
def test_an_old_model_in_three_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "old.onnx"
    onnx.save(next(case for case in CASES if case.name == "gather_topk").model(), file)
    assert main(["diagnose", str(file)]) == 0
    assert main(["export", str(file), "-o", str(tmp_path / "bundle")]) == 0
    assert main(["verify", str(tmp_path / "bundle")]) == 0
    assert "passed" in capsys.readouterr().out


@pytest.mark.sweep
def test_a_detector_with_several_old_nodes(tmp_path: Path) -> None:
    file = tmp_path / "detector.onnx"
    onnx.save(detector(), file)
    bundle = opbridge.export(str(file), path=tmp_path / "bundle", engines=ENGINES)
    assert bundle.verified
    own = [operator for operator in bundle.manifest["operators"] if operator["rung"] == "kernel"]
    assert [(operator["target"], operator["provider"]) for operator in own] == [
        ("torchvision::deform_conv2d", "catalog")
    ]
    replaced = [item["nodes"] for item in bundle.manifest["adaptations"]["onnxruntime"] if " becomes " in item["what"]]
    assert sorted(map(len, replaced)) == [1, 1, 2]
    image = np.random.default_rng(0).standard_normal((3, 3, 16, 16)).astype(np.float32)
    results = [opbridge.load(bundle.path, engine=engine)(image) for engine in ENGINES]
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-3, atol=1e-4)
    assert (results[0][1] == results[1][1]).all()
    assert (results[0][1] >= 0).any()
