"""Models of torchvision and transformers, with random weights, exported at opset 18 and taken to older opsets.

Used by ``python benchmarks/opsets.py --models``.
"""

from __future__ import annotations

import dataclasses
import io
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import torch
from rich.table import Table

from opbridge.onnx_model.opsets import convert_opset

EXPORTED_AT = 18
# The same arithmetic in other operators: what float32 leaves of a deep network.
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Row:
    """One model at one opset."""

    model: str
    opset: int
    nodes: int
    difference: float
    seconds: float
    problem: str = ""

    @property
    def holds(self) -> bool:
        return not self.problem and self.difference <= TOLERANCE


def _vision(name: str, size: int, **options: Any) -> Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]:
    def make() -> tuple[torch.nn.Module, tuple[Any, ...]]:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **options), (torch.randn(2, 3, size, size),)

    return make


def _language(name: str, **sizes: Any) -> Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]:
    def make() -> tuple[torch.nn.Module, tuple[Any, ...]]:
        import transformers

        config = getattr(transformers, f"{name}Config")(**sizes)
        model = getattr(transformers, f"{name}Model")(config)
        return _Hidden(model), (torch.randint(3, 90, (2, 7)), torch.ones(2, 7, dtype=torch.int64))

    return make


def _picture() -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import transformers

    config = transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                    image_size=32, patch_size=8)  # fmt: skip
    return _Pixels(transformers.ViTModel(config)), (torch.randn(2, 3, 32, 32),)


class _Hidden(torch.nn.Module):
    """A language model's last hidden state."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, attention_mask=mask).last_hidden_state


class _Pixels(torch.nn.Module):
    """A vision transformer's last hidden state."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=pixels).last_hidden_state


_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
}
MODELS: dict[str, Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]] = {
    "resnet18": _vision("resnet18", 64),
    "mobilenet_v3_small": _vision("mobilenet_v3_small", 64),
    "convnext_tiny": _vision("convnext_tiny", 64),
    "swin_t": _vision("swin_t", 64),
    "deeplabv3_mobilenet_v3_large": _vision("deeplabv3_mobilenet_v3_large", 64, weights_backbone=None),
    "BERT": _language("Bert", **_SMALL),
    "GPT-2": _language("GPT2", n_embd=32, n_layer=2, n_head=4, vocab_size=99),
    "Llama": _language("Llama", **_SMALL, num_key_value_heads=2),
    "DistilBERT": _language("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=99),
    "ViT": _picture,
}


def rows(opsets: Sequence[int], only: str = "") -> Iterator[Row]:
    """Each model at each opset, compared with itself at opset 18."""
    for name, make in MODELS.items():
        if only not in name:
            continue
        torch.manual_seed(0)
        model, inputs = make()
        exported = _export(model.eval(), inputs)
        feeds = {item.name: value.numpy() for item, value in zip(exported.graph.input, inputs, strict=True)}
        expected = _run(exported, feeds)
        for opset in opsets:
            yield _row(name, exported, opset, feeds, expected)


def _row(
    name: str, exported: onnx.ModelProto, opset: int, feeds: dict[str, np.ndarray], expected: list[np.ndarray]
) -> Row:
    began = time.perf_counter()
    converted = convert_opset(ir.from_proto(exported), opset)
    seconds = time.perf_counter() - began
    if converted.unexpressed:
        problem = "; ".join(f"{item.node} ({item.operator}): {item.reason}" for item in converted.unexpressed)
        return Row(name, opset, 0, float("nan"), seconds, problem)
    proto = ir.to_proto(converted.model)
    onnx.checker.check_model(proto, full_check=True)
    pairs = zip(_run(proto, feeds), expected, strict=True)
    difference = max(float(np.abs(one - other).max()) / max(1.0, float(np.abs(other).max())) for one, other in pairs)
    return Row(name, opset, len(proto.graph.node), difference, seconds)


def _export(model: torch.nn.Module, inputs: tuple[Any, ...]) -> onnx.ModelProto:
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = tuple({0: batch} for _ in inputs)
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, inputs, dynamo=True, opset_version=EXPORTED_AT, dynamic_shapes=shapes, verbose=False
        )
    assert program is not None
    proto: onnx.ModelProto = program.model_proto
    return proto


def _run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def table(found: Sequence[Row]) -> Table:
    """The rows, with the difference relative to the largest output."""
    result = Table(title=f"Models exported at opset {EXPORTED_AT}, taken to older opsets, in ONNX Runtime")
    for heading in ("model", "opset", "nodes", "difference", "seconds", ""):
        result.add_column(heading, justify="left" if heading in ("model", "") else "right")
    for row in found:
        verdict = row.problem or ("holds" if row.holds else f"above {TOLERANCE:g}")
        result.add_row(
            row.model, str(row.opset), str(row.nodes), f"{row.difference:.1e}", f"{row.seconds:.2f}", verdict
        )
    return result
