"""Models of torchvision and transformers at old opsets, verified in today's ONNX Runtime and in the oldest one.

    python benchmarks/old_opsets.py [--opsets 11,13] [--models resnet18,bert] [--oldest 1.15.0] [--json FILE]

Each model, with random weights and a small configuration, is exported by ``opbridge.export`` for both versions at once:
the bundle holds what each needs, and each is verified against PyTorch at several sizes. The exit code is 1 if one does
not pass.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _table import finish, verdict
from torch import Tensor, nn

import opbridge

OLDEST = "1.15.0"
"""The oldest ONNX Runtime that pip installs for Python 3.11."""

Example = tuple[nn.Module, tuple[Tensor, ...], Any]


class FirstOutput(nn.Module):
    """A model of transformers as one of tensors alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids, return_dict=False)[0]


def vision(name: str) -> Callable[[], Example]:
    def make() -> Example:
        import torchvision

        model = torchvision.models.get_model(name, weights=None).eval()
        return model, (torch.randn(2, 3, 64, 64),), ({0: "batch"},)

    return make


def vision_transformer() -> Example:
    from torchvision.models import VisionTransformer

    model = VisionTransformer(32, 8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64).eval()
    return model, (torch.randn(2, 3, 32, 32),), ({0: "batch"},)


def text(config: str, model: str, **options: Any) -> Callable[[], Example]:
    def make() -> Example:
        import transformers

        made = getattr(transformers, model)(getattr(transformers, config)(**options)).eval()
        return FirstOutput(made), (torch.randint(0, 100, (2, 12)),), ({0: "batch", 1: "length"},)

    return make


def image_transformer() -> Example:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8
    )
    return FirstOutput(ViTModel(config).eval()), (torch.randn(2, 3, 32, 32),), ({0: "batch"},)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
MODELS: dict[str, Callable[[], Example]] = {
    "resnet18": vision("resnet18"),
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "shufflenet_v2_x0_5": vision("shufflenet_v2_x0_5"),
    "convnext_tiny": vision("convnext_tiny"),
    "vision_transformer": vision_transformer,
    "bert": text("BertConfig", "BertModel", vocab_size=100, max_position_embeddings=64, **SMALL),
    "distilbert": text(
        "DistilBertConfig", "DistilBertModel", vocab_size=100, dim=32, hidden_dim=64, n_layers=2, n_heads=4
    ),
    "gpt2": text("GPT2Config", "GPT2Model", vocab_size=100, n_embd=32, n_layer=2, n_head=4, use_cache=False),
    "llama": text("LlamaConfig", "LlamaModel", vocab_size=100, num_key_value_heads=2, use_cache=False, **SMALL),
    "vit": image_transformer,
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One model at one opset; per engine the verdict, and the largest share of the budget that was used."""

    model: str
    opset: int
    written: str
    changes: int
    verdicts: dict[str, str]
    seconds: float

    @property
    def holds(self) -> bool:
        return bool(self.verdicts) and all(verdict.startswith("passed") for verdict in self.verdicts.values())


def measure(name: str, opset: int, engines: Sequence[str]) -> Row:
    """Export a model for all engines, and verify it in each."""
    torch.manual_seed(0)
    model, args, shapes = MODELS[name]()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            bundle = opbridge.export(
                model, args, path=Path(folder) / "b", engines=engines, dynamic_shapes=shapes, opset=opset, verify=False
            )
        except opbridge.OpbridgeError as error:
            lines = error.message.splitlines()
            return Row(name, opset, "", 0, {"export": lines[min(1, len(lines) - 1)]}, time.perf_counter() - started)
        entry = opbridge_entry(model, args, shapes)
        verdicts = {engine: judged(bundle, engine, entry) for engine in engines}
    models = bundle.manifest["models"]
    written = ", ".join(f"opset {item['opset']}, IR {item['ir_version']}" for item in models[:1])
    changes = max(len(items) for items in bundle.manifest["adaptations"].values())
    return Row(name, opset, written, changes, verdicts, time.perf_counter() - started)


def opbridge_entry(model: nn.Module, args: tuple[Tensor, ...], shapes: Any) -> Any:
    from opbridge.capture.entry import Entry

    return Entry("", model, args, {}, shapes)


def judged(bundle: opbridge.Bundle, engine: str, entry: Any) -> str:
    """The verdict of one engine."""
    found = opbridge.verify(bundle.path, reference=entry, engines=[engine])
    if found.error:
        return f"{found.verdict}: {found.error}"
    worst = max((comparison.ratio for comparison in found.comparisons), default=0.0)
    return f"{found.verdict} ({len(found.cases)} cases, {100 * worst:.0f}% of the budget)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opsets", default="11,13")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--oldest", default=OLDEST, metavar="VERSION", help="the old ONNX Runtime")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    engines = ("onnxruntime", f"onnxruntime=={options.oldest}")
    rows = []
    for name in options.models.split(","):
        for opset in map(int, options.opsets.split(",")):
            rows.append(measure(name, opset, engines))
            print(rows[-1], file=sys.stderr, flush=True)
    cells = [
        ("model", [row.model for row in rows]),
        ("opset", [str(row.opset) for row in rows]),
        ("written as", [row.written for row in rows]),
        ("changes", [str(row.changes) for row in rows]),
        *((engine, [row.verdicts.get(engine, row.verdicts.get("export", "")) for row in rows]) for engine in engines),
        ("s", [f"{row.seconds:.0f}" for row in rows]),
        ("holds", [verdict(row) for row in rows]),
    ]
    packages = ("torch", "torchvision", "transformers", "onnx", "onnxruntime")
    return finish(rows, cells, packages=packages, runs=1, json_file=options.json)


if __name__ == "__main__":
    sys.exit(main())
