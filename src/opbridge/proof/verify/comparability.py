"""If an autograd.Function's ``forward`` and ``symbolic`` compute different things, PyTorch is not a valid reference.

The ``forward`` of a placeholder for a TensorRT plugin returns numbers of the right shape only, and ``symbolic`` defines
the result. If a result differs from PyTorch's and depends on such a Function, each Function is tried alone: if the ONNX
nodes of its ``symbolic`` do not compute what its ``forward`` computes, outputs that depend on it are not compared. A
``forward`` that draws random numbers where ``symbolic`` draws none is no reference either, even if the draws agree by
chance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from opbridge.atomic import TemporaryFolder
from opbridge.capture.capture import capture
from opbridge.capture.python_draws import generator_states, kept_generators
from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.errors import OpbridgeError
from opbridge.ladder.plan import plan
from opbridge.ladder.translate import translate
from opbridge.legacy.capture_state import ignored_in
from opbridge.legacy.function_calls import FunctionCall, function_of
from opbridge.onnx_model.write import save_model
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verification import NOT_VERIFIED, Verification
from opbridge.proof.verify.verify import verify
from opbridge.proof.verify.widened_model import random_values
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.random_numbers import own_random_numbers
from opbridge.torch_graph.signature import user_outputs
from opbridge.torch_graph.sources import source_of_node
from opbridge.torch_graph.targets import calls_in

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.capture.capture import Captured

__all__ = ["reconsidered"]


def reconsidered(
    verification: Verification, captured: Captured, engine: str, libraries: Sequence[Path] = ()
) -> Verification:
    """Mark the outputs that a Function's ``forward`` can't verify as not compared, if they failed or are random.

    Args:
        verification: The verification of the whole model.
        captured: The model.
        engine: The engine that the model ran in.
        libraries: The kernels that were loaded.

    Returns:
        ``verification`` itself if it passed without random outputs or if no Function is the cause. If the bridge is
        off, the Functions can't be tried, and a hint is added. Otherwise the outputs that depend on such a Function
        have the status "not compared", and if nothing else failed the verdict is "not verified".
    """
    failed = verification.verdict == "failed"
    if not failed and all(item.status != "random" for item in verification.comparisons):
        return verification
    ignored = ignored_in(captured.program)
    if failed and ignored:
        return dataclasses.replace(verification, error=verification.error or _not_honoured(ignored))
    nodes = [node for node in calls_in(captured.program) if function_of(node.target) is not None]
    disagreeing = {
        node: call
        for node, call in _distinct(nodes).items()
        if _disagrees(node, call, engine, libraries, only_draws=not failed)
    }
    if not disagreeing:
        return verification
    affected = _outputs_after(captured, {node.target for node in disagreeing})
    by = ", as the attached kernels compute it" if libraries else ""
    reason = " ".join(dict.fromkeys(_reason(node, call, by) for node, call in disagreeing.items()))
    return _not_compared(verification, affected, f"it depends on {_names(disagreeing.values())}", reason)


def _not_compared(verification: Verification, outputs: set[str], detail: str, reason: str) -> Verification:
    """The verification with the status "not compared" for these outputs, if they differ or are random."""
    affected = [
        item.output in outputs and (not item.passed or item.status == "random") for item in verification.comparisons
    ]
    comparisons = tuple(
        dataclasses.replace(item, status="not compared", detail=detail) if changed else item
        for item, changed in zip(verification.comparisons, affected, strict=True)
    )
    changed_cases = {item.case for item in comparisons if item.status == "not compared"}
    failed = {item.case for item in comparisons if not item.passed and item.status != "not compared"}
    cases = tuple(
        case
        if case.name in failed or (case.verdict != "failed" and case.name not in changed_cases)
        else dataclasses.replace(case, verdict=NOT_VERIFIED, eager_matches=None, notes=(*case.notes, reason))
        for case in verification.cases
    )
    verdict = "failed" if any(case.verdict == "failed" for case in cases) else NOT_VERIFIED
    error = verification.error or reason
    divergences = tuple(divergence for divergence in verification.divergences if divergence.case in failed)
    return dataclasses.replace(
        verification, verdict=verdict, cases=cases, comparisons=comparisons, error=error, divergences=divergences
    )


def _not_honoured(ignored: Iterable[Any]) -> str:
    names = ", ".join(function.__qualname__ for function in ignored)
    return (
        f"The model was captured with the bridge off, so {names} was compared with its forward, not with its symbolic. "
        "If the bundle was exported with the bridge on, call opbridge.legacy.enable() first."
    )


def _distinct(nodes: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, FunctionCall]:
    first = {node.target: node for node in reversed(nodes)}
    found = {node: function_of(node.target) for node in reversed(first.values())}
    return {node: call for node, call in found.items() if call is not None}


def _reason(node: torch.fx.Node, call: FunctionCall, by: str) -> str:
    place = source_of_node(node)
    return (
        f"{call.display_name}{f' (used at {place})' if place else ''}: its forward does not compute what its symbolic "
        f"at {call.source} emits{by}. The symbolic defines the result, so PyTorch is no reference for it."
    )


def _names(calls: Any) -> str:
    names = sorted({call.display_name for call in calls})
    return f"{', '.join(names)}, whose forward does not compute what its symbolic emits"


class _Alone(torch.nn.Module):
    """One call of a Function."""

    def __init__(self, call: FunctionCall) -> None:
        super().__init__()
        self.call = call

    def forward(self, *inputs: Any) -> Any:
        return self.call.overload(*inputs)


def _disagrees(
    node: torch.fx.Node, call: FunctionCall, engine: str, libraries: Sequence[Path], *, only_draws: bool
) -> bool:
    """Whether the nodes of the call's symbolic alone differ from its forward; False if that can't be tried."""
    inputs = tuple(map(_example, node.args))
    try:
        captured = capture(_Alone(call), inputs)
        planned = plan(captured.program, Catalog((call.spec(),), ()))
        model = translate(planned, captured).model
        if _forward_alone_draws(call, inputs, model):
            return True
        if only_draws:
            return False
        with TemporaryFolder() as folder:
            file = _save(model, Path(folder))
            with IsolatedSession(engine, file, libraries=libraries) as session:
                alone = verify(CapturedReference(captured), session, engine=engine)
    except OpbridgeError:
        return False
    return alone.verdict == "failed" and bool(alone.comparisons)


def _forward_alone_draws(call: FunctionCall, inputs: Sequence[Any], model: ir.Model) -> bool:
    """Whether forward draws random numbers, and the nodes of symbolic are standard ones that draw none."""
    if any(node.domain for node in model.graph.all_nodes()) or random_values(model):
        return False
    with kept_generators(), own_random_numbers():
        before = generator_states(), torch.get_rng_state()
        call.run_forward(inputs)
        return before[0] != generator_states() or not torch.equal(before[1], torch.get_rng_state())


def _save(model: Any, folder: Path) -> Path:
    save_model(model, folder, name="alone.onnx", external_data=False)
    return folder / "alone.onnx"


def _example(value: Any) -> Any:
    """An example input of the captured sizes."""
    value = value.meta["val"] if isinstance(value, torch.fx.Node) else value
    if not isinstance(value, torch.Tensor):
        return torch_internals.example_of(value)
    shape = [torch_internals.example_of(size) for size in value.shape]
    return torch.rand(shape).to(value.dtype)


def _outputs_after(captured: Captured, targets: set[Any]) -> set[str]:
    """The ONNX names of the outputs that depend on one of these operators."""
    after: set[torch.fx.Node] = set()
    for node in captured.program.graph.nodes:
        if node.target in targets or any(source in after for source in node.all_input_nodes):
            after.add(node)
    # The user's outputs follow the mutated buffers and inputs.
    results = captured.program.graph.output_node().args[0]
    count = len(captured.program.graph_signature.output_specs)
    first = count - len([s for s in captured.program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"])
    positions = [first + position for position in user_outputs(captured.program)]
    return {name for name, i in zip(captured.output_names, positions, strict=True) if results[i] in after}
