"""Programs with control flow on tensors are converted while capturing, and take every path as PyTorch does."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import branches
import caches  # noqa: F401
import iterables  # noqa: F401
import lists  # noqa: F401
import loops  # noqa: F401
import onnx
import onnxruntime
import pytest
import refusals  # noqa: F401
import resized  # noqa: F401
import searches  # noqa: F401
import sizes  # noqa: F401
import torch
from program import PROGRAMS, REFUSED, Program

import opbridge
from opbridge.capture.capture import capture
from opbridge.errors import CaptureError

CONTROL_FLOW = {"If", "Loop", "Scan"}


def _ids(program: Program) -> str:
    return program.name


def _results(value: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(leaf) for leaf in torch.utils._pytree.tree_leaves(value)]


def _operators(graph: onnx.GraphProto) -> set[str]:
    found = set()
    for node in graph.node:
        found.add(node.op_type)
        for attribute in node.attribute:
            found |= _operators(attribute.g)
    return found


def _expected(program: Program, model: Any, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    with torch.no_grad():
        return _results(model(*(value.clone() for value in inputs)))


QUICK = (
    "return_in_nested_branch", "in_place_through_view", "python_range_with_break", "append_under_condition",
    "cropped_after_padding", "compares_tuples", "rows_that_are_done", "return_before_an_attribute",
    "prints_values", "prints_formatted_values", "over_a_triangle",
)  # fmt: skip
BY_NAME = {program.name: program for program in PROGRAMS}


REFUSED_BEFORE_2_14 = {
    *("chosen_by_number", "cropped_after_padding", "inserted_under_condition", "last_columns_in_a_branch"),
    *("columns_in_one_branch", "pieces_of_two_sizes", "writes_rows"),
}
"""torch 2.13's ``cond`` fails where the sizes of the two results are other expressions than their strides."""


def _is_refused(name: str) -> bool:
    return torch.__version__ < "2.14" and name in REFUSED_BEFORE_2_14


@pytest.mark.quick("return", "in_place", "append", "rows", "prints", every=4)
@pytest.mark.parametrize("name", QUICK)
def test_captured(name: str) -> None:
    program = BY_NAME[name]
    model = program.made()
    if _is_refused(name):
        with pytest.raises(CaptureError, match="captured for some sizes only"):
            capture(model, program.inputs()[0], dynamic_shapes=program.dynamic_shapes)
        return
    captured = capture(model, program.inputs()[0], dynamic_shapes=program.dynamic_shapes)
    assert {operator for operator, _ in captured.converted} == program.nodes
    module = captured.program.module()
    for inputs in program.inputs():
        results = _results(module(*(value.clone() for value in inputs)))
        for result, expected in zip(results, _expected(program, model, inputs), strict=True):
            torch.testing.assert_close(result, expected, check_dtype=False)


@pytest.mark.quick("if_else", "cond_returns", every=180)
@pytest.mark.parametrize("program", PROGRAMS, ids=_ids)
def test_exported(program: Program, tmp_path: Path) -> None:
    model = program.made()
    refused = pytest.raises(CaptureError) if _is_refused(program.name) else contextlib.nullcontext()
    with refused:
        opbridge.export(
            model, program.inputs()[0], dynamic_shapes=program.dynamic_shapes, path=tmp_path / "bundle", verify=False
        )
        _compare(program, model, tmp_path)


OPENVINO = (
    "nested", "suppression_in_a_tensor", "return_in_nested_branch", "in_place_on_input", "while_value", "for_range",
    "for_with_return",
)  # fmt: skip


@pytest.mark.quick(every=12)
@pytest.mark.parametrize("name", OPENVINO)
def test_on_openvino(name: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    program = BY_NAME[name]
    model = program.made()
    bundle = opbridge.export(
        model,
        program.inputs()[0],
        path=tmp_path / "bundle",
        engines=("openvino",),
        dynamic_shapes=program.dynamic_shapes,
        verify=False,
    )
    session = opbridge.load(bundle.path, engine="openvino")
    names = [spec.name for spec in session.inputs]
    for inputs in program.inputs():
        results = session.run({name: value.numpy() for name, value in zip(names, inputs, strict=True)})
        for result, expected in zip(results.values(), _expected(program, model, inputs), strict=True):
            torch.testing.assert_close(torch.as_tensor(result), expected, check_dtype=False)


def _compare(program: Program, model: Any, folder: Path) -> None:
    """Compare the written model with PyTorch on inputs that take every path, without opbridge's verifier."""
    (path,) = folder.rglob("*.onnx")
    assert _operators(onnx.load(path).graph) & CONTROL_FLOW == program.nodes & CONTROL_FLOW
    session = onnxruntime.InferenceSession(str(path))
    names = [value.name for value in session.get_inputs()]
    for inputs in program.inputs():
        results = session.run(None, {name: value.numpy() for name, value in zip(names, inputs, strict=True)})
        for result, expected in zip(results, _expected(program, model, inputs), strict=True):
            torch.testing.assert_close(torch.as_tensor(result), expected, check_dtype=False)


@pytest.mark.quick("generator", "error_as_a_branch", every=5)
@pytest.mark.parametrize("program", REFUSED, ids=_ids)
def test_refused(program: Program) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(program.made(), program.inputs()[0])
    assert program.message in str(caught.value)
    assert "refusals.py:" in str(caught.value)
    assert caught.value.fix


@pytest.mark.sweep
def test_parts_that_are_larger_than_the_example() -> None:
    def sums(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for start in range(0, x.shape[0], 16):
            total = total + x[start : start + 16].softmax(0).sum()
        return total

    def softmaxes(x: torch.Tensor) -> torch.Tensor:
        parts = []
        for start in range(0, x.shape[0], 16):
            parts.append(x[start : start + 16].softmax(0))
        return torch.cat(parts)

    for model in (sums, softmaxes):
        module = capture(model, (torch.ones(7),), dynamic_shapes={"x": {0: "n"}}).program.module()
        for size in (5, 16, 40):
            torch.testing.assert_close(module(torch.ones(size)), model(torch.ones(size)))


@pytest.mark.slow
def test_a_function_is_as_it_was_after_the_capture() -> None:
    code = branches.if_else.__code__
    capture(branches.if_else, BY_NAME["if_else"].inputs()[0])
    assert branches.if_else.__code__ is code


def test_a_model_without_such_control_flow_is_captured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    export = torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *args, **kwargs: calls.append(1) or export(*args, **kwargs))
    captured = capture(torch.nn.Linear(3, 3), (torch.ones(2, 3),))
    assert captured.converted == ()
    assert len(calls) == 1


def test_the_table() -> None:
    assert len(PROGRAMS) >= 80
    assert len(BY_NAME) == len(PROGRAMS)
    assert all(len(program.cases) > 1 for program in PROGRAMS)
