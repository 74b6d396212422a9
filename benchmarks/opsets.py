"""The ONNX backend's node tests taken to other opsets, beside ``onnx.version_converter``; and exported models.

    python benchmarks/opsets.py [--opsets 11,13,15,17,26] [--only TEXT] [--failures] [--unexpressed] [--json FILE]
    python benchmarks/opsets.py --models [--opsets 11,13]

Each case of ``onnx.backend.test`` is a small model with inputs and the outputs that they must give. It is converted
from its own opset, checked by ``onnx.checker``, run, and compared with the stored outputs under the case's
tolerance.

* right: it gives the stored outputs, in ONNX Runtime.
* reference: the same in onnx's ReferenceEvaluator, for cases that ONNX Runtime does not pass at their own opset either.
* constants: right, once what the old opset has as attributes (axes, sizes) is constant and no input of the model.
* unexpressed: the conversion says that the opset can't express a node, and why (``--unexpressed`` lists them).
* wrong: anything else (``--failures`` lists them), and the exit code is 1. For ``onnx.version_converter`` this includes
  models that it refuses or fails on.
* neither: neither of the two passes the case at its own opset.

A case whose result is random is right if shapes and types are. With ``--models``, models of torchvision and
transformers, with random weights and as exported at opset 18, are converted and compared with themselves at opset 18.
"""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import json
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import version_converter
from onnx.reference import ReferenceEvaluator
from rich.console import Console
from rich.table import Table

from opbridge.onnx_model.opsets import convert_opset

ENGINE_NEWEST = 26
VERDICTS = ("right", "reference", "constants", "unexpressed", "wrong", "neither")
RANDOM = re.compile(r"test_(bernoulli|training_dropout(?!_zero)|randomuniform|randomnormal|multinomial)")

# Their stored outputs come from a Fourier transform in float32, and are themselves off by 2e-7 where zero is right.
INEXACT, INEXACT_ATOL = re.compile(r"test_(dft|stft)"), 1e-6


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of one case at one opset."""

    case: str
    opset: int
    verdict: str
    reason: str = ""


class Case:
    """One of the backend's node tests."""

    def __init__(self, test: Any) -> None:
        self.name: str = test.name
        self.model: onnx.ModelProto = test.model
        self.opset: int = next((item.version for item in test.model.opset_import if not item.domain), 1)
        self.data = [([_array(value) for value in inputs], [_array(value) for value in outputs])
                     for inputs, outputs in test.data_sets]  # fmt: skip
        self.rtol, self.atol = test.rtol, INEXACT_ATOL if INEXACT.match(test.name) else test.atol
        self.own = self._runner()
        self.inferable = _check_problem(self.model, full=True) is None

    def _runner(self) -> str:
        """What passes the case at its own opset: "onnxruntime", "reference" or "neither"."""
        for runner in ("onnxruntime", "reference"):
            if self.problem(self.model, runner) is None:
                return runner
        return "neither"

    def problem(self, model: onnx.ModelProto, runner: str) -> str | None:
        """What is wrong with a model of the case: it does not run, or gives something else."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = _in_onnxruntime(model) if runner == "onnxruntime" else _in_reference(model)
                for inputs, outputs in self.data:
                    self._compare(run(inputs), outputs)
        except Exception as error:
            return f"{runner}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return None

    def _compare(self, actual: Sequence[Any], expected: Sequence[Any]) -> None:
        assert len(actual) == len(expected), f"{len(actual)} outputs instead of {len(expected)}"
        for one, other in zip(actual, expected, strict=True):
            self._compare_value(one, other)

    def _compare_value(self, actual: Any, expected: Any) -> None:
        if isinstance(expected, (list, tuple)):
            assert len(actual) == len(expected), "another number of elements"
            for one, other in zip(actual, expected, strict=True):
                self._compare_value(one, other)
            return
        if expected is None:
            assert actual is None, "not an empty optional"
            return
        actual, expected = np.asarray(actual), np.asarray(expected)
        assert actual.shape == expected.shape, f"shape {actual.shape} instead of {expected.shape}"
        if expected.dtype.kind in "OUST":
            np.testing.assert_array_equal(actual.astype(str), expected.astype(str))
            return
        assert actual.dtype == expected.dtype, f"{actual.dtype} instead of {expected.dtype}"
        if RANDOM.match(self.name):
            return
        if expected.dtype.kind == "V":
            actual, expected = actual.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(actual, expected, rtol=self.rtol, atol=self.atol, equal_nan=True)


def raw_tests() -> list[Any]:
    """ONNX's node tests of the standard domain."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = [test if test.model is not None else _read(test) for test in load_model_tests(kind="node")]
    return [test for test in tests if all(not item.domain for item in test.model.opset_import)]


