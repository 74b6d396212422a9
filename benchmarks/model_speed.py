"""Models in ONNX Runtime or OpenVINO: opbridge's beside the one that torch.onnx writes, as a Markdown table.

    python benchmarks/model_speed.py [--model bert,convnext] [--engine openvino] [--slim] [--runs 12] [--export]

The models are those of torchvision, timm and transformers, with random weights and the shape of a small member of their
family; nothing is downloaded, and a package that is not installed is named and left out. Both models run in one process
on one thread, in turns. The ratio of run times is that of the best runs, and below 1 opbridge's model is faster. With
``--slim``, torch.onnx's model is optimized by onnxslim first. With ``--export``, the time of the export is compared
too: the fastest of three of each, without verification. The last line is the geometric mean with its 95% confidence
interval over the models. The exit code is 1 if the mean is above 1. ``--json FILE`` also writes the numbers.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from _beside import file_size, geometric_mean, in_turns, interval, nodes_in, runner
from torch import nn

import opbridge
from opbridge.torch_graph.silence import silenced

_SESSIONS = 6
"""The sessions of each model: where its weights and buffers are in memory changes its time by up to 12%."""

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def _torchvision(name: str, side: int = 224, **options: Any) -> Callable[[], Made]:
    def make() -> Made:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **options), (torch.randn(1, 3, side, side),), {}

    return make


def _timm(name: str, side: int = 224) -> Callable[[], Made]:
    def make() -> Made:
        import timm

        return timm.create_model(name, pretrained=False, exportable=True), (torch.randn(1, 3, side, side),), {}

    return make


def _transformers(name: str, inputs: Callable[[], dict[str, Any]], **config: Any) -> Callable[[], Made]:
    def make() -> Made:
        import transformers

        kind = getattr(transformers, name)
        return kind(kind.config_class(**config)), (), inputs()

    return make


def _text() -> dict[str, Any]:
    return {"input_ids": torch.randint(1, 1000, (1, 128)), "attention_mask": torch.ones(1, 128, dtype=torch.long)}


def _decoded() -> dict[str, Any]:
    return {**_text(), "use_cache": False}


def _image() -> dict[str, Any]:
    return {"pixel_values": torch.randn(1, 3, 224, 224)}


_ENCODER = {"vocab_size": 1000, "hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6}
_BERT = {**_ENCODER, "num_hidden_layers": 4}
_LLAMA = {**_BERT, "num_key_value_heads": 2, "max_position_embeddings": 256}
_GEMMA = {**_LLAMA, "head_dim": 64, "sliding_window": 64}

MODELS: Mapping[str, Callable[[], Made]] = {
    "resnet18": _torchvision("resnet18"),
    "resnet50": _torchvision("resnet50"),
    "mobilenet_v3_large": _torchvision("mobilenet_v3_large"),
    "efficientnet_b0": _torchvision("efficientnet_b0"),
    "convnext_tiny": _torchvision("convnext_tiny"),
    "densenet121": _torchvision("densenet121"),
    "regnet_y_400mf": _torchvision("regnet_y_400mf"),
    "shufflenet_v2_x1_0": _torchvision("shufflenet_v2_x1_0"),
    "swin_t": _torchvision("swin_t"),
    "vit_b_32": _torchvision("vit_b_32"),
    "lraspp_mobilenet_v3_large": _torchvision("lraspp_mobilenet_v3_large", weights_backbone=None),
    "deit_tiny": _timm("deit_tiny_patch16_224"),
    "edgenext_small": _timm("edgenext_small"),
    "mvitv2_tiny": _timm("mvitv2_tiny"),
    "tresnet_m": _timm("tresnet_m"),
    "levit_128": _timm("levit_128"),
    "mobilevit_s": _timm("mobilevit_s", 256),
    "poolformer_s12": _timm("poolformer_s12"),
    "ghostnet_100": _timm("ghostnet_100"),
    "mixer_s16": _timm("mixer_s16_224"),
    "coatnet_0": _timm("coatnet_0_rw_224"),
    "bert": _transformers("BertModel", _text, **_BERT),
    "distilbert": _transformers(
        "DistilBertModel", _text, vocab_size=1000, dim=384, hidden_dim=1536, n_heads=6, n_layers=4
    ),
    "electra": _transformers("ElectraModel", _text, embedding_size=128, **_BERT),
    "gpt2": _transformers("GPT2Model", _decoded, vocab_size=1000, n_embd=384, n_layer=4, n_head=6, n_positions=256),
    "llama": _transformers("LlamaModel", _decoded, **_LLAMA),
    "gemma3": _transformers("Gemma3TextModel", _decoded, **_GEMMA),
    "qwen2": _transformers("Qwen2Model", _decoded, **_LLAMA),
    "t5_encoder": _transformers(
        "T5EncoderModel", _text, vocab_size=1000, d_model=384, d_kv=64, d_ff=1024, num_layers=4, num_heads=6
    ),
    "vit": _transformers("ViTModel", _image, **{k: v for k, v in _BERT.items() if k != "vocab_size"}),
    "clip_text": _transformers("CLIPTextModel", _text, max_position_embeddings=128, **_BERT),
    "whisper_encoder": _transformers(
        "WhisperModel",
        lambda: {
            "input_features": torch.randn(1, 80, 400),
            "decoder_input_ids": torch.randint(1, 1000, (1, 16)),
            "use_cache": False,
        },
        d_model=384,
        vocab_size=1000,
        max_source_positions=200,
        max_target_positions=64,
        encoder_layers=4,
        decoder_layers=2,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    ),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One model: the ratio of each quantity, opbridge's over torch.onnx's."""

    model: str
    nodes: int
    their_nodes: int
    time: float
    their_time: float
    size: float
    export: float = math.nan

    @property
    def ratio(self) -> float:
        return self.time / self.their_time

    def cells(self) -> tuple[str, ...]:
        export = "" if math.isnan(self.export) else f"{self.export:.2f}"
        times = f"{1e3 * self.time:.1f}", f"{1e3 * self.their_time:.1f}"
        numbers = str(self.nodes), str(self.their_nodes), *times, f"{self.ratio:.3f}", f"{self.size:.3f}"
        return self.model, *numbers, export


