"""Writes a script that reproduces an engine's failure with NumPy and the engine's package only."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from opbridge.engines import family_of
from opbridge.engines.base import Engine
from opbridge.proof.reduce.failure import Failure
from opbridge.proof.reduce.problem import Problem
from opbridge.proof.reduce.trials import Tried

__all__ = ["ARRAYS", "MODEL", "engine_script", "in_docstring", "large_arrays", "script_arrays", "write_arrays"]

MODEL, ARRAYS = "model.onnx", "arrays.npz"
_EVALUATOR = "onnx's reference evaluator"
_INLINE = 32
"""The maximum number of elements of an array in the script; larger arrays are stored in a file."""

_WITH_OPBRIDGE = '''
def run(model: str, feeds: dict, libraries: list) -> dict:
    """The outputs by name."""
    import opbridge

    return opbridge.load(model, engine={engine!r}, libraries=libraries).run(feeds)
'''

_SCRIPT = '''"""{title}

{story}
Needs {needs}; the model is {model} in the folder of this file{arrays_file}.
The exit code is 0 once the fault is gone.
"""

{modules}
from pathlib import Path

import numpy as np
{imports}
FOLDER = Path(__file__).resolve().parent
{arrays}
FEEDS = {feeds}
LIBRARIES = {libraries}
{expected}

{run}


{body}
'''

_RESULTS = """
results = run(str(FOLDER / "model.onnx"), FEEDS, LIBRARIES)
wrong = 0
for name, (expected, allowed) in EXPECTED.items():
    result = np.asarray(results[name])
    if result.shape != expected.shape or result.dtype != expected.dtype:
        print(f"{name}: {result.dtype}{list(result.shape)}, expected {expected.dtype}{list(expected.shape)}")
        wrong += 1
    elif not np.allclose(result.astype("float64"), expected.astype("float64"), rtol=0, atol=allowed, equal_nan=True):
        print(f"{name}:\\n{result}\\nexpected, to within {allowed:.3g}:\\n{expected}")
        wrong += 1
sys.exit(1 if wrong else 0)
"""

_DIES = """
print({message!r}, flush=True)
faulthandler.dump_traceback_later({seconds}, exit=True)
run(str(FOLDER / "model.onnx"), FEEDS, LIBRARIES)
print("The fault is gone.")
"""


def engine_script(
    problem: Problem, tried: Tried, engine: Engine, libraries: Sequence[str], *, seconds: float = 60.0, fault: str = ""
) -> str:
    """The text of the script.

    Args:
        problem: The reduced problem, whose model is written to the same folder.
        tried: The failure of the problem.
        engine: The engine that fails.
        libraries: The file names of the kernel libraries in the same folder.
        seconds: The time limit after which a run counts as a hang.
        fault: For a wrong mapping, a sentence that names the operator that the nodes implement.
    """
    failure = tried.failure
    assert failure is not None
    expected = _expected(tried)
    arrays = script_arrays(problem, tried)
    large = large_arrays(arrays)
    shown = {name: _literal(array) if name not in large else f"ARRAYS[{name!r}]" for name, array in arrays.items()}
    feeds = {name: shown[name] for name in problem.feeds}
    limits = {name: f"({shown[f'expected {name}']}, {allowed!r})" for name, (_, allowed) in expected.items()}
    source = _source(engine)
    package = engine.package if source else "opbridge"
    messages = {
        "hang": "If this does not end, the fault is present.",
        "error": "If this raises an error, the fault is present.",
    }
    dies = _DIES.format(
        message=messages.get(failure.kind, "If this process crashes, the fault is present."), seconds=int(seconds)
    )
    return _SCRIPT.format(
        title=in_docstring(
            f"{'A wrong mapping to ONNX' if fault else _engine_title(engine, failure)} ({_operators(problem)})."
        ),
        story=textwrap.fill(in_docstring(fault or failure.message), 110),
        needs=f"numpy and {package}"
        + (" and ml_dtypes" if any("ml_dtypes" in text for text in shown.values()) else ""),
        model=MODEL,
        arrays_file=f", its arrays {ARRAYS}" if large else "",
        imports="import ml_dtypes\n" if any("ml_dtypes" in text for text in shown.values()) else "",
        arrays=f'ARRAYS = np.load(FOLDER / "{ARRAYS}")' if large else "",
        feeds=_dictionary(feeds),
        libraries=f"[{', '.join(f'str(FOLDER / {name!r})' for name in libraries)}]",
        modules="import sys" if failure.kind == "results" else "import faulthandler",
        expected=_right_results(limits, "PyTorch" if fault else _EVALUATOR),
        run=(source or _WITH_OPBRIDGE.format(engine=engine.name)).strip(),
        body=(_RESULTS if failure.kind == "results" else dies).strip(),
    )


def script_arrays(problem: Problem, tried: Tried) -> dict[str, np.ndarray]:
    """The arrays of the script: the inputs and the expected results."""
    return {**problem.feeds, **{f"expected {name}": array for name, (array, _) in _expected(tried).items()}}


def large_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays to store in a file: those that are large or can't be written as a literal."""
    return {name: array for name, array in arrays.items() if array.size > _INLINE}


