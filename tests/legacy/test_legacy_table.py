"""Every case of the table, node for node against the TorchScript exporter, in every way that it can be exported."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import DOCS, SUPPORT

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from legacy_batches import Batch, batch_of, batches, export_all, trees_of, with_opbridge, with_torch  # noqa: E402
from legacy_cases.table import Case, all_cases  # noqa: E402
from legacy_graphs import export_with_torchscript, output_trees, registered  # noqa: E402

from opbridge import legacy  # noqa: E402
from opbridge.legacy.registrations import registrations  # noqa: E402

pytestmark = pytest.mark.one_worker

CASES = all_cases()
STATIC_AND_DYNAMIC = [(name, False) for name in CASES] + [(name, True) for name in CASES if CASES[name].dynamic]
WAYS = {"torch.onnx.export": with_torch, "opbridge.export": with_opbridge}


@functools.cache
def oracle(name: str, dynamic: bool) -> list[Any]:
    """What a case must become: element types and trees of its outputs."""
    return output_trees(export_with_torchscript(CASES[name], dynamic))


@functools.cache
def found(way: str, batch: Batch, folder: Path) -> dict[str, Any]:
    with legacy.enable():
        return export_all(WAYS[way], batch, folder)


def assert_is_right(case: Case, dynamic: bool, trees: Any) -> None:
    if isinstance(trees, Exception):
        raise trees
    if case.oracle:
        expected = oracle(case.name, dynamic)
        assert [str(tree) for _, tree in trees] == [str(tree) for _, tree in expected]
        assert trees == expected
    else:
        assert [str(tree) for _, tree in trees] == list(case.graph)


QUICK = """
    register_op parse_args_numbers setup_context list_of_split list_of_chunk mmdetection_topk mmdeploy_grid_sampler
    python_op_of_two_results deform_conv2d_of_all_inputs torchvision_nms_of_standard_nodes opset_of_the_graph
    after_unregister onnxscript_function aten_override forward_with_autocast symbolic_is_the_truth
    the_older_of_two_opsets runtime_softmax mmdeploy_roll tolist the_newer_of_two_opsets roi_align_of_standard_nodes
""".split()  # noqa: SIM905 - one name per line would be 23 lines
"""Cases of each kind, which the quick tests run."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("legacy")


def test_the_table_is_large_and_its_oracle_is_used() -> None:
    assert len(CASES) >= 240
    assert sum(case.oracle for case in CASES.values()) >= 220
    sources = [case.source for case in CASES.values() if case.source]
    assert len(sources) >= 200
    assert all(re.match(r"https://github\.com/[\w.-]+/[\w.-]+/blob/[0-9a-f]{12}/", source) for source in sources)
    assert sum(case.runs for case in CASES.values()) >= 30
    assert all(case.oracle or case.graph for case in CASES.values())


@pytest.mark.quick(*(f"{name}-False-torch.onnx.export" for name in QUICK), every=200)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "dynamic"), STATIC_AND_DYNAMIC)
def test_it_becomes_what_the_old_exporter_made_of_it(name: str, dynamic: bool, way: str, folder: Path) -> None:
    assert_is_right(CASES[name], dynamic, found(way, batch_of(name, dynamic), folder)[name])


