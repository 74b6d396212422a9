"""What is done differently in a capture because of what stopped the captures before it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from opbridge.capture.assuming import Assumptions
from opbridge.capture.constants import Constants, UnknownContentsError
from opbridge.capture.control_flow.conversion import OF_DATA, Conversions, converting
from opbridge.capture.control_flow.state import Notes
from opbridge.capture.export import Example
from opbridge.capture.failures import CaptureFailure
from opbridge.findings import capture_failed, model_fails
from opbridge.torch_graph.cached_functions import calling_without_caches, hashed_size
from opbridge.torch_graph.compiler_flags import CompilerFlags
from opbridge.torch_graph.gradients import needs_gradients, tracing_gradients
from opbridge.torch_graph.library_checks import lines_of_error, lines_to_leave_out, without_checks
from opbridge.torch_graph.numpy_functions import dynamic_numpy, needs_numpy
from opbridge.torch_graph.python_sizes import converts, dynamic_conversions, tests_for_numbers
from opbridge.torch_graph.sources import SourceLine, frames_outside_torch

__all__ = ["Changes", "with_changes"]

_Result = TypeVar("_Result")
_MOST_EXAMPLES = 4


@dataclasses.dataclass
class Changes:
    """The equivalents that are used in a capture.

    Attributes:
        files: The files in which ``float()`` and ``int()`` keep sizes dynamic, and dynamic sizes are such numbers.
        numpy: Whether NumPy's functions keep sizes dynamic.
        uncached: Why functions with a cache are called without it for dynamic sizes; None if they are not.
        checks: The lines of the checks that are left out.
        known: Whether Python may read what is computed from weights and numbers alone; None if it must not, because
            the model changes what it has read.
        gradients: Whether the model is traced below autograd, because it computes gradients.
        flags: Whether the model asks whether it is compiled, and what it is told.
        conversions: The functions whose control flow is converted.
        example: Example inputs with other sizes, if those of the user are a special case.
        special: The failures with the examples before.
        assumes: Whether something is assumed, as it is in the example.
    """

    files: set[str] = dataclasses.field(default_factory=set)
    numpy: bool = False
    uncached: CaptureFailure | None = None
    checks: set[SourceLine] = dataclasses.field(default_factory=set)
    known: bool | None = False
    gradients: bool = False
    flags: CompilerFlags = dataclasses.field(default_factory=CompilerFlags)
    conversions: Conversions = dataclasses.field(default_factory=Conversions)
    example: Example | None = None
    special: list[CaptureFailure] = dataclasses.field(default_factory=list)
    assumes: bool = False

    @contextlib.contextmanager
    def made(self, module: torch.nn.Module, constants: Constants) -> Iterator[Notes]:
        """Use the equivalents inside the block.

        Yields:
            What the statements of converted functions become.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(dynamic_conversions(self.files))
            stack.enter_context(without_checks(self.checks))
            notes = stack.enter_context(converting(self.conversions))
            if self.known:
                stack.enter_context(constants.answering())
            stack.enter_context(dynamic_numpy(self.numpy))
            stack.enter_context(calling_without_caches(self.uncached is not None))
            if self.gradients:
                stack.enter_context(tracing_gradients(module))
            stack.enter_context(self.flags.answered())
            yield notes

    def take_other_example(self, failure: CaptureFailure) -> bool:
        """Capture with another example, if it may have been the example that stopped the capture."""
        if failure.other_example is None or self.assumes or len(self.special) == _MOST_EXAMPLES:
            return False
        self.example = failure.other_example
        self.special.append(failure)
        return True


def with_changes(attempt: Callable[[Changes], _Result], assumptions: Assumptions | None) -> tuple[_Result, Changes]:
    """Capture; if lines stop it that have an equivalent, again with those.

    What remains is assumed to be as for the example inputs, if the user allows assumptions.
    """
    changes = Changes()
    while True:
        try:
            return attempt(changes), changes
        except UnknownContentsError:
            if changes.known is not False:
                raise
            changes.known = True
            continue
        except CaptureFailure as failure:
            if failure.finding.code == model_fails.CODE and changes.example is None:
                raise
            lines = [*failure.lines, *lines_of_error(failure.__cause__)]
            files = {line.file for line in lines if converts(line)} - changes.files
            changes.files |= {line.file for line in failure.others if converts(line)} - files
            checks = lines_to_leave_out(failure.__cause__, failure.lines) - changes.checks
            if files:
                changes.files |= files
            elif not changes.numpy and needs_numpy(failure.__cause__, lines):
                changes.numpy = True
            elif changes.uncached is None and hashed_size(failure.__cause__) is not None:
                changes.uncached = failure
            elif checks:
                changes.checks |= checks
            elif changes.known is False and _may_be_known(failure) and not changes.conversions.on_sizes:
                changes.known = True
            elif not changes.gradients and needs_gradients(failure.__cause__):
                changes.gradients = True
            elif typed := _files_with_types(failure) - changes.files:
                changes.files |= typed
            elif changes.conversions.extend(failure, can_go_on=assumptions is not None):
                pass
            elif changes.flags.asked and not changes.flags.as_eager:
                changes.flags.as_eager = True
            elif not changes.take_other_example(failure):
                first = changes.special[0] if changes.special else failure
                cause = changes.conversions.without_sizes(first)
                if cause is not first and changes.take_other_example(cause):
                    changes.conversions.try_again()
                    continue
                if changes.special:
                    changes.conversions.refusal = None  # It is about another example than the user's.
                changes.example, changes.assumes = None, True
                changes.special.clear()
                if changes.uncached is not None and cause.finding.code == capture_failed.CODE:
                    cause = changes.uncached  # The function with the cache needs a number too.
                if assumptions is None or not assumptions.extend(cause):
                    raise (changes.conversions.refusal or cause) from cause.__cause__


def _files_with_types(failure: CaptureFailure) -> set[str]:
    """The files of the functions that led to an error of the model, and that treat numbers apart from other types."""
    if failure.finding.code != capture_failed.CODE or failure.__cause__ is None:
        return set()
    return {line.file for line in frames_outside_torch(failure.__cause__) if tests_for_numbers(line)}


def _may_be_known(failure: CaptureFailure) -> bool:
    """Whether Python may know what stopped a capture from weights and numbers alone."""
    return not failure.lines or failure.finding.code in OF_DATA
