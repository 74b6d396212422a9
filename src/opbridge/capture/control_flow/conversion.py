"""Decides which functions are converted, and swaps their code while a model is captured."""

from __future__ import annotations

import ast
import contextlib
import copy
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from opbridge.capture.control_flow import flow  # noqa: F401 - converted code imports it while builtins are replaced
from opbridge.capture.control_flow.conditions import on_sizes
from opbridge.capture.control_flow.exits import PREFIX, as_branch
from opbridge.capture.control_flow.expressions import reason_not_to_convert
from opbridge.capture.control_flow.list_passing import passing_lists
from opbridge.capture.control_flow.list_uses import ListUsed
from opbridge.capture.control_flow.lookups import forgetting_keys
from opbridge.capture.control_flow.names import OF_ITEMS, PARTS, compares_in, is_rewritten, looks_up, repeats_list
from opbridge.capture.control_flow.rows import Rows
from opbridge.capture.control_flow.searches import with_searches
from opbridge.capture.control_flow.site import Disagreement, Function, Site, Unconverted, unconverted
from opbridge.capture.control_flow.state import Notes, noting
from opbridge.capture.control_flow.transform import converted
from opbridge.capture.control_flow.unconverted_len import counting_rows
from opbridge.capture.failures import CaptureFailure
from opbridge.findings import (
    data_dependent_guard,
    data_dependent_operator,
    data_dependent_value,
    dynamic_dimension,
    restricted_dimension,
    unconverted_control_flow,
)
from opbridge.torch_graph.cached_functions import hashed_size
from opbridge.torch_graph.code_swap import functions_of, renamed, swapped
from opbridge.torch_graph.sources import SourceLine, frames_outside_torch, source_of_node
from opbridge.torch_graph.statements import condition_at, enclosing_function, parsed_file

__all__ = ["OF_DATA", "Conversions", "converting", "refuse_returned_list"]

OF_DATA = (data_dependent_guard.CODE, data_dependent_operator.CODE, data_dependent_value.CODE)
"""The findings of a capture that needs the value of a tensor."""

_MOST_ENDS = 3
"""Each doubles what follows it."""

_OF_SIZES = (dynamic_dimension.CODE, restricted_dimension.CODE)
_LONGEST_MESSAGE = 500
"""Sizes that come from a converted branch are long expressions, and so are the conditions on them."""


