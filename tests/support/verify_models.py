"""Models, and the way from one to a captured program and an ONNX Runtime session, for the tests of verification."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch.export.graph_signature import InputKind, OutputKind, SymIntArgument, TensorArgument

from opbridge.capture.capture import Captured
from opbridge.engines.onnxruntime.session import OnnxRuntimeSession
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verification import Verification
from opbridge.proof.verify.verify import verify


def captured(module: Any, args: tuple[Any, ...], dynamic_shapes: Any = None, kwargs: Any = None) -> Captured:
    kwargs = kwargs or {}
    if isinstance(module, Function) and dynamic_shapes is not None:
        dynamic_shapes = (dynamic_shapes,)
    module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    signature = program.graph_signature
    inputs = [
        spec.arg.name
        for spec in signature.input_specs
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument | SymIntArgument)
    ]
    outputs = [spec for spec in signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    tensors = [spec for spec in outputs if isinstance(spec.arg, TensorArgument)]
    return Captured(program, module, args, kwargs, tuple(inputs), tuple(f"out_{i}" for i in range(len(tensors))))


def onnx_model(item: Captured) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            item.program,
            input_names=list(item.input_names),
            output_names=list(item.output_names),
            verbose=False,
            optimize=True,
        )
    buffer = io.BytesIO()
    onnx.save(program.model_proto, buffer)
    return onnx.load_from_string(buffer.getvalue())


def session(model: onnx.ModelProto) -> OnnxRuntimeSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    loaded = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return OnnxRuntimeSession(loaded)


class Altered:
    """A session whose results are changed on the way out: a fault that needs no ONNX surgery."""

    def __init__(self, inner: Any, change: Any) -> None:
        self.inner = inner
        self.change = change

    def run(self, feeds: Any) -> dict[str, np.ndarray]:
        results = dict(self.inner.run(feeds))
        return self.change(results) or results


def verified(module: Any, args: tuple[Any, ...], dynamic_shapes: Any = None, **options: Any) -> Verification:
    item = captured(module, args, dynamic_shapes)
    return verify(
        CapturedReference(item), session(onnx_model(item)), engine="onnxruntime", options=VerifyOptions(**options)
    )


class ConvNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, padding=1),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU(inplace=True),
            torch.nn.AvgPool2d(3, 2, 1, count_include_pad=False),
            torch.nn.Conv2d(16, 32, 3, stride=2),
            torch.nn.GELU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(32, 10),
        )
        with torch.no_grad():
            self.body[4].weight.mul_(8)  # so that GELU sees numbers at which its two formulas differ
        torch.nn.init.uniform_(self.body[1].running_mean)
        torch.nn.init.uniform_(self.body[1].running_var, 0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Attention(torch.nn.Module):
    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(50, 32)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True) for _ in range(layers)
        )

    def forward(self, tokens: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        bias = torch.zeros(keep.shape).masked_fill(~keep, -1e9)[:, None, :]
        for layer in self.layers:
            normed = layer.norm1(x)
            scores = normed @ normed.transpose(1, 2) / 32**0.5 + bias
            x = x + torch.softmax(scores, -1) @ normed
            x = x + layer.linear2(torch.nn.functional.gelu(layer.linear1(layer.norm2(x))))
        return x


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = torch.nn.LSTMCell(8, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = c = torch.zeros(x.shape[0], 16)
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
        return h, c


class SoftmaxChain(torch.nn.Module):
    def __init__(self, depth: int = 24) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.weights = torch.nn.ParameterList(torch.randn(48, 48) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = torch.softmax(x @ weight, -1) * 8
        return torch.log_softmax(x, -1)


class Function(torch.nn.Module):
    def __init__(self, function: Any, **state: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in state.items():
            self.register_buffer(name, value)

    def forward(self, *args: Any) -> Any:
        return self.function(*args)
