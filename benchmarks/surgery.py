"""Surgery on a large model, and on a vision transformer.

    python benchmarks/surgery.py [--gigabytes 2.2] [--json FILE]
    python benchmarks/surgery.py --vit [--json FILE]

The first makes a model of that size in a temporary folder and runs each command on it, in a process of its own: the
peak of its memory as a share of the model's size (target: 1.2), and its time as a multiple of that of copying the
model to the disk. The second exports torchvision's ViT-B/16 with random weights, by torch.onnx.export and by
opbridge.export, puts one node in the place of each attention block, and compares the results in ONNX Runtime.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _table import finish, verdict

MEMORY_TARGET = 1.2
SIDE = 4096

OPERATORS = """
import torch
from torch import Tensor
import opbridge

@opbridge.operator("bench::swish", samples=lambda: [opbridge.Sample((torch.randn(3, 8),))])
def swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)
"""

COMMANDS = {
    "fuse": ["model.onnx", "bench::swish", "--ops", "operators.py"],
    "fuse --inputs": ["model.onnx", "bench::block", "--inputs", "h1", "--outputs", "h3"],
    "inline": ["fused.onnx"],
    "extract": ["model.onnx", "--inputs", "h1"],
    "join": ["model.onnx", "tail.onnx", "--map", "y=x"],
    "insert": ["model.onnx", "Relu", "--on", "h2"],
    "delete": ["model.onnx", "--nodes", "times_2"],
    "rename": ["model.onnx", "--value", "x=pixels", "--dimension", "batch=n"],
    "set-dimension": ["model.onnx", "x:0=8"],
    "set-attribute": ["model.onnx", "last", "alpha=0.5"],
    "attach": ["bare.onnx", "--ops", "operators.py"],
    "diff": ["model.onnx", "model.onnx"],
    "convert-opset": ["model.onnx", "--opset", "15"],
    "convert-dtype": ["model.onnx", "float16"],
}
CHOOSES_BY_ITSELF = ("diff", "convert-opset")
"""Commands without --external-data: above 2 GB the weights go beside the model anyway."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One command."""

    command: str
    seconds: float
    copies: float
    memory: float

    @property
    def holds(self) -> bool:
        return self.memory <= MEMORY_TARGET


@dataclasses.dataclass(frozen=True)
class Fused:
    """One export of the vision transformer."""

    export: str
    blocks: int
    nodes: int
    seconds: float
    difference: float

    @property
    def holds(self) -> bool:
        return self.blocks == 12 and self.difference <= 1e-4


def make_model(folder: Path, gigabytes: float) -> None:
    """Layers of x·W, swish; a LeakyRelu at the end. Weights of random numbers, written one after the other."""
    import onnx
    from onnx import TensorProto, helper

    layers = max(4, round(gigabytes * 1e9 / (SIDE * SIDE * 4)))
    nodes, weights = [], []
    block = np.random.default_rng(0).standard_normal(SIDE * SIDE, dtype=np.float32) * (1.5 / SIDE**0.5)
    with (folder / "model.onnx.data").open("wb") as data:
        for i in range(layers):
            tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
            tensor.data_location = TensorProto.EXTERNAL
            entries = {"location": "model.onnx.data", "offset": i * block.nbytes, "length": block.nbytes}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
            data.write(np.roll(block, i).data)
            weights.append(tensor)
            nodes += [
                helper.make_node("MatMul", ["x" if i == 0 else f"h{i}", f"w{i}"], [f"m{i}"], f"product_{i}"),
                helper.make_node("Sigmoid", [f"m{i}"], [f"s{i}"], f"sigmoid_{i}"),
                helper.make_node("Mul", [f"m{i}", f"s{i}"], [f"h{i + 1}"], f"times_{i}"),
            ]
    nodes.append(helper.make_node("LeakyRelu", [f"h{layers}"], ["y"], "last"))
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", SIDE]) for name in ("x", "y")]
    opsets = [helper.make_opsetid("", 18)]
    graph = helper.make_graph(nodes, "large", types[:1], types[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "model.onnx")
    tail = helper.make_graph([helper.make_node("Relu", ["x"], ["z"])], "tail", types[:1], [
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", SIDE])
    ])  # fmt: skip
    onnx.save(helper.make_model(tail, opset_imports=opsets, ir_version=9), folder / "tail.onnx")
    for node in nodes:
        if node.name == "sigmoid_0":
            node.op_type, node.domain = "swish", "bench"
    bare = helper.make_graph(nodes, "bare", types[:1], types[1:], weights)
    opsets.append(helper.make_opsetid("bench", 1))
    onnx.save(helper.make_model(bare, opset_imports=opsets, ir_version=9), folder / "bare.onnx")


def copy_time(folder: Path) -> float:
    """Seconds for reading the model and writing it elsewhere, down to the disk."""
    begin = time.perf_counter()
    for name in ("model.onnx", "model.onnx.data"):
        with (folder / name).open("rb") as source, (folder / f"copy_{name}").open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 24)
            target.flush()
            os.fsync(target.fileno())
    seconds = time.perf_counter() - begin
    for name in ("model.onnx", "model.onnx.data"):
        (folder / f"copy_{name}").unlink()
    return seconds