def _read(test: Any) -> Any:
    """A test of an older onnx, which keeps them in files."""
    folder = Path(test.model_dir)
    model = onnx.load(folder / "model.onnx")
    data = [
        tuple(
            [
                _read_value(part / f"{kind}_{number}.pb", item.type)
                for number, item in enumerate(getattr(model.graph, kind))
                if (part / f"{kind}_{number}.pb").exists()
            ]
            for kind in ("input", "output")
        )
        for part in sorted(folder.glob("test_data_set_*"))
    ]
    return dataclasses.replace(test, model=model, data_sets=data)


def _read_value(file: Path, kind: onnx.TypeProto) -> Any:
    content = file.read_bytes()
    if kind.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if kind.HasField("optional_type"):
        return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return onnx.TensorProto.FromString(content)


def cases(only: str = "") -> Iterator[Case]:
    """The node tests whose names contain ``only``."""
    yield from (Case(test) for test in raw_tests() if only in test.name)


def convert_case(case: Case, opset: int) -> Outcome:
    """What our conversion makes of a case."""
    try:
        result = convert_opset(ir.from_proto(case.model), opset)
    except Exception as error:
        return Outcome(case.name, opset, "wrong", f"{type(error).__name__}: {error}")
    if result.unexpressed:
        constants = _with_constants(case, opset)
        if constants is not None:
            return constants
        reason = "; ".join(f"{item.operator}: {item.reason}" for item in result.unexpressed)
        return Outcome(case.name, opset, "unexpressed", reason)
    return judge(case, opset, ir.to_proto(result.model))


def _with_constants(case: Case, opset: int) -> Outcome | None:
    """The outcome of a case all of whose inputs but the first are constants; None if that does not help."""
    constants = copy.copy(case)
    constants.model = onnx.ModelProto.FromString(case.model.SerializeToString())
    ((inputs, outputs),) = case.data
    names = [item.name for item in case.model.graph.input]
    if len(names) < 2 or not all(isinstance(value, np.ndarray) for value in inputs[1:]):
        return None
    for name, value in zip(names[1:], inputs[1:], strict=True):
        constants.model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    del constants.model.graph.input[1:]
    constants.data = [(inputs[:1], outputs)]
    result = convert_opset(ir.from_proto(constants.model), opset)
    if result.unexpressed:
        return None
    outcome = judge(constants, opset, ir.to_proto(result.model))
    good = outcome.verdict in ("right", "reference")
    return dataclasses.replace(outcome, verdict="constants") if good else outcome


def convert_case_by_onnx(case: Case, opset: int) -> Outcome:
    """What ``onnx.version_converter`` makes of a case."""
    try:
        model = version_converter.convert_version(case.model, opset)
    except Exception as error:
        return Outcome(case.name, opset, "wrong", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return judge(case, opset, model)


def _check_problem(model: onnx.ModelProto, *, full: bool) -> str | None:
    try:
        onnx.checker.check_model(model, full_check=full)
    except Exception as error:
        return f"checker: {' '.join(str(error).split())[:300]}"
    return None


def judge(case: Case, opset: int, model: onnx.ModelProto) -> Outcome:
    """Check and run the converted model of a case."""
    # A few cases fail onnx's own shape inference as they are.
    problem = _check_problem(model, full=case.inferable)
    if problem is not None:
        return Outcome(case.name, opset, "wrong", problem)
    if case.own == "neither":
        return Outcome(case.name, opset, "neither")
    problem = case.problem(model, "onnxruntime")
    if problem is None:
        return Outcome(case.name, opset, "right")
    if case.own == "reference":
        problem = case.problem(model, "reference")
        return Outcome(case.name, opset, "wrong" if problem else "reference", problem or "")
    if "NOT_IMPLEMENTED" in problem and case.problem(model, "reference") is None:
        return Outcome(case.name, opset, "reference", problem)
    return Outcome(case.name, opset, "wrong", problem)


def _in_onnxruntime(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    foreign = any("float8" in item.type or "bfloat16" in item.type or "int4" in item.type or "int2" in item.type
                  for item in (*session.get_inputs(), *session.get_outputs()))  # fmt: skip
    if not foreign:
        return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))

    def run(inputs: Sequence[Any]) -> list[Any]:
        outputs = session.run_with_ort_values(None, dict(zip(names, map(_ort_value, inputs), strict=True)))
        return [_from_ort_value(value) for value in outputs]

    return run