def measure(name: str, engine: str, runs: int, exports: int, *, slim: bool) -> Row:
    """Export one model both ways, and run the models in turns."""
    torch.manual_seed(0)
    model, args, kwargs = MODELS[name]()
    model.eval()
    feeds = [x.numpy() for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = Path(folder) / "torch.onnx", Path(folder) / "bundle"

        def by_torch() -> None:
            with silenced():
                torch.onnx.export(model, args, theirs, kwargs=kwargs, dynamo=True, verbose=False, external_data=False)

        def by_opbridge() -> None:
            opbridge.export(model, args, kwargs, path=ours, engines=[engine], verify=False, overwrite=True)

        spent: dict[str, list[float]] = {"torch": [], "opbridge": []}
        for _ in range(exports):
            for side, export in (("torch", by_torch), ("opbridge", by_opbridge)):
                start = time.perf_counter()
                export()
                spent[side].append(time.perf_counter() - start)
        if slim:
            onnx.save(_slimmed(theirs), theirs)
        own = ours / json.loads((ours / "bundle.json").read_text())["models"][0]["file"]
        # Each is loaded first once, so that the place of its weights in memory favors neither.
        files = {"opbridge": own, "torch": theirs}
        orders = [("opbridge", "torch"), ("torch", "opbridge")] * (_SESSIONS // 2)
        rounds = [
            in_turns({side: runner(files[side], feeds, engine) for side in order}, math.ceil(runs / _SESSIONS))
            for order in orders
        ]
        best = [min(seconds for times in rounds for seconds in times[side]) for side in files]
        export = min(spent["opbridge"]) / min(spent["torch"]) if exports > 1 else math.nan
        return Row(name, nodes_in(own), nodes_in(theirs), *best, file_size(own) / file_size(theirs), export)


def _slimmed(path: Path) -> onnx.ModelProto:
    import onnxslim

    return onnxslim.slim(onnx.load(path))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="the models whose names contain one of these, with commas between")
    parser.add_argument("--engine", default="onnxruntime", choices=("onnxruntime", "openvino"))
    parser.add_argument("--slim", action="store_true", help="optimize torch.onnx's model by onnxslim first")
    parser.add_argument("--runs", type=int, default=12, help="runs of each model (default 12)")
    parser.add_argument("--export", action="store_true", help="compare the time of the export too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    wanted = [text for text in options.model.split(",") if text]
    side = "torch.onnx + onnxslim" if options.slim else "torch.onnx"
    heading = ("model", "nodes", side, "ms", side, "run time", "file size", "export time")
    print(_line(heading), _line(["---"] * len(heading)), sep="\n")
    rows = []
    for name in MODELS:
        if wanted and not any(text in name for text in wanted):
            continue
        try:
            rows.append(measure(name, options.engine, options.runs, 3 if options.export else 1, slim=options.slim))
        except Exception as error:  # The next model has its turn.
            text = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"{name}: {text[:300]}", file=sys.stderr, flush=True)
            continue
        print(_line(rows[-1].cells()), flush=True)
    if not rows:
        return 1
    ratios = [row.ratio for row in rows]
    low, high = interval(ratios)
    mean = geometric_mean(ratios)
    nodes = geometric_mean([row.nodes / row.their_nodes for row in rows])
    print(f"\n{len(rows)} models: run time {mean:.3f} (95%: {low:.3f} to {high:.3f}), nodes {nodes:.3f}")
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    return 0 if mean <= 1 else 1


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