def run_command(folder: Path, arguments: list[str]) -> tuple[float, int]:
    """Seconds, and the peak of the memory in bytes, of one command."""
    begin = time.perf_counter()
    code = (
        "import sys, resource\nfrom opbridge.cli import main\ncode = main(sys.argv[1:])\n"
        "sys.stdout.flush()\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(f"{arguments}: {done.stderr[-2000:]}")
    return seconds, int(done.stderr.split()[-1]) * (1 if sys.platform == "darwin" else 1024)


def large(gigabytes: float, json_file: Path | None) -> int:
    rows = []
    with tempfile.TemporaryDirectory(prefix="opbridge_surgery_") as name:
        folder = Path(name)
        (folder / "operators.py").write_text(OPERATORS)
        make_model(folder, gigabytes)
        size = (folder / "model.onnx.data").stat().st_size
        copying = min(copy_time(folder) for _ in range(2))
        for command, arguments in COMMANDS.items():
            verb = command.split()[0]
            file = "fused.onnx" if command == "fuse" else "out.onnx"
            output = [] if verb == "diff" else ["-o", file]
            output += [] if verb in CHOOSES_BY_ITSELF else ["--external-data"]
            seconds, peak = run_command(folder, [verb, *arguments, *output, "-q"])
            rows.append(Row(command, seconds, seconds / copying, peak / size))
            for leftover in folder.glob("out.onnx*"):
                leftover.unlink()
    cells = [
        ("command", [row.command for row in rows]),
        ("time", [f"{row.seconds:.1f} s" for row in rows]),
        ("time / copy", [f"{row.copies:.1f}" for row in rows]),
        ("memory / size", [f"{row.memory:.2f}" for row in rows]),
        ("holds", [verdict(row) for row in rows]),
    ]
    note = f"model of {size / 1e9:.2f} GB; copying it takes {copying:.1f} s; target: memory / size ≤ {MEMORY_TARGET}"
    return finish(rows, cells, packages=("onnx", "onnx-ir"), runs=1, json_file=json_file, note=note)


def vit(json_file: Path | None) -> int:
    import onnxruntime
    import torch
    import torchvision

    import opbridge

    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    from vit_attention import attention, example_arguments

    torch.manual_seed(0)
    model = torchvision.models.vit_b_16().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    image = torch.randn(1, 3, 224, 224)
    rows = []
    with tempfile.TemporaryDirectory(prefix="opbridge_surgery_") as name:
        folder = Path(name)
        torch.onnx.export(model, (image,), folder / "torch.onnx", dynamo=True, verbose=False, external_data=False)
        opbridge.export(model, (image,), path=folder / "bundle", verify=False)
        files = {"torch.onnx.export": folder / "torch.onnx", "opbridge.export": folder / "bundle" / "model.onnx"}
        for export, file in files.items():
            begin = time.perf_counter()
            fused = opbridge.fuse(file, attention, args=example_arguments())
            seconds = time.perf_counter() - begin
            fused.save(folder / "fused.onnx", overwrite=True)
            fresh = np.random.default_rng(1).standard_normal((1, 3, 224, 224), dtype=np.float32)
            results = []
            for path in (file, folder / "fused.onnx"):
                session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
                results.append(session.run(None, {session.get_inputs()[0].name: fresh})[0])
            blocks = sum(node.op_type == "attention" for node in fused.model.graph)
            difference = float(np.abs(results[0] - results[1]).max() / np.abs(results[0]).max())
            rows.append(Fused(export, blocks, len(list(fused.model.graph)), seconds, difference))
    cells = [
        ("export", [row.export for row in rows]),
        ("attention nodes", [str(row.blocks) for row in rows]),
        ("all nodes", [str(row.nodes) for row in rows]),
        ("time to fuse", [f"{row.seconds:.1f} s" for row in rows]),
        ("largest difference", [f"{row.difference:.1e}" for row in rows]),
        ("holds", [verdict(row) for row in rows]),
    ]
    note = "ViT-B/16, random weights; differences in ONNX Runtime, as a share of the largest output"
    return finish(rows, cells, packages=("torch", "torchvision", "onnxruntime"), runs=1, json_file=json_file, note=note)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.2)
    parser.add_argument("--vit", action="store_true", help="fuse the attention blocks of a vision transformer")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    return vit(arguments.json) if arguments.vit else large(arguments.gigabytes, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
