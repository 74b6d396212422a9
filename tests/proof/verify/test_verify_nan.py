"""Cases with NaN: outside the contract by default, verified in models that keep NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from support.roundtrip import travel  # noqa: E402

import opbridge  # noqa: E402
from opbridge.cli import main  # noqa: E402
from opbridge.engines import get  # noqa: E402
from opbridge.onnx_model.write import save_model  # noqa: E402
from opbridge.proof.verify.modes import Modes  # noqa: E402
from opbridge.proof.verify.options import VerifyOptions  # noqa: E402
from opbridge.proof.verify.reference_captured import CapturedReference  # noqa: E402
from opbridge.proof.verify.verification import Verification  # noqa: E402
from opbridge.proof.verify.verify import verify  # noqa: E402

NAN, INF = float("nan"), float("inf")
ROWS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
MASKED = np.array([[1.0, 2.0, 3.0], [-INF, -INF, -INF]], np.float32)
SPOILT = np.array([[1.0, NAN, 3.0], [4.0, 5.0, 6.0]], np.float32)


def verified(function: Any, tmp_path: Path, nan: Any, *given: np.ndarray, special: str = "") -> Verification:
    """Verify a function of one tensor on these inputs, by default on fresh ones."""
    trip = travel(function, (torch.from_numpy(ROWS),), nan=nan)
    (model,) = trip.climbed.models.values()
    save_model(model, tmp_path, name="model.onnx")
    (name,) = trip.captured.input_names
    inputs = [{name: array} for array in given] or None
    options = VerifyOptions(inputs=inputs, nan=nan, modes=Modes(special_values=special))
    session = get("onnxruntime").load(tmp_path / "model.onnx", threads=1)
    return verify(CapturedReference(trip.captured), session, engine="onnxruntime", options=options)


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def test_a_fully_masked_row_is_outside_the_contract(tmp_path: Path) -> None:
    found = verified(softmax, tmp_path, "absent", ROWS, MASKED)
    assert [case.verdict for case in found.cases] == ["passed", "outside the contract"]
    assert found.verdict == "not verified"
    assert not found.passed
    assert found.error is not None
    assert "softmax" in found.error
    assert "--nan exact" in found.error
    assert "outside the contract" in found.summary()
    assert verified(softmax, tmp_path, "exact", ROWS, MASKED).passed


def test_nan_inside_the_model_counts_even_if_no_output_is_nan(tmp_path: Path) -> None:
    found = verified(lambda x: torch.where(x > 4, torch.log(x - 4), 0.0), tmp_path, "absent", ROWS)
    assert found.verdict == "not verified"
    assert "the result of aten::log" in str(found.error)


def test_nan_that_an_input_has_counts_even_if_only_an_index_depends_on_it(tmp_path: Path) -> None:
    found = verified(lambda x: x.argmax(1), tmp_path, "absent", SPOILT)
    assert "the input x is NaN" in str(found.error)
    assert verified(lambda x: x.argmax(1), tmp_path, "exact", SPOILT).passed


@pytest.mark.parametrize(
    "function", [lambda x: torch.softmax(x, -1).nan_to_num(), lambda x: x.amax(1).isnan(), lambda x: x.nansum(1)]
)
def test_nan_before_an_operator_that_detects_it_is_part_of_the_contract(function: Any, tmp_path: Path) -> None:
    assert verified(function, tmp_path, "absent", ROWS, MASKED, SPOILT).passed


def test_nan_that_also_goes_elsewhere_is_not(tmp_path: Path) -> None:
    found = verified(lambda x: (x.isnan(), x.argmax(1)), tmp_path, "absent", ROWS, SPOILT)
    assert [case.verdict for case in found.cases] == ["passed", "outside the contract"]


def test_fresh_inputs_avoid_nan_if_the_example_has_none(tmp_path: Path) -> None:
    assert verified(torch.log, tmp_path, "absent").passed


def test_special_values_that_lead_to_nan_are_not_compared(tmp_path: Path) -> None:
    found = verified(lambda x: x.amax(1), tmp_path, "absent", special="report")
    verdicts = {item.values: item.verdict for item in found.special_values}
    assert verdicts["NaN"] == "outside the contract"
    assert verdicts["infinity"] == verdicts["extremes"] == "as PyTorch"
    required = verified(lambda x: x.amax(1), tmp_path, "exact", special="require")
    assert required.passed


ENTRY = """
import torch


class Sorted(torch.nn.Module):
    def forward(self, x):
        return x.sort(1).values


def model():
    return Sorted(), (torch.rand(3, 5),)
"""


@pytest.mark.slow
def test_the_command_line_and_the_bundle_say_which_contract_holds(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "entry.py").write_text(ENTRY)
    np.savez(tmp_path / "nan.npz", x=np.full((3, 5), NAN, np.float32))
    command = ["export", f"{tmp_path}/entry.py:model", "-q", "-o", f"{tmp_path}/lean"]
    assert main(command) == 0
    assert "NaN may differ from PyTorch's" in capsys.readouterr().out
    assert main(["verify", f"{tmp_path}/lean", "-q", "--inputs", f"{tmp_path}/nan.npz"]) == 1
    assert "outside the contract" in capsys.readouterr().out
    command[-1] = f"{tmp_path}/exact"
    assert main([*command, "--special-values", "require"]) == 0
    assert "NaN may differ" not in capsys.readouterr().out
    assert main(["verify", f"{tmp_path}/exact", "-q", "--inputs", f"{tmp_path}/nan.npz"]) == 0


def test_uninitialized_memory_that_is_written_later_counts_as_no_nan(tmp_path: Path) -> None:
    def columns(x: Any) -> Any:
        filled = torch.empty_like(x)
        for number in range(3):
            filled[:, number].copy_(x[:, number] * number)
        return filled

    torch.use_deterministic_algorithms(True)  # This fills uninitialized memory with NaN.
    try:
        assert verified(columns, tmp_path, "absent", ROWS).passed
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.slow
def test_nan_in_the_verification_makes_the_model_exact(tmp_path: Path) -> None:
    def correlated(x: Any) -> Any:
        unknown = torch.full_like(x, NAN)
        return torch.where(x.abs() > 9, unknown, x).sort(1).values

    bundle = opbridge.export(correlated, (torch.rand(3, 5),), path=tmp_path / "exact")
    assert bundle.verified
    assert bundle.manifest["nan"] == "exact"
    assert not opbridge.export(correlated, (torch.rand(3, 5),), path=tmp_path / "lean", nan="absent").verified
