"""Fused operators of newer opsets in ONNX Runtime, beside the nodes that an older opset has for them.

    python benchmarks/fused_speed.py --write FOLDER                # needs opbridge
    python benchmarks/fused_speed.py --time FOLDER [--runs 30]     # needs only NumPy and ONNX Runtime of any version

Each model has one operator, at the opset that introduced it and converted to the opset before. Both run on one thread,
in turns, and the best runs count; below 1 the fused operator is faster. "no kernel" is a version that does not load it.
The table decides which mappings of the catalog declare a newer opset (``opset=`` of ``opbridge.translation``); it is in
docs/catalog.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Shapes = tuple[tuple[int, ...], ...]

_CASES: tuple[tuple[str, str, int, dict[str, Any], Shapes], ...] = (
    ("LayerNormalization", "LayerNormalization", 17, {}, ((128, 768), (768,), (768,))),
    ("Gelu", "Gelu", 20, {}, ((128, 3072),)),
    ("Gelu, tanh", "Gelu", 20, {"approximate": "tanh"}, ((128, 3072),)),
    ("GroupNormalization", "GroupNormalization", 21, {"num_groups": 8}, ((1, 64, 56, 56), (64,), (64,))),
    ("RMSNormalization", "RMSNormalization", 23, {}, ((128, 768), (768,))),
    ("Attention", "Attention", 23, {}, ((1, 12, 128, 64),) * 3),
    ("Attention, causal", "Attention", 23, {"is_causal": 1}, ((1, 12, 128, 64),) * 3),
    ("Attention, mask", "Attention", 23, {}, (*((1, 12, 128, 64),) * 3, (1, 1, 128, 128))),
    ("Attention, grouped", "Attention", 23, {}, ((1, 12, 128, 64), (1, 4, 128, 64), (1, 4, 128, 64))),
    ("RotaryEmbedding", "RotaryEmbedding", 23, {}, ((1, 12, 128, 64), (1, 128, 32), (1, 128, 32))),
    ("Swish", "Swish", 24, {}, ((128, 3072),)),
)


def write(folder: Path) -> None:
    """Write two models of each case, and the list of the cases."""
    import onnx

    import opbridge

    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for title, operator, opset, attributes, shapes in _CASES:
        names = [f"x{index}" for index in range(len(shapes))]
        inputs = [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in zip(names, shapes, strict=True)
        ]
        result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shapes[0])
        node = onnx.helper.make_node(operator, names, ["y"], "node", **attributes)
        graph = onnx.helper.make_graph([node], "graph", inputs, [result])
        imports = [onnx.helper.make_opsetid("", opset)]
        fused = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
        file = title.replace(", ", "_")
        onnx.save(fused, folder / f"{file}_fused.onnx")
        opbridge.convert_opset(fused, opset - 1).save(folder / f"{file}_nodes.onnx")
        listed.append({"title": title, "opset": opset, "file": file, "shapes": shapes})
    (folder / "cases.json").write_text(json.dumps(listed))


def rows(folder: Path, runs: int) -> Iterator[tuple[str, ...]]:
    """The title, the opset, the milliseconds of both models and their ratio, of each case."""
    for case in json.loads((folder / "cases.json").read_text()):
        generator = np.random.default_rng(0)
        feeds = {f"x{i}": generator.standard_normal(shape, np.float32) for i, shape in enumerate(case["shapes"])}
        head = case["title"], str(case["opset"])
        try:
            sessions = [_session(folder / f"{case['file']}_{side}.onnx") for side in ("fused", "nodes")]
            results = [session.run(None, feeds)[0] for session in sessions]
        except Exception:  # The message of a version that has no kernel differs from version to version.
            yield *head, "", "", "no kernel"
            continue
        if not np.allclose(*results, rtol=1e-3, atol=1e-4):
            yield *head, "", "", "differs"
            continue
        best = [float("inf")] * 2
        for turn in range(runs):
            for side in (0, 1) if turn % 2 else (1, 0):
                start = time.process_time()
                for _ in range(5):
                    sessions[side].run(None, feeds)
                best[side] = min(best[side], (time.process_time() - start) / 5)
        yield *head, *(f"{1e3 * seconds:.3f}" for seconds in best), f"{best[0] / best[1]:.2f}"


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", type=Path, metavar="FOLDER", help="write the models")
    group.add_argument("--time", type=Path, metavar="FOLDER", help="run the models of a folder")
    parser.add_argument("--runs", type=int, default=30, help="turns of each model, of five runs each (default 30)")
    options = parser.parse_args()
    if options.write:
        write(options.write)
        return 0
    import onnxruntime

    print(f"ONNX Runtime {onnxruntime.__version__}\n")
    for row in (
        ("operator", "opset", "fused, ms", "nodes, ms", "ratio"),
        ("---",) * 5,
        *rows(options.time, options.runs),
    ):
        print(f"| {' | '.join(row)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
