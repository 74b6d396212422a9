"""What verification costs on large models: its time beside the runs it contains, and the memory of bisection.

* overhead: the seconds of opbridge.verify from the moment that the model is captured, less those inside PyTorch (the
  module, the captured graph in its own dtype and in float64) and inside the engine. It has the fresh inputs, the start
  of the engine's process, the loading of the model, and the judgement. The target is 5 s + 20% of the runs.
* memory: a node in the middle of the model gets another constant, and the bundle is verified on the example inputs,
  which bisects it. The peak of the anonymous memory of this process and of the engine's, less what this process had
  before, over the model's: the bytes of its weights and of all values of its captured graph on the same inputs, views
  not counted. The target is 2.2. The same over the weights alone is told too: a run of the model holds few of its
  values at a time, but what looks for a node must have them, and both processes hold weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from model_example import BATCH, Example
from models_of_vision import MODELS as VISION_MODELS
from models_of_vision import without_zeros

import opbridge
from opbridge.bundle.bundle import Bundle
from opbridge.bundle.write import write_bundle
from opbridge.capture.capture import capture
from opbridge.capture.entry import Entry
from opbridge.catalog.declare.catalog import Catalog
from opbridge.proof.verify.inputs import to_numpy

__all__ = ["MODELS", "ModelRow", "measure"]

SECONDS, SHARE, MEMORY = 5.0, 0.2, 2.2
FACTOR = np.float32(1.01)
"""By which the planted constant is wrong."""


def _classifier(name: str) -> Callable[[], Example]:
    def make() -> Example:
        import torchvision

        model = without_zeros(torchvision.models.get_model(name, weights=None).eval())
        return Example(model, (torch.randn(2, 3, 224, 224),), {}, (BATCH,))

    return make


MODELS: dict[str, Callable[[], Example]] = {
    "resnet50": _classifier("resnet50"),
    "vit_b_16": _classifier("vit_b_16"),
    "swin_t": _classifier("swin_t"),
    "fasterrcnn": VISION_MODELS["fasterrcnn"],
}


@dataclasses.dataclass(frozen=True)
class ModelRow:
    """One model.

    Attributes:
        name: As in :data:`MODELS`.
        verdict: Of the sound bundle.
        runs: Seconds of it inside PyTorch and the engine.
        overhead: All other seconds of it.
        processor: Seconds of the processor's time that all of it took.
        weights: Bytes of the weights.
        values: Bytes of all values of the captured graph.
        peak: Bytes that bisection took at most.
        named: Whether it named the planted node.
    """

    name: str
    verdict: str
    runs: float
    overhead: float
    processor: float
    weights: int
    values: int
    peak: int
    named: bool

    @property
    def memory(self) -> float:
        """The peak in sizes of the model."""
        return self.peak / (self.weights + self.values)

    @property
    def of_weights(self) -> float:
        """The peak in sizes of the weights alone."""
        return self.peak / self.weights

    @property
    def quick(self) -> bool:
        """Whether the target of the overhead is held."""
        return self.overhead <= SECONDS + SHARE * self.runs

    @property
    def holds(self) -> bool:
        return self.verdict == "passed" and self.quick and self.memory <= MEMORY and self.named


def measure(name: str) -> ModelRow:
    """Verify one model in this process, sound and with a fault."""
    entry = _entry(name)
    with tempfile.TemporaryDirectory() as folder:
        bundle = opbridge.export(
            entry.model, entry.args, path=Path(folder) / "sound", dynamic_shapes=entry.dynamic_shapes, verify=False
        )
        sound, overhead, processor = _verified(bundle, entry)
        faulty, node = _with_fault(bundle, Path(folder) / "faulty")
        inputs = {spec.name: to_numpy(value) for spec, value in zip(bundle.inputs, _tensors(entry), strict=True)}
        gc.collect()
        with _peak_memory() as peak:
            found = opbridge.verify(faulty.path, reference=entry, inputs=[inputs])
    weights, values = _size(entry)
    runs = sound.seconds["runs"]
    return ModelRow(name, sound.verdict, runs, overhead, processor, weights, values, peak[0], _names(found, node))


def _verified(bundle: Bundle, entry: Entry) -> tuple[opbridge.Verification, float, float]:
    """The sound bundle verified, the overhead, and the processor's time of all of it."""
    began: dict[str, tuple[float, float]] = {}

    def begin(stage: str) -> None:
        began[stage] = time.perf_counter(), _processor_seconds()

    sound = opbridge.verify(bundle.path, reference=entry, progress=begin)
    clock, processor = began["verifying"]
    return sound, time.perf_counter() - clock - sound.seconds["runs"], _processor_seconds() - processor


