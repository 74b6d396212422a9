"""Bundles with all that a report can show, made of the result dataclasses: for the tests of page and view."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opbridge.proof.verify.joined import joined
from opbridge.proof.verify.trace import Divergence, Timing, Trace, TracedValue
from opbridge.proof.verify.verification import CaseResult, Comparison, EngineVerdict, Verification


def write_files(folder: Path, model: bytes = b"a model") -> None:
    """Write the files that :func:`manifest` lists."""
    (folder / "model.onnx").write_bytes(model)
    (folder / "kernels").mkdir()
    (folder / "kernels" / "libmodel.so").write_bytes(b"kernels")


HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>\"'&\u2028"

TARGETS = ("aten::conv2d", "aten::batch_norm", "aten::relu", "aten::linear", "aten::softmax.int", "aten::cummax")
OPERATORS = ("ai.onnx::Conv", "ai.onnx::BatchNormalization", "ai.onnx::Relu", "ai.onnx::Gemm", "ai.onnx::Softmax")


def traced(depth: int, error: float, torch: float, budget: float, *, name: str = "") -> TracedValue:
    kind = depth % len(OPERATORS)
    node = name or f"node_{OPERATORS[kind].partition('::')[2]}_{depth}"
    ratio = error / budget
    return TracedValue(
        value=f"val_{depth}",
        node=node,
        operator=OPERATORS[kind],
        depth=depth,
        target=TARGETS[kind],
        fx_node=f"fx_{depth}",
        source=f"model.py:{10 + depth // 8}",
        status="differs" if ratio > 1 or math.isnan(ratio) else "within budget" if error else "equal",
        engine_error=error,
        torch_error=torch,
        budget=budget,
        ratio=ratio,
        detail="beyond the budget from the median on" if ratio > 1 else "",
    )


def trace(
    case: str, count: int, *, diverges: int | None = None, factor: float = 300.0, names: Sequence[str] = ()
) -> Trace:
    """Errors that grow with depth as rounding does, and from ``diverges`` on as a fault does."""
    draw = random.Random(7)
    values = []
    for depth in range(count):
        torch = 0.4 * (1 + depth / count * 20) ** 0.8 * draw.uniform(0.5, 1.6)
        error = 0.0 if depth % 9 == 3 else torch * draw.uniform(0.5, 1.8)
        if diverges is not None and depth >= diverges:
            error = torch * factor * draw.uniform(0.7, 1.4)
        name = names[depth] if depth < len(names) else ""
        values.append(traced(depth, error, torch, 8 * torch + 36, name=name))
    return Trace(case, count, tuple(values))


def histogram(largest: float, elements: int = 4096) -> tuple[tuple[float, int], ...]:
    bounds = [2.0**power for power in range(-3, 8)]
    weights = [
        math.exp(-((math.log2(bound) - math.log2(largest) + 2.5) ** 2) / 4) * (bound <= 2 * largest) for bound in bounds
    ]
    total = sum(weights) or 1
    return (
        *((bound, round(elements * weight / total)) for bound, weight in zip(bounds, weights, strict=True)),
        (math.inf, 0),
    )


def compared(output: str, case: str, error: float, torch: float, *, budget: float | None = None) -> Comparison:
    allowed = 8 * torch + 36 if budget is None else budget
    ratio = error / allowed if allowed else 0.0
    return Comparison(
        output,
        case,
        "differs" if ratio > 1 else "within budget" if error else "equal",
        max_abs=error * 6e-8,
        max_rel=error * 2e-7,
        engine_error=error,
        torch_error=torch,
        ratio=ratio,
        budget=allowed,
        detail=f"off by {error:.3g} units where {allowed:.3g} are allowed" if ratio > 1 else "",
        max_ulp=round(error * 1.7),
        histogram=histogram(error) if error else (),
        torch_histogram=histogram(torch) if error else (),
    )


SIZES = {"example sizes": {"batch": 2}, "sizes 2": {"batch": 7}, "sizes 3": {"batch": 1}}


def passed(engine: str = "onnxruntime", nodes: int = 60) -> Verification:
    """Every output is within its budget."""
    cases = tuple(CaseResult(name, sizes, eager_matches=True) for name, sizes in SIZES.items())
    rows = [compared(*row) for name in SIZES for row in (("logits", name, 14.2, 9.1), ("boxes", name, 2.4, 1.5))]
    rows += [Comparison("classes", name, "equal") for name in SIZES]
    timings = tuple(
        Timing(
            f"node_{OPERATORS[k % 5].partition('::')[2]}_{k}",
            OPERATORS[k % 5],
            2e-5 * (1 + k % 5) ** 2,
            TARGETS[k % 5],
            4e-5 * (9 + k % 5),
        )
        for k in range(nodes)
    )
    return Verification(
        engine,
        "passed",
        cases,
        tuple(rows),
        {"runs": 0.8, "overhead": 0.4},
        20260101,
        eager_matches_capture=True,
        traces=(trace("example sizes", nodes),),
        timings=timings,
    )


def failed(engine: str = "onnxruntime", nodes: int = 60) -> Verification:
    """One case fails: a node in the middle diverges."""
    cases = tuple(
        CaseResult(
            name,
            sizes,
            "failed" if name == "sizes 2" else "passed",
            True,
            notes=("aten::_fused has no float64 implementation: it ran in its own dtype",) if name == "sizes 2" else (),
        )
        for name, sizes in SIZES.items()
    )
    rows = [compared("logits", name, 5210.0 if name == "sizes 2" else 14.2, 9.1) for name in SIZES]
    rows += [compared("boxes", name, 2.4, 1.5) for name in SIZES]
    found = trace("sizes 2", nodes, diverges=nodes // 2 + 4)
    first = next(value for value in found.values if value.status == "differs")
    divergence = Divergence("sizes 2", "diverges", first, (), 4, "its inputs are within the budget, its result is not")
    return Verification(
        engine,
        "failed",
        cases,
        tuple(rows),
        {"runs": 1.1, "overhead": 0.9},
        20260101,
        eager_matches_capture=True,
        divergences=(divergence,),
        traces=(trace("example sizes", nodes), found),
    )


def not_run(engine: str = "tensorrt_rtx") -> Verification:
    reason = "The engine was built, and this machine has no GPU to run it. Run `opbridge verify` on one that has."
    return Verification(engine, "built, not run", (), (), {}, 20260101, error=reason)


def several() -> Verification:
    return joined([passed("onnxruntime with kernels"), passed("openvino"), not_run()])


def manifest(engines: Sequence[str] = ("onnxruntime",), entry: str = "detector.py:model") -> dict[str, Any]:
    rungs = ("native", "native", "native", "native", "translate", "kernel")
    return {
        "opbridge": "0.1.0",
        "entry": entry,
        "versions": {"torch": "2.15.0", "onnx": "1.23.2", **dict.fromkeys(engines, "1.31.1")},
        "models": [{"file": "model.onnx", "engines": list(engines), "opset": 18, "ir_version": 10}],
        "files": {"model.onnx": {"sha256": "0" * 64, "bytes": 20_410}},
        "inputs": [{"name": "image", "dtype": "float32", "shape": ["batch", 3, 224, 224]}],
        "outputs": [{"name": "logits", "dtype": "float32", "shape": ["batch", 10]}],
        "operators": [
            {
                "target": target,
                "rung": rung,
                "count": 3 + index,
                "provider": "torch" if rung == "native" else "catalog",
                "detail": "" if rung == "native" else "The largest element so far, and where it is.",
            }
            for index, (target, rung) in enumerate(zip(TARGETS, rungs, strict=True))
        ],
        "adaptations": {
            name: [
                {
                    "what": "float16 is computed in float32: the engine has no such kernel",
                    "nodes": ["node_Conv_0", "node_Conv_5"],
                }
            ]
            for name in engines[:1]
        },
        "kernels": [
            {
                "engine": engines[0],
                "file": "kernels/libmodel.so",
                "platform": "linux-x86_64",
                "native": True,
                "operators": ["aten::cummax"],
                "optional": True,
            }
        ],
        "opset_reason": "the lowest that PyTorch's mappings are written for",
        "dynamic": {"batch": [1, None]},
        "weights": "789c0892" * 8,
        "sha256": "5a87ce01" * 8,
    }


def sources() -> dict[str, Any]:
    return {
        "entry_path": "detector.py",
        "nodes": {f"node_Conv_{depth}": f"model.py:{10 + depth // 8}" for depth in range(0, 60, 5)},
        "operators": {target: ["model.py:12", "model.py:19"] for target in TARGETS},
        "findings": [
            {
                "code": "unmapped-operator",
                "target": "aten::cummax",
                "message": "torch.onnx has no mapping of aten::cummax to ONNX (at model.py:12).",
                "fix": "nothing to do: opbridge's catalog has one, rung kernel.",
                "severity": "info",
                "rung": "kernel",
                "mended": True,
                "sources": ["model.py:12"],
            },
            {
                "code": "wrong-mapping",
                "target": "aten::softmax.int",
                "message": "opbridge maps aten::softmax.int itself: torch's mapping computes in the input's type.",
                "fix": "nothing to do; a model exported by torch.onnx alone is wrong where that matters.",
                "severity": "warning",
                "rung": "translate",
                "mended": True,
                "sources": ["model.py:19"],
            },
        ],
        "graph": [
            {"name": "image", "operator": "", "reads": []},
            {"name": "node_Conv_0", "operator": "Conv", "reads": [0]},
            {"name": "node_Relu_2", "operator": "Relu", "reads": [1]},
            {"name": "node_cummax_3", "operator": "mylib::cummax", "reads": [1, 2]},
            {"name": "logits", "operator": "", "reads": [3]},
        ],
    }


def bundle(
    verification: Verification | None, engines: Sequence[str] = ("onnxruntime",), **changes: Any
) -> dict[str, Any]:
    """What ``Bundle.to_dict()`` gives."""
    data = {"path": "build/detector", "manifest": manifest(engines), "sources": sources()}
    return {**data, "verification": None if verification is None else verification.to_dict(), **changes}


def hostile() -> dict[str, Any]:
    """Names of operators, tensors, files and engines that would be markup if they were written as such."""
    name = HOSTILE
    verification = failed()
    found = trace("sizes 2", 60, diverges=30, names=[f"{name}{depth}" for depth in range(60)])
    first = next(value for value in found.values if value.status == "differs")
    rows = tuple(compared(f"{name}{k}", name, 5210.0 if k else 3.0, 9.1) for k in range(2))
    verified = Verification(
        name,
        "failed",
        (CaseResult(name, {name: 2}, "failed", error=name, notes=(name,)),),
        rows,
        {"runs": 1.0},
        1,
        error=name,
        divergences=(Divergence("sizes 2", "diverges", first, (name,), 4, name),),
        traces=(found,),
        timings=(Timing(name, name, 1e-4, name, 2e-4),),
        engines=(EngineVerdict(name, "failed", name),),
        reference=name,
    )
    assert verification.divergences
    described = manifest((name,), entry=name)
    described["operators"].append({"target": name, "rung": name, "count": 1, "provider": name, "detail": name})
    finding = {
        "code": name,
        "target": name,
        "message": name,
        "fix": name,
        "severity": "warning",
        "rung": name,
        "mended": True,
        "sources": [name],
    }
    graph = [{"name": name, "operator": "", "reads": []}, {"name": name, "operator": name, "reads": [0]}]
    places = {"nodes": {name: name}, "operators": {name: [name]}, "targets": {name: name}}
    return {
        "path": name,
        "manifest": described,
        "verification": verified.to_dict(),
        "sources": {**places, "findings": [finding], "graph": graph},
    }
