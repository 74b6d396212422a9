"""Run pnnx: from an ONNX file to ncnn's two files and the net's inputs and outputs."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from opbridge.atomic import TemporaryFolder
from opbridge.engines.ncnn import native
from opbridge.errors import EngineError

if TYPE_CHECKING:
    import onnx

__all__ = ["Converted", "Layer", "run_pnnx", "symbol_sizes"]

_TIMEOUT = 1800
_NO_BATCH = 233
"""ncnn's number for a tensor without a batch axis."""

_INPUT = re.compile(r'ex\.input\("(\w+)", ncnn\.Mat\(\w+\.numpy\(\), batch_index=(\d+)\)')
_OUTPUT = re.compile(r"append\(torch\.from_numpy\((\w+)\.numpy\(batch_index=(\d+)\)")
_COMPLAINT = re.compile(r"failed|error|what\(\)|not supported|terminate called|unknown", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m|\[0;93m|\[m$")
_PLACE = re.compile(r"\S+/onnxruntime-[\d.]+/\S+:\d+ ")


@dataclasses.dataclass(frozen=True)
class Layer:
    """A line of ncnn's parameter file: a layer's type and name."""

    kind: str
    name: str


@dataclasses.dataclass(frozen=True)
class Converted:
    """The output of pnnx.

    Attributes:
        param: The text of the parameter file.
        weights: The content of the weight file.
        inputs: The blob of each input of the net, and the batch axis of the ONNX tensor (or None).
        outputs: The blob of each output of the net, and the batch axis of the ONNX tensor (or None).
    """

    param: str
    weights: bytes
    inputs: tuple[tuple[str, int | None], ...]
    outputs: tuple[tuple[str, int | None], ...]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of the net."""
        return tuple(Layer(*line.split()[:2]) for line in self.param.splitlines()[2:] if line.strip())

    @property
    def unknown_layers(self) -> tuple[Layer, ...]:
        """The layers whose type the installed ncnn does not have, such as ONNX operators that pnnx did not convert."""
        return tuple(layer for layer in self.layers if not native.knows_layer(layer.kind))


def symbol_sizes(name: str, axis: int) -> tuple[int, int]:
    """Two sizes of a dynamic dimension, from which pnnx infers that it is dynamic. The first axis may be the batch."""
    return (2, 3) if axis == 0 else (32, 48)


def run_pnnx(model: onnx.ModelProto) -> Converted:
    """Convert a model; weights stay float32.

    Raises:
        EngineNotInstalledError: pnnx is not installed.
        EngineError: pnnx refuses the model, or crashes on it; the message is pnnx's.
    """
    import onnx

    with TemporaryFolder() as name:
        folder = Path(name)
        onnx.save(model, folder / "model.onnx")
        command = [str(native.converter()), "model.onnx", "fp16=0", *_shapes(model)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"pnnx did not end within {_TIMEOUT} s.", fix="export a smaller model.") from error
        log = _COLOUR.sub("", f"{done.stdout}\n{done.stderr}")
        files = [folder / "model.ncnn.param", folder / "model.ncnn.bin", folder / "model_ncnn.py"]
        if done.returncode or not all(file.is_file() for file in files):
            raise EngineError(_complaint(log, done.returncode), fix=_FIX, details=log)
        script = files[2].read_text()
        return Converted(files[0].read_text(), files[1].read_bytes(), _blobs(_INPUT, script), _blobs(_OUTPUT, script))


_FIX = "run `opbridge diagnose --engine ncnn` on the model, or export it with fixed sizes; the log has pnnx's output."


def _shapes(model: onnx.ModelProto) -> list[str]:
    """The arguments that mark dynamic dimensions, since pnnx takes a dynamic batch to be 1."""
    sizes: dict[str, tuple[int, int]] = {}
    first, second = [], []
    for value in model.graph.input:
        both = [_two_sizes(dim, axis, sizes) for axis, dim in enumerate(value.type.tensor_type.shape.dim)]
        kind = _KINDS.get(value.type.tensor_type.elem_type, "f32")
        first.append(f"[{','.join(str(small) for small, _ in both)}]{kind}")
        second.append(f"[{','.join(str(large) for _, large in both)}]{kind}")
    if first == second:
        return []
    return [f"inputshape={','.join(first)}", f"inputshape2={','.join(second)}"]


# The keys are the numbers of TensorProto.DataType.
_KINDS: Mapping[int, str] = {1: "f32", 2: "u8", 3: "i8", 5: "i16", 6: "i32", 7: "i64", 10: "f16", 11: "f64"}


def _two_sizes(dim: onnx.TensorShapeProto.Dimension, axis: int, sizes: dict[str, tuple[int, int]]) -> tuple[int, int]:
    if dim.HasField("dim_value"):
        return int(dim.dim_value), int(dim.dim_value)
    return sizes.setdefault(dim.dim_param, symbol_sizes(dim.dim_param, axis))


def _blobs(pattern: re.Pattern[str], script: str) -> tuple[tuple[str, int | None], ...]:
    found = ((match[1], int(match[2])) for match in pattern.finditer(script))
    return tuple((blob, None if axis == _NO_BATCH else axis) for blob, axis in found)


def _complaint(log: str, code: int) -> str:
    """The most informative line of pnnx's log."""
    lines = [line.strip() for line in log.splitlines() if _COMPLAINT.search(line) and "LogEarlyWarning" not in line]
    reason = _PLACE.sub("", lines[0])[:300] if lines else f"it exited with code {code}"
    return f"pnnx can't convert the model: {reason}"