def _ort_value(array: np.ndarray) -> Any:
    """A value of a type that NumPy lacks goes into ONNX Runtime as its bits."""
    number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    if array.dtype.kind != "V":
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    bits = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)


def _from_ort_value(value: Any) -> np.ndarray:
    array = value.numpy()
    number = value.element_type()
    dtype = onnx.helper.tensor_dtype_to_np_dtype(number)
    return array if array.dtype == dtype else array.view(dtype)


def _array(value: Any) -> Any:
    """The backend's tests hold arrays, scalars of NumPy, and protocol buffers."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _in_reference(model: onnx.ModelProto) -> Any:
    evaluator = ReferenceEvaluator(model)
    names = [item.name for item in model.graph.input]
    return lambda inputs: evaluator.run(None, dict(zip(names, inputs, strict=True)))


def sweep(opsets: Sequence[int], only: str) -> tuple[list[Outcome], list[Outcome]]:
    """Our outcomes and those of onnx's converter, of every case at every opset that is not its own."""
    ours, theirs = [], []
    for case in cases(only):
        for opset in opsets:
            if opset != case.opset:
                ours.append(convert_case(case, opset))
                theirs.append(convert_case_by_onnx(case, opset))
    return ours, theirs


def table(ours: Sequence[Outcome], theirs: Sequence[Outcome], opsets: Sequence[int]) -> Table:
    """How many cases got which verdict, at each opset."""
    result = Table(title="ONNX's node tests at other opsets")
    for heading in ("opset", "converter", *VERDICTS, "of the expressible"):
        result.add_column(heading, justify="left" if heading == "converter" else "right")
    for opset in opsets:
        for name, outcomes in (("opbridge", ours), ("onnx", theirs)):
            counts = collections.Counter(item.verdict for item in outcomes if item.opset == opset)
            good = counts["right"] + counts["reference"] + counts["constants"]
            share = good / (good + counts["wrong"]) if good + counts["wrong"] else 1.0
            row = [str(counts[verdict]) for verdict in VERDICTS]
            result.add_row(str(opset), name, *row, f"{share:.1%}")
    return result


def _list(outcomes: Sequence[Outcome], verdict: str, console: Console) -> None:
    reasons = collections.defaultdict(list)
    for item in outcomes:
        if item.verdict == verdict:
            reasons[(item.opset, item.reason)].append(item.case)
    for (opset, reason), names in sorted(reasons.items()):
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        console.print(f"{opset}: {shown}\n    {reason}", markup=False, highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--opsets", default=None, help="separated by commas")
    parser.add_argument("--only", default="", help="a part of the cases' names")
    parser.add_argument("--models", action="store_true", help="models of torchvision and transformers")
    parser.add_argument("--failures", action="store_true", help="list what is wrong")
    parser.add_argument("--unexpressed", action="store_true", help="list what can't be expressed")
    parser.add_argument("--json", type=Path, help="write the outcomes to a file")
    arguments = parser.parse_args()
    newest = min(ENGINE_NEWEST, onnx.defs.onnx_opset_version())
    console = Console()
    default = "11,13" if arguments.models else f"11,13,15,17,{newest}"
    opsets = [int(text) for text in (arguments.opsets or default).split(",")]
    if arguments.models:
        import opset_models

        found = []
        for row in opset_models.rows(opsets, arguments.only):
            found.append(row)
            print(f"{row.model}, opset {row.opset}: {row.problem or row.difference}", file=sys.stderr, flush=True)
        console.print(opset_models.table(found))
        return 0 if all(row.holds for row in found) else 1
    ours, theirs = sweep(opsets, arguments.only)
    console.print(table(ours, theirs, opsets))
    if arguments.failures:
        _list(ours, "wrong", console)
    if arguments.unexpressed:
        _list(ours, "unexpressed", console)
    if arguments.json:
        arguments.json.write_text(json.dumps([dataclasses.asdict(item) for item in ours], indent=1), encoding="utf-8")
    return 1 if any(item.verdict == "wrong" for item in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
