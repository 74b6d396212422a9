"""A dimension that is declared dynamic cannot vary as declared.

What it means: ``dynamic_shapes`` declares that a size varies, but the model supports only one value or part of the
range: it combines the tensor with a constant of that size, reshapes to a fixed size, or branches on the size.

Why it is a problem: the ONNX model would be wrong for the other sizes.

Example::

    def forward(self, x):
        return x + self.position        # position has 3 rows
    torch.export.Dim("n")               # for dimension 0 of x

Fix: declare what torch derives from the model, such as ``n = 2*_n``; or leave the dimension out; or correct the model.
An example input of size 0 or 1 makes a dimension constant: use a size of at least 2.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from opbridge.findings.base import Failure, Finding, described_place, if_always, shortened, source_names
from opbridge.torch_graph.sources import FixedSize, innermost

CODE = "dynamic-dimension"

_SIZE = r"(?:L|inputs)(?P<path>\[[^\]]+\](?:\[[^\]]+\])*)\.(?:size\(\)|shape)\[(?P<dimension>\d+)\]"
_CONSTANT = re.compile(
    r"You marked (?P<marked>\S+) as dynamic but your code specialized it to be a constant \((?P<size>\d+)\)"
    r"|(?:inferred a static shape of|specialized due to hint of) (?P<size2>\d+) for dimension (?P<marked2>\S+?)\.?\s*$",
    re.MULTILINE,
)
_UNEQUAL = re.compile(r"(\S+) = (\d+) is not equal to (\S+) = (\d+)")
_RANGE = re.compile(r"(\d+) not in range \[([^,]+), ([^\]]+)\]")
_SINGLE = re.compile(r"Cannot create Dim with inconsistent min=\d+, max=\d+")
_GUARD = re.compile(r"satisfy the generated guard (?P<guard>.+?)\.?$", re.MULTILINE)


def explain(failure: Failure) -> Finding | None:
    """Recognized by the error's class or type attribute; sizes and suggestions are read from its message."""
    violated = getattr(getattr(failure.error, "error_type", None), "name", "") == "CONSTRAINT_VIOLATION"
    conflicts = "conflicts between user-specified ranges and inferred ranges" in failure.text
    single = _SINGLE.search(failure.text)
    if not (violated or conflicts or single or failure.caught("ConstraintViolationError")):
        return None
    for make in (_constant, _unequal, _outside, _guarded, _single):
        found = make(failure)
        if found is not None:
            return found
    message = f"dynamic_shapes does not match the model: {shortened(failure.text.splitlines()[0], 160)}"
    return failure.finding(CODE, "dynamic_shapes", message, "declare only sizes that can vary in the model.")


def _constant(failure: Failure) -> Finding | None:
    matches = [(m["marked"] or m["marked2"], int(m["size"] or m["size2"])) for m in _CONSTANT.finditer(failure.text)]
    if not matches:
        return None
    size = matches[0][1]
    names = list(dict.fromkeys(_describe(failure, marked) for marked, _ in matches))
    what = "; ".join(names)
    if size < 2:
        return failure.finding(
            CODE,
            names[0],
            f"Declared dynamic, but {size} in the example input: {what}. Torch treats a size of 0 or 1 as a constant.",
            "use an example input in which that size is 2 or more.",
        )
    fixed = _fixed(failure, [marked for marked, _ in matches], size)
    frames = fixed.frames if fixed is not None else ()
    place, source = innermost(frames, libraries=True), innermost(frames)
    found = failure.finding(
        CODE,
        names[0],
        f"Declared dynamic, but the model supports only size {size}: {what}."
        + (f" It is fixed{described_place(place, source)}: {place.text}" if place is not None else ""),
        f"leave the dimension out of dynamic_shapes if it is always {size}; otherwise remove what fixes it: a constant "
        f"or an input of that size, a reshape to {size}, or a Python loop over the dimension.",
    )
    return found if source is None else dataclasses.replace(found, sources=source_names(source))


def _fixed(failure: Failure, marked: Sequence[str], size: int) -> FixedSize | None:
    """The event that specialized one of these dimensions; a named dimension is matched by its size."""
    of_size = [fixed for fixed in failure.fixed_sizes if fixed.size == size and fixed.frames]
    named = [fixed for fixed in of_size if set(fixed.dimensions) & set(marked)]
    return next(iter([*named, *of_size]), None)


