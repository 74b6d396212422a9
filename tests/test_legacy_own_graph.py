"""Our own graph against TorchScript's: the same symbolic functions on both, and the same questions to their values."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

import onnx_ir as ir  # noqa: E402
from legacy_batches import batches  # noqa: E402
from legacy_cases.table import all_cases  # noqa: E402
from legacy_graphs import output_trees, registered  # noqa: E402

from opbridge import legacy  # noqa: E402
from opbridge.capture.capture import capture  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.ladder.plan import plan  # noqa: E402
from opbridge.ladder.translate import translate  # noqa: E402
from opbridge.legacy import own_context, symbolic_call, torchscript  # noqa: E402
from opbridge.legacy.folding import state_constants  # noqa: E402
from opbridge.legacy.fragment import Fragment, Slot, TensorInput  # noqa: E402
from opbridge.legacy.target import Target  # noqa: E402
from opbridge.legacy.validity import InvalidNodeError  # noqa: E402

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
BUILDERS = {"TorchScript's": torchscript.build, "our own": own_context.build}


def trees(fragment: Fragment) -> list[str]:
    """What computes each result, with constants where the graph states them."""
    return [str(tree) for _, tree in output_trees(ir.serde.serialize_model(fragment.model))]


def build(which: str, symbolic: Any, args: list[Any], *, registered: bool = False, inputs: Any = None) -> Fragment:
    inputs = inputs or [TensorInput(FLOAT, (2, 3)), TensorInput(INT64, (None,))]
    return BUILDERS[which](
        symbolic, args, {}, inputs=inputs, opset=18, target=Target(custom_opsets={"custom": 2}), registered=registered
    )


class Compared:
    """Builds each fragment on both graphs, and keeps what differs."""

    def __init__(self) -> None:
        self.count = 0
        self.differences: list[str] = []

    def build(self, symbolic: Any, args: Any, kwargs: Any, *, inputs: Any, **options: Any) -> Fragment:
        self.count += 1
        free = [dataclasses.replace(one, shape=one.shape and (None, *one.shape[1:])) for one in inputs]
        self.compare(symbolic, *(attempt(build, symbolic, args, kwargs, inputs=free, **options) for build in BOTH))
        made = [attempt(build, symbolic, args, kwargs, inputs=inputs, **options) for build in BOTH]
        self.compare(symbolic, *made)
        return made[0]

    def compare(self, symbolic: Any, mine: Any, theirs: Any) -> None:
        if not isinstance(mine, Fragment) or not isinstance(theirs, Fragment):
            if type(mine) is not type(theirs):
                self.differences.append(f"{symbolic}: {mine!r} instead of {theirs!r}")
            return
        facts = [(trees(one), one.results, one.several, one.model.opset_imports) for one in (mine, theirs)]
        if facts[0] != facts[1]:
            self.differences.append(f"{symbolic}:\n{facts[0]}\ninstead of\n{facts[1]}")
        for one, other in zip(mine.model.graph.outputs, theirs.model.graph.outputs, strict=True):
            if other.dtype not in (None, one.dtype):
                self.differences.append(f"{symbolic}: {one.dtype} instead of {other.dtype}")


BOTH = (own_context.build, torchscript.build)


def attempt(build: Any, symbolic: Any, args: Any, kwargs: Any, **options: Any) -> Any:
    """A fragment, with constants as tensors; the exception where the symbolic needs sizes that are not fixed."""
    try:
        fragment = build(symbolic, args, kwargs, **options)
    except Exception as error:
        return error
    state_constants(fragment.model)
    return fragment


def test_the_whole_table_becomes_the_same_on_both_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fragment is built for the sizes of the case, and with axis 0 free."""
    compared = Compared()
    monkeypatch.setattr(symbolic_call, "_build", lambda: compared.build)
    with legacy.enable():
        for batch in batches(dynamic=False):
            with registered(*batch.cases):
                captured = capture(batch.model(), batch.inputs)
                planned = plan(captured.program, Catalog.load().extended(captured.declared))
                translate(planned, captured, asked_opset=batch.opset)
    assert compared.differences == []
    assert compared.count >= 0.9 * len(all_cases())


def answers(g: Any, x: Any, n: Any, mode: Any, sizes: Any, nothing: Any) -> tuple[Any, list[Any]]:
    """What a symbolic may ask of values, types and nodes."""
    from torch.onnx import symbolic_helper

    y = g.op("Mul", x, g.op("Constant", value_t=torch.tensor(2.0)))
    z = g.op("custom::Op", y, n, alpha_f=1.5, names_s=["a", "b"])
    z.setType(x.type().with_sizes([2, None]))
    w = g.op("custom::Op2", z)
    w.setTypeAs(x)
    w.setDebugName("named")
    asked: list[Any] = []
    for value in (x, y, z, w, n):
        kind = value.type()
        asked += [
            kind.kind(), kind.scalarType(), kind.dim(), kind.sizes(), kind.varyingSizes(), kind.dtype(),
            value.isCompleteTensor(), kind.isSubtypeOf(torch._C.TensorType.get()), value.node().kind(),
            value.node().mustBeNone(), symbolic_helper._is_value(value), symbolic_helper._is_tensor(value),
            symbolic_helper._get_tensor_sizes(value), symbolic_helper._get_tensor_rank(value),
            isinstance(value, torch._C.Value),
        ]  # fmt: skip
    node = z.node()
    asked += [w.debugName(), node.inputsSize(), node.outputsSize(), sorted(node.attributeNames()), node.f("alpha")]
    asked += [node.kindOf("alpha"), node.kindOf("names"), node.ss("names"), node.hasAttribute("beta"), node["alpha"]]
    asked += [mode.node().kind(), mode.node().s("value"), symbolic_helper._maybe_get_const(mode, "s")]
    asked += [symbolic_helper._maybe_get_const(sizes, "is"), symbolic_helper._is_none(nothing)]
    asked += [nothing.node().kind(), nothing.node().mustBeNone(), nothing.type().kind(), g.opset]
    return w, asked


