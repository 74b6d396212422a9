"""Exports and compares one situation in this process; ``side_by_side.compare`` starts it.

    python side_by_side_child.py TARGET EXPORTER FOLDER [MEMORY]

It writes ``row.json`` into FOLDER, and before each step its name into ``stage``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from side_by_side import Comparison, Exporter, Row, Situation, Verdict
from side_by_side_equal import difference, shape_difference
from side_by_side_runs import SEED, Eager, Engine, Exported, Program
from side_by_side_sizes import Dimension, declared, larger, smaller


class RefusedError(Exception):
    """The exporter made no model, and said why."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


def main(target: str, exporter: Exporter, folder: Path) -> Row:
    """The row of one situation."""
    factory = _factory(target)

    def stage(text: str) -> None:
        (folder / "stage").write_text(text, encoding="utf-8")

    stage("making the model")
    eager = Eager(factory)
    dimensions = declared(eager.situation.model, *eager.example, eager.situation.dynamic_shapes)
    if eager.situation.options.get(exporter, {}).get("assume"):
        for dimension in dimensions:
            dimension.may_be_fixed = True
    stage("running eager PyTorch")
    if isinstance(failed := eager.run([eager.example]), Exception):
        return Row(target, exporter, "not comparable", _line(failed))
    stage("exporting")
    try:
        for number in range(eager.situation.exports):
            exported = EXPORT[exporter](factory, folder / f"export{number}")
    except RefusedError as error:
        text = str(error)
        return Row(target, exporter, "refused", _line(text), error.fix, details=text[:6000])
    except Exception as error:
        return Row(target, exporter, "crash", f"traceback: {_line(error)}", details=traceback.format_exc()[-6000:])
    stage("loading the model")
    try:
        engine: Engine | Program | Exception = exported.opened(eager)
    except Exception as error:
        engine = error
    comparisons = tuple(_comparisons(eager, engine, dimensions, stage))
    return _row(target, exporter, exported, comparisons)


def _row(target: str, exporter: Exporter, exported: Exported, comparisons: tuple[Comparison, ...]) -> Row:
    wrong = next((item for item in comparisons if item.equal is False), None)
    verdict: Verdict = "right"
    reason = exported.why
    if wrong is not None:
        verdict = "verified but wrong" if exported.says == "passed" else "wrong"
        reason = f"{wrong.what} ({', '.join(f'{n}={s}' for n, s in wrong.sizes.items())}): {wrong.detail}"
    elif exporter == "opbridge" and exported.says != "passed":
        verdict = "false alarm"
    return Row(
        target,
        exporter,
        verdict,
        reason,
        says=exported.says,
        findings=exported.findings,
        comparisons=comparisons,
        details=exported.why,
    )


def _factory(target: str) -> Callable[[], Situation]:
    place, _, argument = target.partition("#")
    module, _, name = place.partition(":")
    function = getattr(importlib.import_module(module), name)

    def make() -> Situation:
        torch.manual_seed(SEED)
        situation: Situation = function(argument) if argument else function()
        return situation

    return make


# Exporters


def _export_with_opbridge(factory: Callable[[], Situation], path: Path) -> Exported:
    import opbridge

    situation = factory()
    try:
        bundle = opbridge.export(
            situation.model,
            situation.args,
            dict(situation.kwargs),
            path=path,
            dynamic_shapes=situation.dynamic_shapes,
            verify=True,
            **situation.options.get("opbridge", {}),
        )
    except opbridge.OpbridgeError as error:
        raise RefusedError(error.message, error.fix) from error
    kernels = bundle.kernels("onnxruntime")
    libraries = (bundle.path / kernels["file"],) if kernels is not None else ()
    verification: Mapping[str, Any] = bundle.verification or {}
    says = "passed" if bundle.verified else str(verification.get("verdict", "not verified"))
    findings = [finding["code"] for finding in bundle.sources.get("findings", ()) if isinstance(finding, Mapping)]
    why = "" if bundle.verified else _why(verification)
    return Exported(bundle.model_file("onnxruntime"), libraries, says, why, tuple(findings))


def _why(verification: Mapping[str, Any]) -> str:
    """Why a verification did not pass: its first error or mismatch."""
    texts = [f"{case['name']}: {case['error']}" for case in verification.get("cases", ()) if case.get("error")]
    for item in verification.get("comparisons", ()):
        if item["status"] not in {"equal", "within budget", "decision", "random"}:
            texts.append(f"{item['case']}: {item['output']} {item['status']}: {item['detail']}")
    return _line((texts or [str(verification.get("error") or verification.get("verdict"))])[0])


def _export_with_torch(factory: Callable[[], Situation], path: Path) -> Exported:
    situation = factory()
    path.mkdir()
    try:
        program = torch.onnx.export(
            situation.model,
            situation.args,
            kwargs=dict(situation.kwargs),
            dynamic_shapes=situation.dynamic_shapes,
            dynamo=True,
            verbose=False,
            **situation.options.get("torch", {}),
        )
        assert program is not None
        program.save(path / "model.onnx")
    except Exception as error:
        causes = [error, *_causes(error)]
        raise RefusedError(f"{_line(causes[-1])}\n" + "\n".join(map(str, causes))) from error
    return Exported(path / "model.onnx")