@pytest.fixture(scope="session")
def script_results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Any]:
    """What ``opbridge run-script`` makes of the whole table."""
    results = tmp_path_factory.mktemp("script")
    command = [
        sys.executable,
        "-m",
        "opbridge",
        "run-script",
        "--json",
        str(SUPPORT / "legacy_script.py"),
        str(results),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["bridged"]
    return {
        (name, dynamic): trees
        for dynamic in (False, True)
        for batch in batches(dynamic=dynamic)
        for name, trees in trees_of(batch, onnx.load(results / f"{batch.name}.onnx")).items()
    }


@pytest.mark.sweep
@pytest.mark.newest
@pytest.mark.parametrize(("name", "dynamic"), STATIC_AND_DYNAMIC)
def test_run_script_makes_the_same(name: str, dynamic: bool, script_results: dict[tuple[str, bool], Any]) -> None:
    assert_is_right(CASES[name], dynamic, script_results[name, dynamic])


@functools.cache
def without_the_bridge(batch: Batch, folder: Path) -> dict[str, Any]:
    # In a folder of its own: the model of the bridge has the same name.
    own = folder / "off"
    own.mkdir(exist_ok=True)
    cases = tuple(case for case in batch.cases if case.name not in CRASHES_WITHOUT)
    return export_all(with_torch, Batch(cases, batch.dynamic), own)


CRASHES_WITHOUT = {"range_from_data_of_a_buffer"}
"""torch.onnx of torch 2.14 ends the process for these: its attempts after torch.export's error read a fake tensor."""


SAME_WITHOUT = {
    "mmdeploy_hardsigmoid",
    "mmdeploy_linear",
    "onnx2torch_output_of_before",
    "parallel_scatter_after_a_node",
    "parallel_scatter_before_a_node",
    "runtime_softmax",
    "timm_swish_of_a_scripted_function",
}
"""What torch.onnx alone makes of these is right too."""


@pytest.mark.quick(every=144)
@pytest.mark.newest
@pytest.mark.parametrize("name", [name for name in CASES if name not in CRASHES_WITHOUT])
def test_it_fails_when_the_bridge_is_off(name: str, folder: Path) -> None:
    trees = without_the_bridge(batch_of(name, False), folder)[name]
    if name in SAME_WITHOUT:
        assert_is_right(CASES[name], False, trees)
    elif not isinstance(trees, Exception):
        with pytest.raises(AssertionError):
            assert_is_right(CASES[name], False, trees)


@functools.cache
def run_batch(batch: Batch, folder: Path, rows: int) -> list[Any]:
    """The outputs of a batch in ONNX Runtime, with another batch size where that is dynamic."""
    found("torch.onnx.export", batch, folder)
    session = onnxruntime.InferenceSession(folder / f"{batch.name}.onnx", providers=["CPUExecutionProvider"])
    feeds = {
        value.name: resized(tensor, rows if batch.dynamic else 0).numpy()
        for value, tensor in zip(session.get_inputs(), batch.inputs, strict=True)
    }
    return session.run(None, feeds)


def resized(tensor: Any, rows: int) -> Any:
    return torch.cat([tensor] * rows)[:rows] if rows else tensor.clone()


@pytest.mark.quick("-False")
@pytest.mark.parametrize(("name", "dynamic"), [(n, d) for n, d in STATIC_AND_DYNAMIC if CASES[n].runs])
def test_it_computes_what_it_should(name: str, dynamic: bool, folder: Path) -> None:
    batch = batch_of(name, dynamic)
    outputs = run_batch(batch, folder, 5)
    for case in batch.cases:
        expected = case.expected(*(resized(tensor, 5 if dynamic else 0) for tensor in case.inputs))
        own, outputs = outputs[: len(expected)], outputs[len(expected) :]
        if case.name == name:
            for array, tensor in zip(own, expected, strict=True):
                np.testing.assert_allclose(array, tensor.numpy(), 1e-5, 1e-5)


@pytest.mark.newest
def test_the_document_has_the_numbers_of_the_table() -> None:
    pytest.importorskip("torchvision")  # a few cases need it
    text = (DOCS / "legacy.md").read_text(encoding="utf-8")
    for row, count in {
        "cases": len(CASES),
        "of them in the manner of a public file": sum(bool(case.source) for case in CASES.values()),
        "compared with torch's TorchScript exporter": sum(case.oracle for case in CASES.values()),
        "compared with expected nodes": sum(not case.oracle for case in CASES.values()),
    }.items():
        assert re.search(rf"^\| {re.escape(row)}[^|]*\| {count} ", text, re.M), (row, count)


def test_nothing_stays_registered() -> None:
    with registered(CASES["own_operator"]), legacy.enable():
        assert "legacy_cases::scale" in [found.name for found in registrations()]
    assert not any(found.name.startswith(("legacy_cases::", "aten::")) for found in registrations())