def _expected(tried: Tried) -> dict[str, tuple[np.ndarray, float]]:
    """The expected value and the allowed error of each wrong output."""
    found: dict[str, tuple[np.ndarray, float]] = {}
    for comparison in tried.comparisons if tried.failure is not None and tried.failure.kind == "results" else ():
        if comparison.passed or tried.expected is None or comparison.output not in tried.expected:
            continue
        array = np.asarray(tried.expected[comparison.output])
        finite = (
            np.abs(array.astype(np.float64))[np.isfinite(array.astype(np.float64))] if array.dtype.kind in "fV" else 0
        )
        known = np.isfinite(comparison.ratio) and comparison.ratio > 1
        allowed = comparison.max_abs / comparison.ratio if known else 1e-3 * float(np.max(finite, initial=0.0))
        found[comparison.output] = (array, float(f"{allowed:.3g}"))
    return found


def _what(failure: Failure) -> str:
    words = {"results": "wrong results", "crash": f"a crash ({failure.signature})", "hang": "a hang"}
    return words.get(failure.kind, {"memory": "memory runs out"}.get(failure.kind, "an error"))


def _engine_title(engine: Engine, failure: Failure) -> str:
    return f"{engine.name} {engine.version}: {_what(failure)}"


def _operators(problem: Problem) -> str:
    return ", ".join(problem.operators[:4]) + (", ..." if len(problem.operators) > 4 else "")


def in_docstring(text: str) -> str:
    """A text that can't end the docstring that it is put into: names in it may be those of a stranger's model."""
    return " ".join(text.split()).replace('"', "'").replace("\\", "/").replace("\0", "")


def _source(engine: Engine) -> str | None:
    """The engine's own ``standalone.run``, if it has one."""
    name = f"opbridge.engines.{family_of(engine.name)}.standalone"
    if importlib.util.find_spec(name) is None:
        return None
    return inspect.getsource(importlib.import_module(name).run)


def _right_results(limits: Mapping[str, str], source: str) -> str:
    """The expected results as Python code; empty if there are none."""
    return f"# By {source}, with the largest error allowed.\nEXPECTED = {_dictionary(limits)}\n" if limits else ""


def _literal(array: np.ndarray) -> str:
    if array.dtype.kind == "V":
        bits = array.view(f"uint{8 * array.itemsize}")
        return f"{_literal(bits)}.view(ml_dtypes.{array.dtype.name})"
    text = np.array2string(array, separator=", ", threshold=array.size + 1, max_line_width=10**6, floatmode="unique")
    text = re.sub(r"\s*,\s*", ", ", re.sub(r"(\[)\s+|\s+(\])", r"\1\2", " ".join(text.split())))
    text = text.replace("nan", "np.nan").replace("inf", "np.inf")
    if not array.size:
        return f"np.empty({array.shape!r}, dtype={array.dtype.name!r})"
    dtype = "object" if array.dtype.kind in "OU" else array.dtype.name
    return f"np.array({text}, dtype={dtype!r})"


def _dictionary(items: Mapping[str, str]) -> str:
    if not items:
        return "{}"
    return "{\n" + "".join(f"    {name!r}: {text},\n" for name, text in items.items()) + "}"


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays that the script reads from a file, if there are any."""
    if not arrays:
        return
    np.savez(folder / ARRAYS, **dict(arrays))  # type: ignore[arg-type]