def _processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _entry(name: str) -> Entry:
    torch.manual_seed(0)
    example = MODELS[name]()
    return Entry(name, example.model, tuple(example.args), example.kwargs, example.dynamic_shapes)


def _tensors(entry: Entry) -> list[torch.Tensor]:
    flat: list[torch.Tensor] = torch.utils._pytree.tree_flatten(entry.args)[0]
    return flat


def _names(found: opbridge.Verification, node: str) -> bool:
    """Whether bisection names the node."""
    return bool(found.divergences) and all(
        divergence.first is not None and node in (divergence.first.node, *divergence.between)
        for divergence in found.divergences
    )


def _with_fault(sound: Bundle, folder: Path) -> tuple[Bundle, str]:
    """The bundle with another constant in the middle one of the nodes that multiply by weights."""
    file = sound.model_file("onnxruntime")
    model = ir.load(file)
    layers = [node for node in model.graph if node.op_type in ("Conv", "MatMul", "Gemm") and _weight(node) is not None]
    node = layers[len(layers) // 2]
    old = _weight(node)
    assert old is not None
    assert old.const_value is not None
    value = ir.Value(name=f"{old.name}_wrong", const_value=ir.tensor(old.const_value.numpy() * FACTOR))
    value.shape, value.dtype = old.shape, old.dtype
    model.graph.register_initializer(value)
    node.replace_input_with(1, value)

    def write(target: Path) -> None:
        for name in sound.manifest["files"]:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(sound.path / name, target / name)
        ir.save(model, target / file.relative_to(sound.path))

    return write_bundle(folder, sound.manifest, write, sources=sound.sources), str(node.name)


def _weight(node: ir.Node) -> ir.Value | None:
    value = node.inputs[1]
    return value if value is not None and value.is_initializer() else None


def _size(entry: Entry) -> tuple[int, int]:
    """Bytes of the weights, and of all values of the captured graph."""
    rewrites = Catalog.load(()).rewrites()
    captured = capture(entry.model, entry.args, dynamic_shapes=entry.dynamic_shapes, rewrites=rewrites)
    values = _Values(captured.program.module())
    with torch.no_grad():
        values.run(*_tensors(entry), enable_io_processing=False)
    weights = [*captured.program.state_dict.values(), *captured.program.constants.values()]
    held = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in weights if torch.is_tensor(t)}
    made = sum(size for place, size in values.made.items() if place not in held)
    return sum(held.values()), made


class _Values(torch.fx.Interpreter):
    """Holds every value, so that each has memory of its own."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.made: dict[int, int] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        """See the base class."""
        result = super().run_node(n)
        for value in torch.utils._pytree.tree_flatten(result)[0]:
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                self.made[storage.data_ptr()] = storage.nbytes()
        return result


@contextlib.contextmanager
def _peak_memory() -> Iterator[list[int]]:
    """Measures meanwhile: the peak of the anonymous memory of this process and its children, over that of before."""
    before, peak, over = _anonymous(os.getpid()), [0], threading.Event()

    def watch() -> None:
        pause = 0.01
        while not over.wait(pause):
            began = time.perf_counter()
            peak[0] = max(peak[0], sum(map(_anonymous, [os.getpid(), *_children()])) - before)
            # The kernel walks over all pages, which must not become most of what is measured.
            pause = max(0.01, 3 * (time.perf_counter() - began))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def _anonymous(process: int) -> int:
    """The process's anonymous memory; what it shares with others, just after a fork, counts in parts."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return 1024 * int(line.split()[1])
    return 0


def _children() -> list[int]:
    """The processes below this one."""
    found: list[int] = []
    pending = [os.getpid()]
    while pending:
        process = pending.pop()
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{process}/task").iterdir():
                below = [int(word) for word in (task / "children").read_text().split()]
                found += below
                pending += below
    return found


if __name__ == "__main__":
    import json

    print(json.dumps(dataclasses.asdict(measure(sys.argv[1]))))