def _unequal(failure: Failure) -> Finding | None:
    match = _UNEQUAL.search(failure.text)
    if match is None:
        return None
    one, two = (_describe(failure, match[group]) for group in (1, 3))
    return failure.finding(
        CODE,
        one,
        f"Two different sizes have one name: {one} is {match[2]} in the example inputs, {two} is {match[4]}.",
        "give the two dimensions different names, or use example inputs in which they are equal.",
    )


def _outside(failure: Failure) -> Finding | None:
    match = _RANGE.search(failure.text)
    if match is None:
        return None
    size, low = int(match[1]), match[2]
    high = "any size" if "oo" in match[3] else match[3]
    culprits = [
        text for text, actual, limits in _dimensions(failure) if actual == size and not limits[0] <= size <= limits[1]
    ]
    what = culprits[0] if culprits else "a dynamic dimension"
    return failure.finding(
        CODE,
        what,
        f"{what[:1].upper()}{what[1:]} is {size} in the example inputs, outside its declared range {low} to {high}.",
        "widen the min and max of its torch.export.Dim, or use an example input within the range (2 or more).",
    )


def _single(failure: Failure) -> Finding | None:
    if _SINGLE.search(failure.text) is None:
        return None
    return failure.finding(
        CODE,
        "dynamic_shapes",
        "The conditions on sizes in the model, together, hold for a single size of a dynamic dimension.",
        "leave that dimension out of dynamic_shapes, or replace the conditions by arithmetic on the size.",
    )


def _guarded(failure: Failure) -> Finding | None:
    match = _GUARD.search(failure.text)
    if match is None:
        return None
    suggested = failure.text.partition("Suggested fixes:")[2].strip().splitlines()
    lines = [line.strip().replace(", max=oo", "") for line in suggested if re.match(r"\s*\w+ = ", line)]
    limited = re.sub(r" and \S+ <= IntInfinity\(\)", "", match["guard"])
    guard = re.sub(_SIZE, lambda m: _size_name(m["path"], m["dimension"]), limited)
    names = re.search(r"Constraints violated \(([^)]*)\)", failure.text)
    name = names[1].split(", ")[0] if names else "dynamic_shapes"
    described = _describe(failure, name)
    code = "; ".join(line.replace("Dim(", "torch.export.Dim(") for line in lines)
    return failure.finding(
        CODE,
        described,
        f"The model does not support every size declared for {described}: it needs {shortened(guard)}.",
        f"declare this in dynamic_shapes: {code}." if code else _without_it(failure, name),
    )


def _without_it(failure: Failure, name: str) -> str:
    """What to do if torch suggests no declaration: in the declared range it can't prove what it needs."""
    sizes = {size for _, size, limits in _dimensions(failure) if limits[2] == name}
    return (
        f"leave the dimension out of dynamic_shapes {if_always(sizes)}; otherwise compute with the size in "
        "a way that shows that the compared sizes are equal."
    )


def axes_in(text: str) -> list[str]:
    """The axes in a message of torch, in the notation ``L['x'].size()[0]``."""
    return [f"L{match['path']}.size()[{match['dimension']}]" for match in re.finditer(_SIZE, text)]


def _describe(failure: Failure, marked: str) -> str:
    match = re.fullmatch(_SIZE, marked.strip())
    if match:
        return f"dimension {match['dimension']} of {_input_name(match['path'])}"
    places = [text for text, _, limits in _dimensions(failure) if limits[2] == marked]
    return f"{', '.join(places)} ({marked})" if places else f"the dimension {marked!r}"


def _input_name(path: str) -> str:
    first, _, rest = path.partition("]")
    return first.strip("['\"") + rest


def _size_name(path: str, dimension: str) -> str:
    return f"{_input_name(path)}.shape[{dimension}]"


def _dimensions(failure: Failure) -> list[tuple[str, int, tuple[int, int, str]]]:
    """Each declared dimension: a description, its size in the example, and its declared minimum, maximum and name."""
    found = []
    for place in failure.places():
        if not place.is_number and isinstance(place.axis, int) and place.axis < place.value.dim():
            found.append((str(place), place.size, _limits(place.declaration)))
    return found


def _limits(declared: Any) -> tuple[int, int, str]:
    low, high = getattr(declared, "min", None), getattr(declared, "max", None)
    return (
        max(2, low) if isinstance(low, int) else 2,
        high if isinstance(high, int) else 2**63,
        str(getattr(declared, "__name__", "")),
    )