class Conversions:
    """The functions that are converted in one capture, which is repeated with one more after each failure.

    Attributes:
        functions: The functions.
        ends: The ``if`` statements whose branches contain the rest of their functions.
        above: By ``if`` statement, the functions above the one that it is in. The last runs once for each outcome; the
            results of the others differ in form.
        on_sizes: Whether a condition on the sizes of inputs becomes a part of the program too.
        refusal: Why a function can't be converted, if there is one.
        left: The functions that are not converted, because the capture failed with their conversion.
    """

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.ends: list[Site] = []
        self.above: dict[Site, list[Function]] = {}
        self.on_sizes = False
        self._before_sizes: list[Function] = []
        self.refusal: Unconverted | None = None
        self.left: list[Function] = []
        self._reached: list[Function] = []
        self._disagreements: dict[Function, Disagreement] = {}
        self._restriction: CaptureFailure | None = None

    def extend(self, failure: CaptureFailure, *, can_go_on: bool) -> bool:
        """Convert the function whose control flow stopped the capture, or all those that restrict a size.

        Args:
            failure: Why the capture failed.
            can_go_on: Whether to go on without a function that can't be converted.

        Returns:
            Whether to capture again: not if its control flow was not the cause, or if it is converted already.
        """
        if isinstance(failure, Disagreement) and (self._end_at(failure) or self._decide_above(failure)):
            return True
        if isinstance(failure, Unconverted):
            is_optional = can_go_on or _function_of(failure.site) in self._reached
            return self._leave(failure) and is_optional
        of_sizes = _is_on_sizes(failure)
        extended = False
        for frame in _frames(failure):
            node = enclosing_function(frame)
            if node is None or not (of_sizes or _is_rewritten(frame) or _uses_converted(failure)):
                continue
            function = Function(frame.file, node.lineno)
            if function in self.left:
                return extended
            if function not in self.functions or (of_sizes and not self.on_sizes):
                reason = reason_not_to_convert(node)
                if reason is not None:
                    self.left.append(function)
                    self.refusal = unconverted(Site(frame.file, frame.line), reason, _FIX)
                    return extended
                self._add(function, failure if of_sizes else None)
                if isinstance(failure, ListUsed) and failure.place is not None:
                    self._reached.append(function)
                extended = True
                if not of_sizes:
                    return True
        return extended or (can_go_on and self._leave_all())

    def _add(self, function: Function, restriction: CaptureFailure | None) -> None:
        if restriction is not None and not self.on_sizes:
            self._before_sizes = list(self.functions)
        if restriction is not None:
            self.on_sizes = True
            self._restriction = restriction if _is_readable(restriction) else self._restriction or restriction
        if function not in self.functions:
            self.functions.append(function)

    def without_sizes(self, failure: CaptureFailure) -> CaptureFailure:
        """Go on without the functions that were converted because of conditions on sizes.

        Args:
            failure: Why the last capture failed.

        Returns:
            The failure to report: the last readable condition on sizes, if something else failed since.
        """
        if self._restriction is None:
            return failure
        self.left += [function for function in self.functions if function not in self._before_sizes]
        self.functions, self.on_sizes, self.refusal = self._before_sizes, False, None
        restriction, self._restriction = self._restriction, None
        if failure.finding.code in _OF_SIZES and _is_readable(failure):
            return failure
        restriction.details = f"{restriction.details}\nWith this condition as a branch of the model: {failure.message}"
        return restriction

    def try_again(self) -> None:
        """Convert what could not be converted, because the capture has other example inputs now.

        torch traces both branches with the sizes of the example, and may refuse the one that these do not take.
        """
        self.left.clear()

    def _end_at(self, failure: Disagreement) -> bool:
        """Move the rest of a function into both branches of the statement that leaves a variable in different forms."""
        site = failure.site
        node = enclosing_function(SourceLine(site.file, site.line))
        if node is None:
            return False
        self._disagreements.setdefault(Function(site.file, node.lineno), failure)
        body = with_searches(copy.deepcopy(node.body))
        followed = [one.lineno for one in body[:-1] if as_branch(one) is not None]
        if site.line not in followed or site in self.ends or len(self.ends) == _MOST_ENDS:
            return False
        self.ends.append(site)
        return True

    def _decide_above(self, failure: Disagreement) -> bool:
        """Run the function above that whose results differ in form once for each outcome of the ``if``."""
        site = failure.site
        if not _chooses(site):
            return False
        below = self.above.get(site, [])
        nodes = [(frame.file, node) for frame in _frames_of(failure) if (node := enclosing_function(frame)) is not None]
        functions = [Function(file, node.lineno) for file, node in nodes]
        known = [*below, functions[0]] if functions else []
        above = max((index for index, one in enumerate(functions) if one in known), default=-1) + 1
        if not 0 < above < len(functions) or reason_not_to_convert(nodes[above][1]) is not None:
            return False
        self.above[site] = [*below, functions[above]]
        if functions[above] not in self.functions:
            self.functions.append(functions[above])
        return True

    def _leave(self, refusal: Unconverted) -> bool:
        self.refusal = refusal
        function = _function_of(refusal.site)
        if function is None or function not in self.functions:
            return False
        if isinstance(refusal, Disagreement):
            self.refusal = self._disagreements.get(function, refusal)
        self.functions.remove(function)
        self.left.append(function)
        return True

    def _leave_all(self) -> bool:
        """Go on without converted functions, because something else stops the capture with them."""
        self.left += self.functions
        changed, self.functions = bool(self.functions), []
        return changed


_NUMBERS = ("", "for", "*", "numel", "parts")
"""What :func:`_keyword` returns where no branch depends on the number."""

_FIX = "write it as a function that returns tensors."


def _function_of(site: Site) -> Function | None:
    node = enclosing_function(SourceLine(site.file, site.line))
    return Function(site.file, node.lineno) if node is not None else None


def _chooses(site: Site) -> bool:
    """Whether the statement at a place is an ``if``, or contains a conditional expression."""
    tree = parsed_file(site.file)
    nodes = ast.walk(tree) if tree is not None else ()
    return any(isinstance(node, (ast.If, ast.IfExp)) and node.lineno == site.line for node in nodes)


def _frames_of(failure: Disagreement) -> list[SourceLine]:
    """The lines that led to a statement, innermost first; the first is in its function."""
    site = failure.site
    return [SourceLine(site.file, site.line), *reversed(frames_outside_torch(failure))]


def _frames(failure: CaptureFailure) -> list[SourceLine]:
    """The lines whose functions may have stopped the capture, innermost first."""
    if isinstance(failure, ListUsed) and failure.place is not None:
        return [failure.place]
    if isinstance(failure, ListUsed):
        return list(frames_outside_torch(failure)[-1:])
    if failure.__cause__ is not None and _uses_converted(failure):
        return list(frames_outside_torch(failure.__cause__)[-1:])
    if failure.__cause__ is not None and hashed_size(failure.__cause__) is not None:
        return list(frames_outside_torch(failure.__cause__)[-1:])
    if failure.finding.code in OF_DATA and failure.__cause__ is not None:
        return list(reversed(frames_outside_torch(failure.__cause__)))
    if failure.finding.code not in _OF_SIZES:
        return []
    return [line for line in failure.lines if _keyword(line)]


def _uses_converted(failure: CaptureFailure) -> bool:
    """Whether code that was not converted uses a list of a dynamic length, or gives torch a condition as an option."""
    cause = failure.__cause__
    return isinstance(failure, ListUsed) or (isinstance(cause, TypeError) and "SymBool" in str(cause))


