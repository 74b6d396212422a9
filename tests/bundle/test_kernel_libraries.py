"""``opbridge build-kernels``: libraries that a program registers itself, for models without function bodies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import vision_references as reference
from onnx import TensorProto, helper
from places import ROOT

from opbridge.bundle.kernel_libraries import VISION, build_libraries
from opbridge.cli import main
from opbridge.errors import EngineError, InputError

pytestmark = pytest.mark.newest
ROTATED_NMS = ROOT / "examples" / "rotated_nms.py"


def _inputs() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    boxes = np.concatenate(
        [random.uniform(0, 20, (9, 2)), random.uniform(2, 9, (9, 2)), random.uniform(-3, 3, (9, 1))], 1
    )
    points = random.standard_normal((2, 12, 3))
    image = random.standard_normal((1, 3, 4, 5))
    scores = random.uniform(0, 1, (1, 2, 9))
    arrays = {"boxes": boxes, "scores": scores, "points": points, "queries": points[:, :4] + 0.1, "image": image}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def _model() -> onnx.ModelProto:
    """Nodes of five operators, and no function."""
    domain = {"domain": "opbridge_vision"}
    nodes = [
        helper.make_node("box_iou_rotated", ["boxes", "boxes"], ["overlaps"], **domain),
        helper.make_node("Unsqueeze", ["boxes", "zero"], ["all_boxes"]),
        helper.make_node(
            "nms_rotated", ["all_boxes", "scores"], ["kept"], iou_threshold=0.2, score_threshold=0.1, **domain
        ),
        helper.make_node("knn", ["queries", "points"], ["distances", "nearest"], k=3, **domain),
        helper.make_node("furthest_point_sample", ["points"], ["chosen"], num_points=5, **domain),
        helper.make_node("corner_pool", ["image"], ["pooled"], mode="left", **domain),
    ]
    outputs = {"overlaps": 1, "kept": 7, "distances": 1, "nearest": 7, "chosen": 7, "pooled": 1}
    ranks = {"overlaps": 2, "kept": 2, "distances": 3, "nearest": 3, "chosen": 2, "pooled": 4}
    graph = helper.make_graph(
        nodes,
        "several",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in _inputs().items()],
        [
            helper.make_tensor_value_info(name, dtype, [f"{name}_{axis}" for axis in range(ranks[name])])
            for name, dtype in outputs.items()
        ],
        [onnx.numpy_helper.from_array(np.zeros(1, np.int64), "zero")],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("opbridge_vision", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def _expected() -> list[np.ndarray]:
    given = {name: array.astype(np.float64) for name, array in _inputs().items()}
    return [
        reference.box_iou_rotated(given["boxes"], given["boxes"]),
        reference.nms(given["boxes"][None], given["scores"], 0.2, 0.1),
        *reference.knn(given["queries"], given["points"], 3),
        reference.furthest_point_sample(given["points"], 5),
        reference.corner_pool(given["image"], "left"),
    ]


@pytest.mark.sweep
def test_a_model_with_several_nodes(tmp_path: Path) -> None:
    made = build_libraries([VISION], tmp_path / "libopbridge_vision", engines=["onnxruntime", "openvino"])
    assert {"opbridge_vision::nms_rotated", "opbridge_vision::knn", "torchvision::deform_conv2d"} <= set(made.operators)
    model = _model()
    file = tmp_path / "model.onnx"
    onnx.save(model, file)

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(made.files[0]))
    session = onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"])
    for result, right in zip(session.run(None, _inputs()), _expected(), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5)

    openvino = pytest.importorskip("openvino")
    core = openvino.Core()
    core.add_extension(str(made.files[1]))
    compiled = core.compile_model(core.read_model(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled(_inputs())
    for name, right in zip([output.name for output in model.graph.output], _expected(), strict=True):
        np.testing.assert_allclose(results[name], right, rtol=1e-5, atol=1e-5)


@pytest.mark.sweep
def test_the_kernels_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "library"
    assert main(["build-kernels", str(ROTATED_NMS), "-o", str(folder)]) == 0
    printed = "".join(capsys.readouterr().out.split())  # Lines are wrapped at the terminal's width.
    assert f"wrote{folder / 'onnxruntime_kernels.so'}" in printed
    assert (folder / "CMakeLists.txt").is_file()
    assert (folder / "src" / "rotated_nms.h").is_file()
    assert not (folder / "src" / "nms_rotated.h").exists()


def test_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InputError, match="full exists already"):
        build_libraries([ROTATED_NMS], tmp_path / "full", engines=["onnxruntime"])
    empty = tmp_path / "empty.py"
    empty.write_text("import opbridge\n")
    for link, to in (("itself.py", "itself.py"), ("device.py", "/dev/zero")):
        (tmp_path / link).symlink_to(to)
        with pytest.raises(InputError, match=f"there is no file or folder .*{link}"):
            build_libraries([tmp_path / link], tmp_path / "libraries", engines=["onnxruntime"])
    with pytest.raises(InputError, match=r"empty\.py declares no kernel") as caught:
        build_libraries([empty], tmp_path / "new", engines=["onnxruntime"])
    assert "'vision' for opbridge.vision" in caught.value.fix
    with pytest.raises(EngineError, match="tensorrt loads no kernels"):
        build_libraries([ROTATED_NMS], tmp_path / "new", engines=["tensorrt"])
    assert not (tmp_path / "new").exists()
