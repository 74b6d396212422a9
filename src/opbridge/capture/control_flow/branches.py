"""``if`` on a value that is known only at run time: both branches are traced, and become one ``torch.cond``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from opbridge.capture.control_flow.attributes import Attributes
from opbridge.capture.control_flow.conditions import as_tensor, both, condition, opposite
from opbridge.capture.control_flow.exits import PREFIX
from opbridge.capture.control_flow.operands import Operands
from opbridge.capture.control_flow.outcomes import decided, deciding, next_undecided
from opbridge.capture.control_flow.site import Site, refuse
from opbridge.capture.control_flow.state import State, note_operator
from opbridge.capture.control_flow.values import UNDEFINED, Agreement, Contents, Output, as_scalar, leaves_of, refill
from opbridge.torch_graph.largest_sizes import note_ranges
from opbridge.torch_graph.size_branches import (
    guards_of_one_path,
    is_computable,
    reshape_result,
    same_size,
    selected_number,
    state_equal_sizes,
    state_sizes,
)
from opbridge.torch_graph.subgraphs import Subgraph, facts_of_one_path, run_subgraph, symbols_tracked, trace_subgraph

__all__ = ["all_of", "any_of", "for_each_outcome", "if_", "if_expression", "not_", "with_conditions"]

Action = Callable[[], Any]

_PLAIN = (bool, int, float)
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def if_(test: Any, body: Action, orelse: Action, state: State, site: Site) -> None:
    """An ``if`` statement."""
    truth = decided(condition(test), site)
    if isinstance(truth, bool):
        (body if truth else orelse)()
        return
    try:
        _branch(truth, body, orelse, state, site)
    except RuntimeError:
        # PyTorch fails in one branch. If the condition is on sizes, the program is checked at others later.
        if not isinstance(truth, torch.SymBool) or free_unbacked_symbols(truth):
            raise
        (body if truth else orelse)()


@dataclasses.dataclass(frozen=True)
class _Path:
    """One traced branch.

    Attributes:
        subgraph: Its graph, which returns the values of ``results``.
        after: The values of the variables after it.
        contents: The contents of each container after it.
        results: The position of each computed value, by identity.
    """

    subgraph: Subgraph
    after: Sequence[Any]
    contents: Sequence[Any]
    results: dict[int, int]

    def resolve(self, value: Any, results: Sequence[Any], operands: Callable[[Any], Any]) -> Any:
        """A value after this branch, inside the graph of the branch."""
        if id(value) in self.results:
            return results[self.results[id(value)]]
        for position, tensor in enumerate(self.subgraph.mutated):
            if value is tensor:
                return results[len(self.results) + position]
        return operands(value) if isinstance(value, (Tensor, *_SYMBOLS)) else value


def _traced(action: Action, state: State, before: Sequence[Any], contents: Contents) -> _Path:
    known = {id(leaf) for leaf in leaves_of([list(before), contents.now()])}
    found: dict[str, Any] = {}
    positions: dict[int, int] = {}
    outside = symbols_tracked()

    def run() -> list[Any]:
        action()
        found.update(after=state.get(), contents=contents.now())
        computed: list[Any] = []
        for leaf in leaves_of([list(found["after"]), found["contents"]]):
            if isinstance(leaf, (Tensor, *_SYMBOLS)) and id(leaf) not in known and id(leaf) not in positions:
                positions[id(leaf)] = len(computed)
                computed.append(leaf)
        note_ranges(computed, outside)
        return computed

    try:
        subgraph = trace_subgraph(run)
    finally:
        contents.restore()
        state.set(before)
    return _Path(subgraph, found["after"], found["contents"], positions)


def _branch(truth: Any, body: Action, orelse: Action, state: State, site: Site) -> None:
    before, attributes = state.get(), Attributes(state)
    contents = Contents([*before, *state.held()], [*state.names, *state.touched])
    paths = []
    for action in (body, orelse):
        with guards_of_one_path(truth, action is body):
            paths.append(_traced(action, state, before, contents))
        with_attributes = attributes.added_to(state, None)
        if with_attributes is not None:
            _branch(truth, body, orelse, with_attributes, site)
            return
    agreement = Agreement(site, ("one branch", "the other"), _choice_of_functions(truth, site))
    made = [
        # Code that reads one nevertheless gets Python's error for an unassigned variable.
        agreement.value(name, *((UNDEFINED, UNDEFINED) if name in state.dead else values))
        for name, *values in zip(state.names, paths[0].after, paths[1].after, strict=True)
    ]
    refilled = [
        agreement.value(*values) for values in zip(contents.names, paths[0].contents, paths[1].contents, strict=True)
    ]
    mutated = list({id(tensor): tensor for path in paths for tensor in path.subgraph.mutated}.values())
    chosen = [_chosen(truth, *output.values) for output in agreement.outputs]
    outputs = [output for output, number in zip(agreement.outputs, chosen, strict=True) if number is None]
    if len(outputs) < len(chosen):
        note_operator("Where", site)
    if mutated or not all(_is_simple(path, output, side) for output in outputs for side, path in enumerate(paths)):
        computed = iter(_cond(truth, paths, outputs, mutated, site))
    else:
        computed = iter(_selected(truth, outputs, site))
    results = [next(computed) if number is None else number for number in chosen] + list(computed)
    for container, make in zip(contents.containers, refilled, strict=True):
        refill(container, make(results))
    for tensor, result in zip(mutated, results[len(agreement.outputs) :], strict=True):
        tensor.copy_(result)
    state.set([make(results) for make in made])


def _chosen(truth: Any, a: Any, b: Any) -> Any:
    """A number that each branch has, without a branch; None if that is not possible."""
    return selected_number(truth, a, b) if is_computable(a) and is_computable(b) else None


def _choice_of_functions(truth: Any, site: Site) -> Callable[[Any, Any], Any]:
    """Makes one function of two: a call of it is a branch."""

    def choose(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
        def chosen(*args: Any, **kwargs: Any) -> Any:
            return if_expression(truth, lambda: first(*args, **kwargs), lambda: second(*args, **kwargs), site)

        return chosen

    return choose


def _cond(
    truth: Any, paths: Sequence[_Path], outputs: Sequence[Output], mutated: Sequence[Tensor], site: Site
) -> Sequence[Any]:
    outputs = [
        dataclasses.replace(output, values=tuple(map(_from_outside, output.values, paths, (output, output))))
        for output in outputs
    ]
    operands = Operands()
    for side, path in enumerate(paths):
        operands.add(*path.subgraph.inputs, *mutated)
        for output in outputs:
            value = output.values[side]
            if isinstance(value, Tensor) and id(value) not in path.results:
                operands.add(value)
            operands.add_sizes(output.shape or ())
            if isinstance(value, _SYMBOLS) and id(value) not in path.results:
                operands.add_sizes((value,))

    def function(side: int) -> Callable[..., tuple[Tensor, ...]]:
        path = paths[side]

        def run(*values: Any) -> tuple[Tensor, ...]:
            given = operands.lookup(values)
            with facts_of_one_path(), guards_of_one_path(truth, side == 0):
                results = run_subgraph(path.subgraph.module, *map(given, path.subgraph.inputs))
                made = [output.computed(path.resolve(output.values[side], results, given)) for output in outputs]
                made = [one.flatten() if sizes else one for one, sizes in zip(made, reshaped, strict=True)]
                copies = [path.resolve(tensor, results, given).clone() for tensor in mutated]
            return (*made, *copies)

        return run

    if operands.share(mutated):
        refuse(
            site,
            "a branch changes a tensor in place and also uses a view of it",
            "let the branch return a new tensor.",
        )
    note_operator("If", site)
    reshaped = [_sizes_beside_an_empty_tensor(truth, output) for output in outputs]
    # torch compares the strides of the two results, which are contiguous.
    with facts_of_one_path(), guards_of_one_path(truth, None):
        results: list[Any] = list(torch.ops.higher_order.cond(truth, function(0), function(1), operands.values()))
    results[: len(outputs)] = [
        reshape_result(result, sizes) if sizes else result for result, sizes in zip(results, reshaped, strict=False)
    ]
    tensors = [
        (result, output.values)
        for output, result in zip(outputs, results, strict=False)
        if all(isinstance(value, Tensor) for value in output.values)
    ]
    for result, values in tensors:
        state_sizes(truth, result, *values)
    state_equal_sizes([result for result, _ in tensors], [values for _, values in tensors])
    return results


def _from_outside(value: Any, path: _Path, output: Output) -> Any:
    """A value of a branch; a float or bool of the program outside, which torch passes to no branch, as a tensor."""
    is_outside = isinstance(value, (torch.SymFloat, torch.SymBool)) and id(value) not in path.results
    return as_scalar(value, output.dtype, output.device) if is_outside else value


def _sizes_beside_an_empty_tensor(truth: Any, output: Output) -> list[Any] | None:
    """The sizes of a result that has, on one path, no elements or a size of 1; None if torch can merge the two tensors.

    torch would compare the strides of the two, and those of such a tensor are not products of its sizes.
    """
    first, second = output.values
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)) or first.dim() < 2:
        return None
    pairs = [(a, b) for a, b in zip(first.shape, second.shape, strict=True) if not same_size(a, b)]
    if not any(isinstance(size, int) and size < 2 for pair in pairs for size in pair):
        return None
    sizes = [
        a if same_size(a, b) else selected_number(truth, a, b) for a, b in zip(first.shape, second.shape, strict=True)
    ]
    return None if any(size is None for size in sizes) else sizes


def _is_simple(path: _Path, output: Output, side: int) -> bool:
    """Whether a branch has a number in this place that it does not compute."""
    value = output.values[side]
    return isinstance(value, _PLAIN) or (
        isinstance(value, Tensor) and not value.dim() and id(value) not in path.results
    )


def _selected(truth: Any, outputs: Sequence[Output], site: Site) -> Sequence[Tensor]:
    """The results of branches that compute nothing."""
    if outputs:
        note_operator("Where", site)
    return [_choice(as_tensor(truth), output) for output in outputs]


def _choice(truth: Tensor, output: Output) -> Tensor:
    first, second = output.values
    if first is True and second is False:
        return truth.clone()
    if first is False and second is True:
        return truth.logical_not()
    first, second = (output.computed(value).reshape(output.shape or ()) for value in output.values)
    return torch.where(truth, first, second)


class _Result:
    """The variable of an expression."""

    def __init__(self, name: str, held: Mapping[str, Any] | None = None) -> None:
        self.value: Any = UNDEFINED
        held = held or {}
        self.state = State((name,), lambda: (self.value,), self._set, tuple(held), lambda: tuple(held.values()))

    def _set(self, values: Sequence[Any]) -> None:
        (self.value,) = values

    def computed_by(self, expression: Action) -> Action:
        """An action that assigns the variable."""
        return lambda: self._set((expression(),))


def if_expression(test: Any, body: Action, orelse: Action, site: Site) -> Any:
    """``body if test else orelse``."""
    truth = decided(condition(test), site)
    if isinstance(truth, bool):
        return body() if truth else orelse()
    result = _Result("the conditional expression")
    _branch(truth, result.computed_by(body), result.computed_by(orelse), result.state, site)
    return result.value


def for_each_outcome(run: Action, arguments: Mapping[str, Any], *sites: Site) -> Any:
    """The result of a function, as a branch for each outcome of ``if`` statements in functions that it calls.

    Args:
        run: The function.
        arguments: Its arguments. It may change lists, dicts and sets in them and in the attributes of modules.
        sites: The ``if`` statements.
    """
    held = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, torch.nn.Module):
            own = ((key, one) for key, one in vars(value).items() if not key.startswith("_"))
            held.update({f"{name}.{key}": one for key, one in own})

    def decide(outcomes: tuple[bool, ...]) -> Any:
        contents = Contents(list(held.values()), list(held))
        try:
            undecided = next_undecided(run, sites, outcomes)
        finally:
            contents.restore()
        if undecided is None:
            with deciding(sites, outcomes):
                return run()
        truth, site = undecided
        result = _Result(f"{PREFIX}result", held)
        holds = result.computed_by(lambda: decide((*outcomes, True)))
        fails = result.computed_by(lambda: decide((*outcomes, False)))
        _branch(truth, holds, fails, result.state, site)
        return result.value

    return decide(())


def all_of(site: Site, *operands: tuple[bool, Action]) -> Any:
    """``a and b``; each operand is computed only if the ones before it hold, unless it is marked as simple."""
    return _chain(site, operands, stops_at=False)


def any_of(site: Site, *operands: tuple[bool, Action]) -> Any:
    """``a or b``."""
    return _chain(site, operands, stops_at=True)


def _chain(site: Site, operands: Sequence[tuple[bool, Action]], stops_at: bool) -> Any:
    value = operands[0][1]()
    if len(operands) == 1:
        return value
    truth = condition(value)
    if isinstance(truth, bool):
        return value if truth is stops_at else _chain(site, operands[1:], stops_at)
    if _is_decided(operands[1:], stops_at):
        return stops_at
    goes_on = opposite(truth) if stops_at else truth
    if all(simple for simple, _ in operands[1:]):
        rest = condition(_chain(site, operands[1:], stops_at))
        return opposite(both(goes_on, opposite(rest))) if stops_at else both(goes_on, rest)
    return if_expression(
        goes_on, lambda: as_tensor(condition(_chain(site, operands[1:], stops_at))), lambda: stops_at, site
    )


def _is_decided(operands: Sequence[tuple[bool, Action]], stops_at: bool) -> bool:
    """Whether Python knows the result whatever the operands before these are: ``t and False``."""
    for simple, operand in operands:
        if not simple:  # It may need an operand before it, as in `x is not None and len(x)`.
            return False
        truth = condition(operand())
        if truth is stops_at:
            return True
    return False


def not_(value: Any) -> Any:
    """``not value``."""
    return opposite(condition(value))


def with_conditions(function: Callable[..., Any], site: Site) -> Callable[..., Any]:
    """A function that is called with options; those that are conditions on sizes, which torch refuses, are branches."""
    owner = getattr(function, "__self__", None)
    if not isinstance(owner, Tensor) and not (getattr(function, "__module__", None) or "").startswith("torch"):
        return function

    def called(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except TypeError:
            given: dict[Any, Any] = {**dict(enumerate(arguments)), **options}
            name = next((name for name, value in given.items() if _is_condition(value)), None)
            if name is None:
                raise

        def decided_as(value: bool) -> Any:
            changed = {**given, name: value}
            return called(*(changed[i] for i in range(len(arguments))), **{one: changed[one] for one in options})

        return if_expression(given[name], lambda: decided_as(True), lambda: decided_as(False), site)

    return called


def _is_condition(value: Any) -> bool:
    return isinstance(value, torch.SymBool) or (
        isinstance(value, Tensor) and value.dtype == torch.bool and not value.dim()
    )