def test_values_types_and_nodes_answer_alike() -> None:
    collected: dict[str, list[Any]] = {}
    for which in BUILDERS:

        def symbolic(g: Any, *args: Any, which: str = which) -> Any:
            made, collected[which] = answers(g, *args)
            return made

        fragment = build(which, symbolic, [Slot(0), Slot(1), "nearest", [4, 5], None], registered=True)
        assert fragment.model.opset_imports["custom"] == 2
    assert len(collected["our own"]) > 85
    assert collected["our own"] == collected["TorchScript's"]


ARGUMENTS = {
    "numbers": [Slot(0), 3, 2.5, True],
    "lists": [Slot(0), [1, 2], [1.5, 2.0], [], [True, False]],
    "strings": [Slot(0), "text", ["a", "b"]],
    "tensors": [Slot(0), [Slot(0), Slot(0)], torch.tensor([1, 2]), [None, Slot(1)]],
    "sizes": [Slot(0), [Slot(1), 4]],
    "dtypes and nothing": [Slot(0), torch.float16, torch.bool, None],
    "devices": [Slot(0), torch.device("cpu")],
}


def described(value: Any) -> Any:
    node = value.node()
    inner = [described(item) for item in node.inputs()] if node.kind() == "prim::ListConstruct" else []
    contents = None
    if node.kind() == "onnx::Constant":
        contents = node["value"]
        contents = (contents.dtype, contents.tolist()) if isinstance(contents, torch.Tensor) else contents
    return node.kind(), value.type().kind(), contents, inner


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_registered_symbolics_have_one_form(name: str) -> None:
    collected: dict[str, list[Any]] = {}
    for which in BUILDERS:

        def symbolic(g: Any, *args: Any, which: str = which) -> Any:
            collected[which] = [described(value) for value in args]
            return g.op("custom::One", args[0])

        build(which, symbolic, ARGUMENTS[name], registered=True)
    assert collected["our own"] == collected["TorchScript's"]


WRONG = {
    "raises": (lambda g, x, n: 1 / 0, ZeroDivisionError, "division"),
    "no value": (lambda g, x, n: 5, TypeError, "it returns int where a value of the graph is expected"),
    "no kind": (lambda g, x, n: g.op("custom::One", x, alpha=1), ValueError, "Invalid attribute specifier 'alpha'"),
    "a bare name": (lambda g, x, n: g.op("Bogus", x), InvalidNodeError, "a node 'Bogus', which ONNX does not have"),
    "too few inputs": (lambda g, x, n: g.op("Gemm", x), InvalidNodeError, "Gemm takes 2 to 3 inputs, not 1"),
    "no such attribute": (lambda g, x, n: g.op("Relu", x, a_i=1), InvalidNodeError, "Relu has no attribute 'a'"),
    "too new": (lambda g, x, n: g.op("Gelu", x), InvalidNodeError, "not valid at opset 18: Gelu is newer"),
    "unknown method": (lambda g, x, n: g.frobnicate(x), AttributeError, "frobnicate"),
}


@pytest.mark.parametrize("which", BUILDERS)
@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_the_same_errors(name: str, which: str) -> None:
    symbolic, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        build(which, symbolic, [Slot(0), Slot(1)])


def test_the_switch_chooses_our_own_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    assert symbolic_call._build() is torchscript.build
    monkeypatch.setenv(symbolic_call.OWN_GRAPH, "1")
    assert symbolic_call._build() is own_context.build
    monkeypatch.delenv(symbolic_call.OWN_GRAPH)
    monkeypatch.setattr(torchscript, "available", lambda: False)
    assert symbolic_call._build() is own_context.build


def test_without_torchscript_the_export_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchscript, "available", lambda: False)
    monkeypatch.setattr(torchscript, "build", None)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.cos()

        @staticmethod
        def symbolic(g, x):
            return g.op("custom::One", g.op("Add", x, g.op("Constant", value_t=torch.tensor(1))))

    with legacy.enable():
        captured = capture(torch.nn.Sequential(_Applies(Function)), (torch.ones(2, 3),))
        result = translate(plan(captured.program, Catalog.load().extended(captured.declared)), captured)
    (tree,) = output_trees(ir.serde.serialize_model(result.model))
    assert str(tree[1]) == "custom::One[0]{}(::Add[0]{}(input 0, ('float32', (), (1.0,))))"


class _Applies(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)
