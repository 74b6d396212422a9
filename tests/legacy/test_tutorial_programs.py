"""Programs of deployment tutorials, run as they are and after ``migrate``: both end in a file that runs and agrees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("libcst")

from opbridge.legacy.migrate import migrate

pytestmark = [pytest.mark.newest, pytest.mark.filterwarnings("ignore")]

CHECK = """
import numpy as np
import onnxruntime

def check(file, model, feeds, **options):
    session = onnxruntime.InferenceSession(file)
    found = session.run(None, {name: x.numpy() for name, x in feeds.items()})
    expected = model(*feeds.values())
    expected = expected if isinstance(expected, tuple) else (expected,)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.detach().numpy().dtype
        np.testing.assert_allclose(one, other.detach().numpy(), 1e-4, 1e-5)
"""

PROGRAMS = {
    "a symbolic function in the former registry": """
import torch
from torch.onnx.symbolic_registry import register_op


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.asinh(x)


def asinh_symbolic(g, value, *, out=None):
    return g.op("Asinh", value)


register_op("asinh", asinh_symbolic, "", 9)
model = Model()
x = torch.rand(1, 3, 4, 4)
torch.onnx.export(model, x, "model.onnx", input_names=["x"])
from checking import check
check("model.onnx", model, {"x": x})
""",
    "a symbolic function by the decorator of an internal module": """
import functools
import torch
from torch.onnx._internal import registration

onnx_symbolic = functools.partial(registration.onnx_symbolic, opset=9)


@onnx_symbolic("aten::asinh")
def asinh_symbolic(g, value, *, out=None):
    return g.op("Asinh", value)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.asinh(x)


model = Model()
x = torch.rand(1, 3, 4, 4)
torch.onnx.export(model, x, "model.onnx")
from checking import check
check("model.onnx", model, {"x": x})
""",
    "imports below the first use": """
import torch


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return 2 * a + b

    @staticmethod
    def symbolic(g, a, b):
        two = g.op("Constant", value_t=torch.tensor([2]))
        return g.op("Add", g.op("Mul", a, two), b)


twice_and = Twice.apply


class Model(torch.nn.Module):
    def forward(self, a, b):
        return twice_and(a, b)


model = Model()
x = torch.rand(1, 3, 4, 4)
torch.onnx.export(model, (x, x), "model.onnx")
import onnxruntime
from checking import check
check("model.onnx", model, {"a": x, "b": x})
""",
    "a loop, traced and scripted": """
import torch
from checking import check


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n
        self.conv = torch.nn.Conv2d(3, 3, 3)

    def forward(self, x):
        for _ in range(self.n):
            x = self.conv(x)
        return x


for n in (2, 3):
    model = Model(n)
    x = torch.rand(1, 3, 10, 10)
    outputs = model(x)
    traced = torch.jit.trace(model, x)
    scripted = torch.jit.script(model)
    torch.onnx.export(traced, x, f"traced{n}.onnx", example_outputs=outputs, input_names=["x"])
    torch.onnx.export(scripted, x, f"scripted{n}.onnx", example_outputs=outputs, input_names=["x"])
    check(f"traced{n}.onnx", model, {"x": x})
    check(f"scripted{n}.onnx", model, {"x": x})
""",
    "a Resize whose scale is an input": """
import numpy as np
import onnxruntime
import torch
from torch.nn.functional import interpolate


class Upscale(torch.autograd.Function):
    @staticmethod
    def symbolic(g, image, scales):
        empty = g.op("Constant", value_t=torch.tensor([], dtype=torch.float32))
        return g.op("Resize", image, empty, scales, coordinate_transformation_mode_s="pytorch_half_pixel",
                    cubic_coeff_a_f=-0.75, mode_s="cubic", nearest_mode_s="floor")

    @staticmethod
    def forward(ctx, image, scales):
        return interpolate(image, scale_factor=scales.tolist()[-2:], mode="bicubic", align_corners=False)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, image, scales):
        return self.conv(Upscale.apply(image, scales))


model = Model().eval()
image, scales = torch.rand(1, 3, 8, 8), torch.tensor([1.0, 1.0, 3.0, 3.0])
torch.onnx.export(model, (image, scales), "model.onnx", opset_version=11, input_names=["image", "scales"],
                  output_names=["output"])
session = onnxruntime.InferenceSession("model.onnx")
for scale in (2.0, 3.0):
    scales = torch.tensor([1.0, 1.0, scale, scale])
    found = session.run(["output"], {"image": image.numpy(), "scales": scales.numpy()})[0]
    np.testing.assert_allclose(found, model(image, scales).detach().numpy(), 1e-4, 1e-4)
""",
    "deform_conv2d at an opset without DeformConv": """
import torch
import torchvision
from checking import check


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.offsets = torch.nn.Conv2d(3, 18, 3)
        self.conv = torchvision.ops.DeformConv2d(3, 3, 3)

    def forward(self, x):
        return self.conv(x, self.offsets(x))


model = Model().eval()
x = torch.rand(1, 3, 10, 10)
torch.onnx.export(model, x, "model.onnx", opset_version=12)
check("model.onnx", model, {"x": x})
""",
    "shifts of bytes": """
import torch
from checking import check


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a << b, a >> b


a, b = torch.tensor([1, 3, 200, 255], dtype=torch.uint8), torch.tensor([0, 1, 2, 7], dtype=torch.uint8)
torch.onnx.export(Model(), (a, b), "model.onnx")
check("model.onnx", Model(), {"a": a, "b": b})
""",
}

WRONG_WITH_TORCH_ALONE = {
    "deform_conv2d at an opset without DeformConv": "torch.onnx writes opset 18, and DeformConv in it",
    "shifts of bytes": "torch.onnx's own mapping gives int8",
}
"""Programs without an old declaration: migrate leaves them to torch.onnx, run-script uses opbridge's mappings."""


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "checking.py").write_text(CHECK)
    (tmp_path / "script.py").write_text(PROGRAMS[request.param])
    request.node.program = request.param
    return tmp_path / "script.py"


def run(script: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own: what it registers stays in PyTorch, and what it declares in opbridge."""
    return subprocess.run(
        [sys.executable, *command, script.name],
        cwd=script.parent, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.quick(every=12)
def test_as_it_is(program: Path) -> None:
    done = run(program, "-m", "opbridge", "run-script")
    assert done.returncode == 0, done.stderr


@pytest.mark.quick(every=12)
def test_migrated(program: Path, request: pytest.FixtureRequest) -> None:
    migration = migrate(program)
    assert migration.left == ()
    if request.node.program in WRONG_WITH_TORCH_ALONE:
        assert "opbridge" not in migration.text
        return
    assert migration.text != PROGRAMS[request.node.program]
    program.write_text(migration.text)
    done = run(program)
    assert done.returncode == 0, done.stderr


@pytest.mark.sweep
def test_inputs_that_are_fed_by_made_up_names(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nimport onnxruntime\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x + 1\n\n\ntorch.onnx.export(Model(), torch.ones(2), 'm.onnx')\n"
        "session = onnxruntime.InferenceSession('m.onnx')\nsession.run(None, {'0': torch.ones(2).numpy()})\n"
    )
    done = run(script, "-m", "opbridge", "run-script")
    assert done.returncode == 1
    assert "fix: add input_names=['0'] to the call of torch.onnx.export" in done.stderr
    migrated = migrate(script).text
    assert "input_names=['0'])" in migrated
    script.write_text(migrated)
    assert run(script).returncode == 0
