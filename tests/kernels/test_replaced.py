"""A library that was replaced after it was loaded: the new one runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import opbridge
from opbridge.kernels.replaced import unless_replaced

pytestmark = pytest.mark.newest

KERNEL = """
#include "opbridge.h"
void shape(opbridge::ShapeCall& call) { call.set_output(0, call.sizes(0)); }
template <class T> void run(opbridge::Call& call) {
  const auto x = call.input<T>(0);
  const auto y = call.output<T>(0);
  for (int64_t i = 0; i < x.count(); ++i) y[i] = FACTOR * x[i];
}
OPBRIDGE_OPERATOR(run, shape, "test_replaced::scaled(T x) -> T y", opbridge::types<float>)
"""


def test_the_path_is_another_one_after_a_replacement(tmp_path: Path) -> None:
    library = tmp_path / "kernels.so"
    library.write_text("first")
    assert unless_replaced(library) == unless_replaced(library) == library
    (tmp_path / "new").write_text("second")
    (tmp_path / "new").replace(library)
    copy = unless_replaced(library)
    assert copy != library
    assert copy.read_text() == "second"
    missing = tmp_path / "missing.so"
    assert unless_replaced(missing) == missing


@pytest.mark.sweep
def test_a_second_export_into_the_same_folder(tmp_path: Path) -> None:
    """Its function names are those that a kernel's author would choose."""
    pytest.importorskip("openvino")
    sessions = []
    for factor in (2.0, 3.0):

        @opbridge.operator("test_replaced::scaled")
        def scaled(x: torch.Tensor, factor: float = factor) -> torch.Tensor:
            return x * factor

        class Scaled(torch.nn.Module):
            def forward(self, x: torch.Tensor, scaled: Any = scaled) -> Any:
                return scaled(x)

        (tmp_path / "scaled.h").write_text(KERNEL.replace("FACTOR", f"T({factor})"))
        scaled.kernel(tmp_path / "scaled.h")
        engines = ("onnxruntime", "openvino")
        x = torch.ones(3)
        bundle = opbridge.export(
            Scaled().eval(), (x,), path=tmp_path / "b", engines=engines, overwrite=True, verify=False
        )
        sessions += [opbridge.load(bundle.path, engine) for engine in engines]
        assert [session(x.numpy())[0].tolist() for session in sessions[-2:]] == [[factor] * 3] * 2
