"""Models that torch.export.export really fails on, one entry per case, with what opbridge has to say about each.

The line at fault carries the comment ``# <name of the case>``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import Dim


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    code: str
    model: Any
    message: str
    fix: str
    args: Any = (torch.linspace(-1, 2, 12).reshape(3, 4),)
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dynamic_shapes: Any = None
    input_error: bool = False
    has_source: bool = True


class Detections:
    __slots__ = ("boxes",)

    def __init__(self, boxes):
        self.boxes = boxes


@dataclasses.dataclass
class Batch:
    image: torch.Tensor


@dataclasses.dataclass
class State:
    image: torch.Tensor


torch.export.register_dataclass(State)


class NamelessState(State):
    pass


torch.utils._pytree.register_pytree_node(
    NamelessState, lambda state: ([state.image], None), lambda parts, _: NamelessState(*parts)
)


@torch.library.custom_op("findings_test::no_fake", mutates_args=())
def no_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


CPP = torch.library.Library("findings_cpp", "DEF")
CPP.define("scale(Tensor x, int factor=3) -> Tensor")
CPP.impl("scale", lambda x, factor=3: x * factor, "CPU")


@torch.library.custom_op("findings_test::bad_fake", mutates_args=())
def bad_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@bad_fake.register_fake
def _(x):
    return torch.from_numpy(x.numpy())  # failing fake


class NumelGuard(nn.Module):
    def forward(self, x):
        y = x[x > 0]
        if y.numel() > 4:  # numel guard
            return y.sum()
        return y


class IterateSelected(nn.Module):
    def forward(self, x):
        return [row.sum() for row in x[x > 0]]  # iterate selected


class AssertSize(nn.Module):
    def forward(self, x):
        y = x[x > 0]
        assert y.shape[0], "nothing selected"  # assert size
        return y


class BranchOnValue(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # branch on value
            return x
        return -x


class WhileOnValue(nn.Module):
    def forward(self, x):
        while x.sum() < 100:  # while on value
            x = x + 1
        return x


class RangeOfItem(nn.Module):
    def forward(self, x):
        for _ in range(x.sum().to(torch.int64).item()):  # range of item
            x = x + 1
        return x


class AssertValue(nn.Module):
    def forward(self, x):
        assert x.min() > -100  # assert value
        return x


class FloatOfTensor(nn.Module):
    def forward(self, x):
        return x * float(x.max())  # float of tensor


class IntOfTensor(nn.Module):
    def forward(self, x):
        return x[: int(x.max())]  # int of tensor


class Formatted(nn.Module):
    def forward(self, x):
        self.label = f"{x.max():.2f}"  # formatted
        return x


class Equal(nn.Module):
    def forward(self, x):
        return x if torch.equal(x, x * 2) else -x  # torch equal


class NumPySort(nn.Module):
    def forward(self, x):
        return torch.from_numpy(np.sort(x.numpy()))  # numpy call


class DataPointer(nn.Module):
    def forward(self, x):
        address = x.data_ptr()  # data pointer
        return x + address % 2


class DeepCopied(nn.Module):
    def forward(self, x):
        return copy.deepcopy(x) + 1  # deep copy


class CallsNoFake(nn.Module):
    def forward(self, x):
        return no_fake(x)  # no fake


class CallsCpp(nn.Module):
    def forward(self, x):
        return torch.ops.findings_cpp.scale(x)  # cpp operator


class CallsBadFake(nn.Module):
    def forward(self, x):
        return bad_fake(x)


class Sum(nn.Module):
    def forward(self, x, y, *, scale=1.0):  # signature
        return (x + y) * scale


class MatMul(nn.Module):
    def forward(self, x):
        return x @ x  # shapes mismatch


class ReturnsObject(nn.Module):
    def forward(self, x):  # returns object
        return Detections(x)


class ReturnsSet(nn.Module):
    def forward(self, x):  # returns set
        return {x}


class TakesBatch(nn.Module):
    def forward(self, batch):
        return batch.image + 1


class CondAliases(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x, (x,))  # cond aliases


class CondMutates(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + self.steps.add_(1), torch.neg, (x,))  # cond mutates


def positive_part(x):
    if x.sum() > 0:  # branch in cond
        return x + 1
    return x * 2


class CondBranches(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, positive_part, torch.neg, (x,))


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.LazyLinear(3)

    def forward(self, x):
        return self.head(x)


class AddsConstant(nn.Module):
    def forward(self, x):
        return x + torch.ones(3, 4)


class Halves(nn.Module):
    def forward(self, x):
        return x.view(2, -1, 4) + 1


class BranchOnSize(nn.Module):
    def forward(self, x):
        try:
            assert x.shape[0] <= 5
        except AssertionError:
            return x + 1
        return x


class Compares(nn.Module):
    def forward(self, x):
        return x if torch.equal(x, -x) else x + 1


class ScriptedComparison(nn.Module):
    def __init__(self):
        super().__init__()
        self.scripted = torch.jit.script(Compares())

    def forward(self, x):
        return self.scripted(x)


class LooksUpSize(nn.Module):
    def forward(self, x):
        return x * {3: 2.0}.get(x.shape[0], 1.0)  # size as a key


class AddsOne(nn.Module):
    def forward(self, x):
        return x + 1


class Pair(nn.Module):
    def forward(self, x, y):
        return x + 1, y + 1


class Reduces(nn.Module):
    def forward(self, x):
        if type(x) is not torch.Tensor:
            raise NotImplementedError("only for plain tensors\nand nothing else")  # only plain
        return x


X = torch.linspace(-1, 2, 12).reshape(3, 4)
N = Dim("n")

CASES = (
    Case(
        "numel guard",
        "data-dependent-guard",
        NumelGuard(),
        "`if y.numel() > 4` at {line} depends on a size that is known only at run time.",
        "torch._check(y.numel() <= 4) or torch._check(y.numel() > 4); to keep both branches write torch.cond(y.",
    ),
    Case(
        "iterate selected",
        "data-dependent-guard",
        IterateSelected(),
        "`for ... in x[x > 0]` at {line}",
        "process x[x > 0] as one tensor instead of item by item",
    ),
    Case(
        "assert size",
        "data-dependent-guard",
        AssertSize(),
        "`assert y.shape[0]` at {line}",
        "torch._check(y.shape[0] != 0).",
    ),
    Case(
        "branch on value",
        "data-dependent-value",
        BranchOnValue(),
        "`if x.sum() > 0` at {line} needs a tensor's value in Python, which is known only at run time.",
        "write torch.cond(x.sum() > 0, true_fn, false_fn, (tensors,))",
    ),
    Case(
        "while on value",
        "data-dependent-value",
        WhileOnValue(),
        "`while x.sum() < 100` at {line}",
        "torch.while_loop(cond_fn, body_fn, (tensors,))",
    ),
    Case(
        "range of item",
        "data-dependent-value",
        RangeOfItem(),
        "`for ... in range(x.sum().to(torch.int64).item())` at {line}",
        "torch.while_loop(",
    ),
    Case(
        "assert value",
        "data-dependent-value",
        AssertValue(),
        "`assert x.min() > -100` at {line}",
        "put the assert under `if not torch.compiler.is_exporting():`.",
    ),
    Case(
        "float of tensor",
        "data-dependent-value",
        FloatOfTensor(),
        "`return x * float(x.max()) # float of tensor` at {line}",
        "compute with the tensor itself instead of float(...)",
    ),
    Case(
        "int of tensor",
        "data-dependent-value",
        IntOfTensor(),
        "at {line} needs a tensor's value in Python",
        "For a size or an index write `.to(torch.int64).item()`.",
    ),
    Case(
        "formatted",
        "data-dependent-value",
        Formatted(),
        "at {line} needs a tensor's value",
        "skip the string",
    ),
    Case(
        "torch equal",
        "data-dependent-operator",
        Equal(),
        "aten::equal at {line} returns a Python value that depends on the contents of a tensor.",
        "compute (a == b).all(), which is a tensor, and branch on it with torch.cond",
    ),
    Case(
        "numpy call",
        "python-function",
        NumPySort(),
        "`np.sort(...)` at {line} is not a torch operator: it accesses a tensor's memory, which does not exist ",
        "use torch.sort; or move the call into a function decorated with @opbridge.operator('mylib::sort')",
    ),
    Case(
        "data pointer",
        "python-function",
        DataPointer(),
        "`x.data_ptr(...)` at {line}",
        "write it with torch operators; or move the call into a function decorated with @opbridge.operator",
    ),
    Case("deep copy", "python-function", DeepCopied(), "`copy.deepcopy(...)` at {line}", "its clone() method"),
    Case(
        "no fake",
        "missing-fake",
        CallsNoFake(),
        "The operator findings_test::no_fake at {line} has no shape function (fake).",
        "with the schema findings_test::no_fake(Tensor x) -> Tensor: put @opbridge.fake_for('findings_test::no_fake') "
        "on a function (x)",
    ),
    Case(
        "cpp operator",
        "missing-fake",
        CallsCpp(),
        "The operator findings_cpp::scale at {line} has no shape function (fake).",
        "findings_cpp::scale(Tensor x, int factor=3) -> Tensor: put @opbridge.fake_for('findings_cpp::scale') on a "
        "function (x, factor)",
    ),
    Case(
        "failing fake",
        "failing-fake",
        CallsBadFake(),
        "The shape function (fake) at {line}, called by `return bad_fake(x)` at ",
        "correct it, or define one that only computes shapes (x.new_empty(...)) and does not read contents",
    ),
    Case(
        "signature",
        "arguments-do-not-fit",
        Sum(),
        "The example inputs (1 positional) do not match Sum.forward(x, y, *, scale=1.0) at {line}: missing a required "
        "argument: 'y'.",
        "pass an example input for each of x, y (its parameters are 'x', 'y', 'scale'; those after * are",
        input_error=True,
    ),
    Case(
        "too many",
        "arguments-do-not-fit",
        AddsOne(),
        "(2 positional, z=) do not match AddsOne.forward(x)",
        "pass an example input for each of x",
        args=(X, X),
        kwargs={"z": X},
        input_error=True,
        has_source=False,
    ),
    Case(
        "no tuple",
        "arguments-do-not-fit",
        AddsOne(),
        "The example inputs are a Tensor, not a tuple.",
        "pass them as a tuple: (x,) for a single input.",
        args=X,
        input_error=True,
        has_source=False,
    ),
    Case(
        "a class",
        "not-a-module",
        AddsOne,
        "The model is the class AddsOne itself, not a torch.nn.Module.",
        "pass an instance, AddsOne(...).",
        input_error=True,
        has_source=False,
    ),
    Case(
        "a checkpoint",
        "not-a-module",
        {"weight": X},
        "The model is of type dict, not a torch.nn.Module.",
        "load_state_dict(...) with this dict",
        input_error=True,
        has_source=False,
    ),
    Case(
        "scripted",
        "torchscript-module",
        torch.jit.trace(AddsOne(), (X,)),
        "The model is a TorchScript module (AddsOne), which has no Python code to capture.",
        "use the nn.Module from which",
        has_source=False,
    ),
    Case(
        "comparison in TorchScript",
        "torchscript-module",
        ScriptedComparison(),
        "The submodule 'scripted' of the model is a TorchScript module (Compares), which has no Python code",
        "write an .onnx file of the submodule alone with torch.onnx.export under opbridge.legacy.enable()",
        has_source=False,
    ),
    Case(
        "shapes mismatch",
        "model-fails",
        MatMul(),
        "The model fails on its example inputs in PyTorch itself: RuntimeError: ",
        "make model(*args, **kwargs) run first",
    ),
    Case(
        "torch's own module",
        "model-fails",
        nn.Linear(5, 2),
        "The model fails on its example inputs in PyTorch itself: RuntimeError: ",
        "correct the example inputs",
        has_source=False,
    ),
    Case(
        "returns object",
        "unregistered-output",
        ReturnsObject(),
        "forward at {line} returns a capture_failure_models.Detections, unknown to torch.",
        "call torch.export.register_dataclass(Detections)",
    ),
    Case("returns set", "unregistered-output", ReturnsSet(), "forward at {line} returns a set", "return a tuple"),
    Case(
        "takes object",
        "unregistered-input",
        TakesBatch(),
        "The input 'batch' of forward contains a Batch, unknown to torch.",
        "call torch.export.register_dataclass(Batch) before the export, or pass the tensors",
        args=(Batch(X),),
        input_error=True,
        has_source=False,
    ),
    Case(
        "takes object without names",
        "unregistered-input",
        TakesBatch(),
        "An input of forward is a NamelessState, which is registered with torch without the names of its parts.",
        "pass flatten_with_keys_fn to register_pytree_node.",
        args=(NamelessState(X),),
        input_error=True,
        has_source=False,
    ),
    Case(
        "cond aliases",
        "control-flow",
        CondAliases(),
        "A function passed to torch.cond at {line} can't be captured: Higher order ops do not support aliasing.",
        ".clone()",
    ),
    Case(
        "cond mutates",
        "control-flow",
        CondMutates(),
        "A function passed to torch.cond at {line} can't be captured: Higher order ops do not support input mutation.",
        "return a new value from that function",
    ),
    Case(
        "branch in cond",
        "control-flow",
        CondBranches(),
        "A function passed to torch.cond at {line} can't be captured: Detected data-dependent branching",
        "write the branch inside that function as another torch.cond",
    ),
    Case(
        "lazy",
        "uninitialized-parameter",
        Lazy(),
        "The parameter 'head.weight' and 1 more of the model has no shape yet",
        "run the model once on the example inputs",
        has_source=False,
    ),
    Case(
        "constant size",
        "dynamic-dimension",
        AddsConstant(),
        "Declared dynamic, but the model supports only size 3: dimension 0 of x (n).",
        "leave the dimension out of dynamic_shapes if it is always 3",
        dynamic_shapes={"x": {0: N}},
        has_source=False,
    ),
    Case(
        "unnamed constant size",
        "dynamic-dimension",
        AddsConstant(),
        "the model supports only size 3: dimension 0 of x.",
        "leave the dimension out of dynamic_shapes",
        dynamic_shapes={"x": {0: Dim.DYNAMIC}},
        has_source=False,
    ),
    Case(
        "example of size one",
        "dynamic-dimension",
        AddsOne(),
        "Declared dynamic, but 1 in the example input: dimension 0 of x (n). Torch treats a size of 0 or 1 as",
        "use an example input in which that size is 2 or more.",
        args=(torch.ones(1, 4),),
        dynamic_shapes={"x": {0: N}},
        has_source=False,
    ),
    Case(
        "even sizes",
        "dynamic-dimension",
        Halves(),
        "The model does not support every size declared for dimension 0 of x (n): it needs ",
        "_n = torch.export.Dim('_n', min=1); n = 2*_n.",
        args=(torch.ones(4, 4),),
        dynamic_shapes={"x": {0: N}},
        has_source=False,
    ),
    Case(
        "narrow range",
        "dynamic-dimension",
        BranchOnSize(),
        "it needs 2 <= x.shape[0] and x.shape[0] <= 5.",
        "n = torch.export.Dim('n', max=5).",
        dynamic_shapes={"x": {0: N}},
        has_source=False,
    ),
    Case(
        "outside the range",
        "dynamic-dimension",
        AddsOne(),
        "Dimension 0 of x is 3 in the example inputs, outside its declared range 5 to any size.",
        "widen the min and max",
        dynamic_shapes={"x": {0: Dim("n", min=5)}},
        has_source=False,
    ),
    Case(
        "one name, two sizes",
        "dynamic-dimension",
        Pair(),
        "Two different sizes have one name: dimension 0 of y is 5 in the example inputs, dimension 0 of x is 3.",
        "give the two dimensions different names",
        args=(X, torch.ones(5, 4)),
        dynamic_shapes={"x": {0: N}, "y": {0: N}},
        has_source=False,
    ),
    Case(
        "no such input",
        "dynamic-shapes-mismatch",
        AddsOne(),
        "dynamic_shapes does not have the structure of the inputs ['x']: ",
        "dynamic_shapes={'x': {0: 'batch'}}",
        dynamic_shapes={"image": {0: N}},
        input_error=True,
        has_source=False,
    ),
    Case(
        "no such part",
        "dynamic-shapes-mismatch",
        TakesBatch(),
        "dynamic_shapes does not have the structure of the inputs ['batch']: Node arity mismatch; ",
        "an object takes a list or a dict with an entry for each of its parts, or None.",
        args=(State(X),),
        dynamic_shapes={"batch": [{0: N}, None]},
        input_error=True,
        has_source=False,
    ),
    Case(
        "no such dimension",
        "dynamic-shapes-mismatch",
        AddsOne(),
        "dynamic_shapes names dimension 5 of x, whose example has the shape (3, 4).",
        "use a dimension from 0 to 1.",
        dynamic_shapes={"x": {5: N}},
        input_error=True,
        has_source=False,
    ),
    Case(
        "only plain",
        "capture-failed",
        Reduces(),
        "torch.export can't capture Reduces: NotImplementedError: only for plain tensors at `raise",
        "the model raises this error during the capture only. Change the condition that leads to that line",
    ),
    Case(
        "size as a key",
        "hashed-size",
        LooksUpSize(),
        "uses the size of dimension 0 of x as a key of a dict, a set or a cache",
        "leave dimension 0 of x out of dynamic_shapes if its size is always 3",
        dynamic_shapes={"x": {0: N}},
    ),
)