def _capture(factory: Callable[[], Situation], path: Path) -> Exported:
    situation = factory()
    try:
        shapes = _without_names(situation.dynamic_shapes)
        program = torch.export.export(situation.model, situation.args, dict(situation.kwargs), dynamic_shapes=shapes)
    except Exception as error:
        raise RefusedError(_line(error)) from error
    return Exported(program=program)


def _without_names(shapes: Any) -> Any:
    """``dynamic_shapes`` as ``torch.export`` takes it: a name of a dimension, as ``torch.onnx.export`` takes it."""
    if isinstance(shapes, str):
        return torch.export.Dim.DYNAMIC
    if isinstance(shapes, Mapping):
        return {key: _without_names(item) for key, item in shapes.items()}
    return type(shapes)(map(_without_names, shapes)) if isinstance(shapes, list | tuple) else shapes


def _causes(error: BaseException) -> Iterator[BaseException]:
    while error.__cause__ is not None:
        error = error.__cause__
        yield error


EXPORT: Mapping[str, Callable[[Callable[[], Situation], Path], Exported]] = {
    "opbridge": _export_with_opbridge,
    "torch": _export_with_torch,
    "capture": _capture,
}


# Sizes


def _comparisons(
    eager: Eager, engine: Engine | Program | Exception, dimensions: Sequence[Dimension], stage: Callable[[str], None]
) -> Iterator[Comparison]:
    """The example's sizes, each dimension alone, all together."""
    sizes = {dimension.name: dimension.size for dimension in dimensions}

    def at(what: str, changed: Mapping[str, int]) -> Comparison | None:
        return _compared(eager, engine, dimensions, what, {**sizes, **changed}, stage)

    yield at("example", {}) or Comparison("example", sizes, None, "eager PyTorch refuses fresh values")
    if isinstance(engine, Exception):
        return
    free = [one for one in dimensions if not (one.may_be_fixed and engine.fixes(one))]
    alone: dict[str, int] = {}
    for dimension in dimensions:
        if dimension not in free:
            yield Comparison(f"{dimension.name} alone", {}, None, "fixed by the exporter, which Dim.AUTO allows")
            continue
        found = _varied(dimension, dimensions, at)
        yield from found or [Comparison(f"{dimension.name} alone", {}, None, "no other size is legal in eager")]
        if found:
            alone[dimension.name] = found[0].sizes[dimension.name]
    if len(free) > 1:
        together = at("all together", alone) if len(alone) == len(free) else None
        found = [together] if together is not None else _first_legal(free, "all together", at)
        yield from found[:1] or [Comparison("all together", {}, None, "no other sizes are legal in eager")]


def _varied(
    chosen: Dimension, dimensions: Sequence[Dimension], at: Callable[[str, Mapping[str, int]], Comparison | None]
) -> list[Comparison]:
    """A dimension at a larger and at a smaller size, or, if it must be equal to others, together with these."""
    equal = [one for one in dimensions if one.size == chosen.size]
    found = _first_legal([chosen], f"{chosen.name} alone", at)
    if not found and len(equal) > 1:
        found = _first_legal(equal, f"{chosen.name} with dimensions of the same size", at)
    return found


def _first_legal(
    group: Sequence[Dimension], what: str, at: Callable[[str, Mapping[str, int]], Comparison | None]
) -> list[Comparison]:
    """A group of dimensions at the first legal larger sizes and at the first legal smaller ones."""
    found = []
    for candidates in (larger, smaller):
        for sizes in zip(*(candidates(one) for one in group), strict=False):
            result = at(what, {one.name: size for one, size in zip(group, sizes, strict=True)})
            if result is not None:
                found.append(result)
                break
    return found


def _compared(
    eager: Eager,
    engine: Engine | Program | Exception,
    dimensions: Sequence[Dimension],
    what: str,
    sizes: Mapping[str, int],
    stage: Callable[[str], None],
) -> Comparison | None:
    """One set of sizes; None if eager PyTorch refuses it."""
    for reorder in (True, False):
        calls = eager.fresh(dimensions, sizes, reorder)
        if calls is None:
            return None
        stage(f"running eager PyTorch at {sizes}")
        own = eager.run(calls)
        if not isinstance(own, Exception):
            break
    else:
        return None
    if isinstance(engine, Exception):
        return Comparison(what, sizes, False, f"ONNX Runtime does not load the model: {_line(engine)}")
    stage(f"running {engine.label} at {sizes}")
    try:
        found = engine.run(calls)
    except Exception as error:
        return Comparison(what, sizes, False, f"{engine.label} fails: {_line(error)}")
    stage(f"running eager PyTorch at {sizes}, in float64 or with another seed")
    if eager.situation.random:
        again = eager.run(calls, seed=SEED + 1)
        detail = shape_difference([own] if isinstance(again, Exception) else [own, again], found)
    else:
        wide = eager.run(calls, wide=True)
        detail = difference(own, None if isinstance(wide, Exception) else wide, found, eager.situation.tolerance)
    return Comparison(what, sizes, not detail, detail)


def _line(error: BaseException | str) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, BaseException):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= 300 else text[:297] + "..."


def _limit_memory(size: int) -> None:
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def run(target: str, exporter: Exporter, folder: Path, memory: int | None) -> None:
    """Write the row of one situation into a folder, with a limit on the memory of this process."""
    warnings.simplefilter("ignore")
    if memory is not None:
        _limit_memory(memory)
    row = main(target, exporter, folder)
    (folder / "row.json").write_text(json.dumps(row.to_dict()), encoding="utf-8")


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else None)  # type: ignore[arg-type]