def _is_rewritten(frame: SourceLine) -> bool:
    """Whether the statement on this line contains something that a conversion rewrites."""
    tree = parsed_file(frame.file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.stmt, ast.expr)) and node.lineno <= frame.line <= (node.end_lineno or node.lineno):
            first = getattr(node, "body", [])[0].lineno if _is_compound(node) else frame.line + 1
            is_header = frame.line < first or frame.line == node.lineno  # `if use: x = 2 * x` is one line.
            if is_header and is_rewritten(node):
                return True
    return False


def _is_compound(node: ast.AST) -> bool:
    return isinstance(getattr(node, "body", None), list)


def _is_on_sizes(failure: CaptureFailure) -> bool:
    """Whether a condition on sizes stopped the capture, and not a number of iterations or of elements."""
    if hashed_size(failure.__cause__) is not None:
        return True
    return failure.finding.code in _OF_SIZES and any(_keyword(line) not in _NUMBERS for line in failure.lines)


def _is_readable(failure: CaptureFailure) -> bool:
    return len(failure.message) <= _LONGEST_MESSAGE


def _compares_several(node: ast.Compare) -> bool:
    """Whether Python may decide comparisons one by one, as in ``a < b < c``, ``(a, b) == (c, d)`` and ``a in b``."""
    return len(node.ops) > 1 or isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.In, ast.NotIn))


def _keyword(line: SourceLine) -> str:
    """What needs a number on a line; empty if nothing does.

    It is "if", "for", "and", "*" of a list, "numel", "option" of a call, "parts", or "[]" for an index or a key.
    """
    condition = condition_at(line)
    tree = parsed_file(line.file)
    if condition is not None or tree is None:
        return "" if condition is None else condition.keyword
    keyword = ""
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node.lineno <= line.line <= (node.end_lineno or node.lineno):
            if isinstance(node, ast.BoolOp) or (isinstance(node, ast.Compare) and _compares_several(node)):
                return "and"
            if repeats_list(node):
                return "*"
            if isinstance(node, ast.Starred) and isinstance(node.ctx, ast.Store):
                return "parts"
            if isinstance(node, ast.Attribute) and node.attr == "numel":
                return "numel"
            if isinstance(node, ast.Call) and compares_in(node):
                return "option"
            function = node.func if isinstance(node, ast.Call) else None
            name = getattr(function, "id", None) or getattr(function, "attr", None)
            if name in PARTS or name == "range":
                return "parts"
            keyword = "[]" if looks_up(node) else keyword or ("parts" if name in OF_ITEMS else "")
    return keyword


@contextlib.contextmanager
def converting(conversions: Conversions) -> Iterator[Notes]:
    """Run the functions as converted code inside the block.

    Yields:
        What their statements become.
    """
    replaced: dict[tuple[str, str, int], types.CodeType] = {}
    for file in {function.file for function in conversions.functions}:
        lines = {function.line for function in conversions.functions if function.file == file}
        ends = {site.line for site in conversions.ends if site.file == file}
        below: dict[int, list[tuple[str, int, bool]]] = {line: [] for line in lines}
        for site, (*_, above) in conversions.above.items():
            if above.file == file and above.line in below:
                below[above.line].append((site.file, site.line, site.in_try))
        replaced.update({(file, *key): code for key, code in _converted_codes(file, lines, ends, below).items()})
    lengths = counting_rows() if replaced else contextlib.nullcontext()
    passing = passing_lists({*conversions.functions, *conversions.left})
    with noting() as notes, swapped(replaced), on_sizes(conversions.on_sizes), lengths, forgetting_keys(), passing:
        yield notes


def _converted_codes(
    file: str, lines: Collection[int], ends: Collection[int], below: Mapping[int, Collection[tuple[str, int, bool]]]
) -> dict[tuple[str, int], types.CodeType]:
    before, after = parsed_file(file), parsed_file(file)
    if before is None or after is None:
        return {}
    functions = [node for node in ast.walk(after) if isinstance(node, ast.FunctionDef) and node.lineno in lines]
    for function in functions:
        converted(function, file, ends, below[function.lineno])
    ast.fix_missing_locations(after)
    # A statement of a function is in the function, for tracebacks and for the source lines of nodes.
    return {key: renamed(code, PREFIX, code.co_name) for key, code in functions_of(before, after, file).items()}


def refuse_returned_list(program: torch.export.ExportedProgram) -> None:
    """Raise an error if a program returns a list whose length is known only at run time."""
    output = program.graph.output_node().args[0]
    position = _position_of_rows(program.call_spec.out_spec)
    if position is None or not isinstance(output, tuple):
        return
    node = output[len(output) - program.call_spec.out_spec.num_leaves + position]
    line = source_of_node(node)
    raise CaptureFailure(unconverted_control_flow.returned_list(str(line or "")), details="")


def _position_of_rows(spec: Any) -> int | None:
    """The position of the first result that is in a list with rows."""
    position = 0
    for child in [] if spec.type is Rows else spec.children():
        found = _position_of_rows(child)
        if found is not None:
            return position + found
        position += child.num_leaves
    return 0 if spec.type is Rows else None
