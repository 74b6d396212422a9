"""A kernel as the CPU implementation of a PyTorch operator: it returns what the operator's Python function returns."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from kernel_cases import sanitizer_runtimes
from places import SUPPORT
from torch import Tensor

import opbridge
from opbridge.catalog.declare.operator import Operator
from opbridge.errors import BuildError, InputError
from opbridge.kernels import torch_adapter
from opbridge.kernels.compiler import build
from opbridge.kernels.toolchain import find_compiler

pytestmark = [pytest.mark.slow, pytest.mark.one_worker]

NAMESPACE = "test_torch_kernel"
bodies: list[str] = []


def ran(name: str, *tensors: Tensor) -> None:
    """Note that the Python function computed something, and was not only asked for shapes."""
    if not any(torch._subclasses.fake_tensor.is_fake(tensor) or tensor.is_meta for tensor in tensors):
        bodies.append(name)


@opbridge.operator("test_torch_kernel::twice_plus")
def twice_plus(a: Tensor, b: Tensor, alpha: float = 2.0) -> Tensor:
    ran("twice_plus", a, b)
    return alpha * a + b


@opbridge.operator("test_torch_kernel::attributes")
def attributes(
    x: Tensor,
    factor: float,
    power: int = 1,
    mode: str = "plain",
    twice: bool = False,
    shifts: Optional[list[int]] = None,  # noqa: UP045
    weights: Optional[list[float]] = None,  # noqa: UP045
) -> Tensor:
    ran("attributes", x)
    y = factor * x**power * (2 if twice else 1)
    return (-y if mode == "negative" else y) + sum(shifts or []) + sum([0.5] if weights is None else weights) + 3


@opbridge.operator("test_torch_kernel::largest")
def largest(x: Tensor) -> tuple[Tensor, Tensor]:
    ran("largest", x)
    values, indices = x.max(dim=-1)
    return values.clone(), indices.clone()


@opbridge.operator("test_torch_kernel::masked")
def masked(x: Tensor, mask: Optional[Tensor] = None, bias: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
    ran("masked", x)
    y = x.clone() if mask is None else torch.where(mask, x, 0.0)
    return y if bias is None else y + bias


@opbridge.operator("test_torch_kernel::total")
def total(parts: list[Tensor], weight: float) -> Tensor:
    ran("total", *parts)
    return torch.stack(parts).sum(0) * weight


@opbridge.operator("test_torch_kernel::counted")
def counted(parts: list[Tensor]) -> Tensor:
    ran("counted", *parts)
    return torch.tensor(len(parts))


@opbridge.operator("test_torch_kernel::positives")
def positives(x: Tensor) -> Tensor:
    ran("positives", x)
    (where,) = torch.nonzero(x.flatten() > 0, as_tuple=True)
    return torch.stack([where.to(x.dtype), x.flatten()[where]], dim=1)


@opbridge.operator("test_torch_kernel::careless")
def careless(x: Tensor, mistake: str) -> Tensor:
    ran("careless", x)
    return x.new_zeros(1, 2)


@opbridge.operator("test_torch_kernel::padded")
def padded(x: Tensor, amount: int) -> Tensor:
    ran("padded", x)
    return torch.cat([x, x.new_zeros(amount, *x.shape[1:])])


@opbridge.operator("test_torch_kernel::pieces")
def pieces(x: Tensor) -> Tensor:
    ran("pieces", x)
    return torch.zeros_like(x)


@opbridge.operator("test_torch_kernel::refuses_negative")
def refuses_negative(x: Tensor) -> Tensor:
    ran("refuses_negative", x)
    if x.dtype == torch.float64:
        raise ValueError("the function refuses float64")
    return x.clone()


OPERATORS = [
    twice_plus,
    attributes,
    largest,
    masked,
    total,
    counted,
    positives,
    careless,
    padded,
    pieces,
    refuses_negative,
]


# Set in the process that test_under_the_sanitizers starts.
SANITIZE = "OPBRIDGE_TEST_SANITIZE" in os.environ


@pytest.fixture(scope="module")
def library() -> Path:
    return build([SUPPORT / "kernels" / "torch_cases.h"], sanitize=SANITIZE)


@pytest.fixture(scope="module")
def attached(library: Path) -> Iterator[None]:
    if SANITIZE:
        torch_adapter.build_adapter = functools.partial(torch_adapter.build_adapter, sanitize=True)
    for declared in OPERATORS:
        torch_adapter.attach(declared.target, library)
    yield
    for declared in OPERATORS:
        torch_adapter.detach(declared.target)


@pytest.fixture(autouse=True)
def quiet(attached: None) -> None:
    bodies.clear()


def check(declared: Operator, *args: Any, served_by: str = "kernel", **tolerance: float) -> None:
    """The operator returns what its Python function returns, computed by the kernel or by the function."""
    expected = declared.function(*args)
    bodies.clear()
    with torch.no_grad():
        found = declared(*args)
    assert bodies == ([] if served_by == "kernel" else [declared.__name__])
    torch.testing.assert_close(found, expected, **tolerance)
    for tensor in found if isinstance(found, tuple) else (found,):
        assert tensor.is_contiguous()


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(3, 4), (1,), (), (0,), (2, 0, 3), (2, 3, 4, 5)], ids=str)
def test_types_and_sizes(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    a, b = torch.randn(sizes).to(dtype), torch.randn(sizes).to(dtype)
    # The kernel rounds once, PyTorch after each operation.
    rounding = (
        {} if dtype == torch.float32 else {"rtol": 4 * torch.finfo(dtype).eps, "atol": 4 * torch.finfo(dtype).eps}
    )
    check(twice_plus, a, b, **rounding)
    check(twice_plus, a, b, 0.5, **rounding)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1:],
        lambda x: x[:, 0],
        lambda x: x[1:2].expand(5, 4),
        lambda x: x[2:, 3],
        lambda x: x.diagonal(),
        lambda x: x.unsqueeze(0).permute(2, 0, 1),
    ],
    ids=["transposed", "strided", "column", "expanded", "offset", "diagonal", "permuted"],
)
def test_inputs_that_are_not_contiguous(view: Any) -> None:
    x, y = torch.randn(6, 4), torch.randn(6, 4)
    check(twice_plus, view(x), view(y))
    check(largest, view(x))


def test_channels_last() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(twice_plus, x, torch.randn(2, 3, 4, 5))
    check(twice_plus, x.double(), x.double(), served_by="function")


def test_broadcasting() -> None:
    check(twice_plus, torch.randn(3, 1), torch.randn(4))
    check(twice_plus, torch.randn(()), torch.randn(0, 3))


@pytest.mark.parametrize(
    "args",
    [
        (2.0,),
        (2,),
        (2.0, 3),
        (-1.5, 2, "negative"),
        (1.0, 1, "plain", True),
        (1.0, 1, "plain", False, [1, 2, 3]),
        (1.0, 1, "plain", False, []),
        (1.0, 1, "plain", False, None, [0.25, 4]),
        (1.0, 1, "plain", True, [7], []),
        (1.0, 1, "plän", False, None, None),
    ],
    ids=str,
)
def test_attributes(args: tuple[Any, ...]) -> None:
    check(attributes, torch.rand(3, 4) + 1, *args)


def test_several_outputs() -> None:
    check(largest, torch.randn(2, 3, 4))
    check(largest, torch.randn(5))
    check(largest, torch.randint(0, 9, (3, 4), dtype=torch.int32))


def test_optional_tensors_present_and_absent() -> None:
    x, mask, bias = torch.randn(3, 4), torch.rand(3, 4) > 0.5, torch.randn(1)
    check(masked, x)
    check(masked, x, mask)
    check(masked, x, None, bias)
    check(masked, x, mask, bias)


def test_a_list_of_tensors() -> None:
    parts = [torch.randn(4, 3).t() for _ in range(5)]
    check(total, parts, 0.5)
    check(total, parts[:1], 2.0)
    check(total, [part.half() for part in parts], 1.0, rtol=1e-2, atol=1e-2)


def test_sizes_that_depend_on_the_data() -> None:
    check(positives, torch.randn(3, 4))
    check(positives, -torch.rand(3))
    check(positives, torch.empty(0))


def test_a_number_that_is_an_input_of_the_kernel() -> None:
    check(padded, torch.randn(2, 3), 4)
    check(padded, torch.randn(2, 3), 0)


@pytest.mark.parametrize(
    "tensors",
    [
        (torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)),
        (torch.randn(3), torch.randn(3, dtype=torch.float64)),
        (torch.arange(3), torch.arange(3)),
        (torch.randn(3, dtype=torch.complex64), torch.randn(3)),
        (torch.randn([1] * 33), torch.randn([1] * 33)),
    ],
    ids=["float64", "mixed", "int64", "complex64", "33 dimensions"],
)
def test_what_the_kernel_does_not_cover_goes_to_the_function(tensors: tuple[Tensor, Tensor]) -> None:
    check(twice_plus, *tensors, served_by="function")


def test_an_element_type_that_only_one_of_the_parts_has() -> None:
    check(total, [torch.randn(3), torch.randn(3)], 1.0)
    check(total, [torch.randn(3, dtype=torch.float64)] * 2, 1.0, served_by="function")


def test_other_devices_keep_the_function() -> None:
    x = torch.randn(3, 4, device="meta")
    y = twice_plus(x, x)
    assert y.is_meta
    assert y.shape == (3, 4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_keeps_the_function() -> None:
    check(twice_plus, torch.randn(3, device="cuda"), torch.randn(3, device="cuda"), served_by="function")


def test_fake_tensors() -> None:
    with torch._subclasses.FakeTensorMode() as mode:
        x = mode.from_tensor(torch.randn(4, 3)).t()
        y = twice_plus(x, x)
    assert (y.shape, y.dtype, y.device.type) == ((3, 4), torch.float32, "cpu")
    assert y.stride() == (4, 1), "the fake's strides are the kernel's"
    assert bodies == []


@pytest.mark.parametrize(
    ("declared", "args"),
    [
        (twice_plus, (torch.randn(3, 4), torch.randn(4))),
        (twice_plus, (torch.randn(3, 4, requires_grad=True), torch.randn(4))),
        (twice_plus, (torch.randn(4, 3).t(), torch.randn(4))),
        (twice_plus, (torch.randn(4, 3, dtype=torch.float64).t(), torch.randn(4, dtype=torch.float64))),
        (twice_plus, (torch.randn(3).half(), torch.randn(3).half())),
        (attributes, (torch.rand(3, requires_grad=True), 2.0, 3, "negative", True, [1, 2])),
        (largest, (torch.randn(4, 3, requires_grad=True),)),
        (largest, (torch.randn(4, 3).t(),)),
        (masked, (torch.randn(3, requires_grad=True), None, torch.randn(1, requires_grad=True))),
        (total, ([torch.randn(3, requires_grad=True), torch.randn(3)], 2.0)),
        (padded, (torch.randn(3, 2, requires_grad=True), 2)),
    ],
    ids=lambda value: value.target if isinstance(value, Operator) else "",
)
def test_it_is_a_sound_torch_operator(declared: Operator, args: tuple[object, ...]) -> None:
    result = torch.library.opcheck(declared._definition, args)
    assert set(result.values()) == {"SUCCESS"}


def test_gradients_go_through_the_function() -> None:
    def double(*size: int) -> Tensor:
        return torch.randn(*size, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(lambda a, b: twice_plus(a, b), (double(3), double(2, 3)))
    assert torch.autograd.gradcheck(lambda x: largest(x)[0], (double(3, 4),))


def test_the_kernel_computes_forward_where_a_gradient_is_wanted() -> None:
    a, b = torch.randn(3, requires_grad=True), torch.randn(3)
    y = twice_plus(a, b)
    assert bodies == []
    assert y.requires_grad
    y.sum().backward()
    assert bodies == ["twice_plus"]
    assert a.grad is not None
    torch.testing.assert_close(a.grad, torch.full((3,), 2.0))


def test_a_gradient_through_a_list() -> None:
    parts = [torch.randn(3), torch.randn(3, requires_grad=True)]
    total(parts, 0.5).sum().backward()
    assert parts[1].grad is not None
    torch.testing.assert_close(parts[1].grad, torch.full((3,), 0.5))


def test_no_gradient_under_no_grad_and_inference_mode() -> None:
    a = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        assert not twice_plus(a, a).requires_grad
    with torch.inference_mode():
        assert twice_plus(a, a).is_inference()
    assert bodies == []


class Model(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return twice_plus(x, x.t()).t() + padded(x, x.shape[0])[: x.shape[0]]


def test_export_keeps_one_node() -> None:
    program = torch.export.export(Model(), (torch.randn(3, 3),))
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count(torch.ops.test_torch_kernel.twice_plus.default) == 1
    x = torch.randn(3, 3)
    torch.testing.assert_close(program.module()(x), 3 * x + 2 * (x.t() - x) + x)


def test_export_with_dynamic_sizes() -> None:
    class Padded(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return padded(x, x.shape[0])

    program = torch.export.export(Padded(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
    x = torch.randn(7, 4)
    bodies.clear()
    torch.testing.assert_close(program.module()(x), torch.cat([x, torch.zeros(7, 4)]))
    assert bodies == []


def test_a_compiled_graph_reads_the_results_as_they_lie() -> None:
    compiled = torch.compile(Model(), backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 3)
    torch.testing.assert_close(compiled(x), Model()(x))


def test_threads_at_once() -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = torch.full((5000,), float(seed))
        for _ in range(50):
            if not torch.equal(twice_plus(x, x), 3 * x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert bodies == []


@pytest.mark.parametrize("count", [1, 2])
def test_the_threads_are_torchs(count: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        begins = pieces(torch.zeros(1000, dtype=torch.int64)).unique().tolist()
    finally:
        torch.set_num_threads(before)
    assert begins == [0, 500][:count]


def test_no_tensor_at_all() -> None:
    """Nothing tells torch the device, so it does not ask the CPU's implementation."""
    check(counted, [torch.ones(3), torch.ones(2)])
    check(counted, [], served_by="function")
    with pytest.raises(RuntimeError, match="non-empty"):
        total([], 2.0)
    assert bodies == ["counted", "total"]


@pytest.mark.parametrize("total", [25, 39, 49, 1003])
def test_no_piece_but_the_last_is_smaller_than_the_grain(total: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        sizes = pieces(torch.zeros(total, dtype=torch.int64)).unique(return_counts=True)[1].tolist()
    finally:
        torch.set_num_threads(before)
    assert len(sizes) > 1
    assert min(sizes[:-1]) >= 10


def test_an_error_in_a_thread_of_the_kernel() -> None:
    with pytest.raises(RuntimeError, match=r"^test_torch_kernel::refuses_negative: element 7 is negative$"):
        refuses_negative(torch.tensor([1.0] * 7 + [-1.0] + [1.0] * 100))
    check(refuses_negative, torch.ones(3))


def test_an_error_of_the_function() -> None:
    with pytest.raises(ValueError, match=r"^the function refuses float64$"):
        refuses_negative(torch.ones(3).double())


def test_an_error_of_the_shape_function() -> None:
    with pytest.raises(RuntimeError, match=r"^test_torch_kernel::twice_plus: .*\(2,\).*\(3,\)"):
        twice_plus(torch.ones(2), torch.ones(3))
    with pytest.raises(RuntimeError, match=r"^test_torch_kernel::largest: x must have a last axis$"):
        largest(torch.tensor(1.0))


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        ("sizes", "the kernel asks for the sizes [1, 3] of output 'y', but its shape function gives [-1, 2]"),
        ("rank", "the kernel asks for the sizes [1] of output 'y', but its shape function gives [-1, 2]"),
        ("twice", "the kernel asks for output 'y', which is allocated already"),
        ("memory", "no memory for output 'y' of the sizes [1152921504606846976, 2]"),
        ("nothing", "the kernel did not allocate output 'y'"),
    ],
)
def test_mistakes_with_sizes_that_depend_on_the_data(mistake: str, text: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        careless(torch.ones(3), mistake)
    assert str(caught.value).startswith(f"test_torch_kernel::careless: {text}")
    assert str(caught.value).count("careless") == 1


def test_detached_it_is_the_function_again(library: Path) -> None:
    torch_adapter.detach("test_torch_kernel::twice_plus")
    check(twice_plus, torch.ones(3), torch.ones(3), served_by="function")
    torch_adapter.detach("test_torch_kernel::twice_plus")
    torch_adapter.attach("test_torch_kernel::twice_plus", library)
    torch_adapter.attach("test_torch_kernel::twice_plus", library)
    check(twice_plus, torch.ones(3), torch.ones(3))


def test_a_new_declaration_has_no_kernel(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel was matched to the arguments of the earlier declaration."""

    def declare(function: Any) -> Operator:
        function.__code__ = function.__code__.replace(co_filename=__file__, co_firstlineno=1)
        return opbridge.operator("test_torch_kernel::redeclared")(function)

    def first(a: Tensor, b: Tensor) -> Tensor:
        return 2 * a + b

    def second(a: Tensor, b: Tensor) -> Tensor:
        return 3 * a + b

    def third(a: Tensor) -> Tensor:
        return 4 * a

    for function, arguments, expected in ((first, 2, 3.0), (second, 2, 4.0), (third, 1, 4.0)):
        declared = declare(function)
        torch.testing.assert_close(declared(*[torch.ones(3)] * arguments), torch.full((3,), expected))
        if arguments == 2:
            torch_adapter.attach(declared.target, library, "test_torch_kernel::twice_plus")


def test_declared_again_behind_opbridges_back(library: Path) -> None:
    for schema in ("again(Tensor a, Tensor b) -> Tensor", "again(Tensor a) -> Tensor"):
        owner = torch.library.Library("test_torch_kernel_foreign", "FRAGMENT")
        owner.define(schema)
        if "Tensor b" in schema:
            torch_adapter.attach("test_torch_kernel_foreign::again", library, "test_torch_kernel::twice_plus")
            owner._destroy()
    with pytest.raises(RuntimeError, match="again: declared again since its kernel was attached"):
        torch.ops.test_torch_kernel_foreign.again(torch.ones(3))
    torch_adapter.detach("test_torch_kernel_foreign::again")


def test_a_kernel_under_another_name(library: Path) -> None:
    @opbridge.operator("test_torch_kernel::renamed")
    def renamed(a: Tensor, b: Tensor) -> Tensor:
        ran("renamed", a)
        return 2 * a + b

    torch_adapter.attach(renamed.target, library, "test_torch_kernel::twice_plus")
    check(renamed, torch.ones(3), torch.ones(3))


def test_an_operator_of_somebody_else(library: Path) -> None:
    """Without a Python function behind it, what the kernel does not cover is an error."""
    foreign = torch.library.Library("test_torch_kernel_foreign", "DEF")
    foreign.define("twice_plus(Tensor a, Tensor b, float alpha=2.0) -> Tensor")
    torch_adapter.attach("test_torch_kernel_foreign::twice_plus", library, "test_torch_kernel::twice_plus")
    call = torch.ops.test_torch_kernel_foreign.twice_plus
    torch.testing.assert_close(call(torch.ones(3), torch.ones(3)), torch.full((3,), 3.0))
    with pytest.raises(
        RuntimeError, match=r"twice_plus: the kernel does not take float64 of rank 1, float64 of rank 1, Double$"
    ):
        call(torch.ones(3).double(), torch.ones(3).double())
    torch_adapter.detach("test_torch_kernel_foreign::twice_plus")


@pytest.mark.parametrize(
    ("schema", "kernel", "text"),
    [
        ("(Tensor a, Tensor c) -> Tensor", "twice_plus", "the kernel has no argument 'c'"),
        (
            "(Tensor a) -> Tensor",
            "twice_plus",
            "the kernel needs an input 'b', which the Python function does not have",
        ),
        (
            "(Tensor x) -> Tensor",
            "attributes",
            "the kernel needs an attribute 'factor', which the Python function does",
        ),
        ("(Tensor x, str factor) -> Tensor", "attributes", "argument 'factor' is str in Python, which the kernel's"),
        ("(Tensor x, float factor, int[] power) -> Tensor", "attributes", "argument 'power' is int[] in Python"),
        (
            "(Tensor[] a, Tensor b) -> Tensor",
            "twice_plus",
            "argument 'a' is Tensor[] in Python, but a tensor in the kernel",
        ),
        ("(Tensor parts, float weight) -> Tensor", "total", "argument 'parts' is Tensor in Python, but any number of"),
        ("(Tensor x) -> Tensor", "largest", "the Python function returns 1 values, the kernel 2"),
        (
            "(Tensor a, Tensor b) -> Tensor[]",
            "twice_plus",
            "the Python function returns a Tensor[]; kernels return tensors",
        ),
    ],
)
def test_a_kernel_that_does_not_fit(library: Path, schema: str, kernel: str, text: str) -> None:
    fragment = torch.library.Library("test_torch_kernel_misfits", "FRAGMENT")
    fragment.define(f"misfit{schema}")
    with pytest.raises(InputError) as caught:
        torch_adapter.attach("test_torch_kernel_misfits::misfit", library, f"{NAMESPACE}::{kernel}")
    assert f"The kernel test_torch_kernel::{kernel} of " in caught.value.message
    assert f"can't serve the torch operator test_torch_kernel_misfits::misfit: {text}" in caught.value.message
    assert "same arguments" in caught.value.fix
    fragment._destroy()


def test_a_kernel_that_does_not_fit_leaves_the_earlier_one(library: Path) -> None:
    with pytest.raises(InputError, match="can't serve"):
        torch_adapter.attach("test_torch_kernel::twice_plus", library, "test_torch_kernel::largest")
    check(twice_plus, torch.ones(3), torch.ones(3))


def test_a_kernel_that_the_library_does_not_have(library: Path) -> None:
    with pytest.raises(InputError, match="has no operator 'test_torch_kernel::absent'"):
        torch_adapter.attach("test_torch_kernel::twice_plus", library, "test_torch_kernel::absent")
    check(twice_plus, torch.ones(3), torch.ones(3))


def test_an_operator_that_torch_does_not_have(library: Path) -> None:
    with pytest.raises(InputError, match="torch has no operator of this name"):
        torch_adapter.attach("test_torch_kernel::absent", library, "test_torch_kernel::twice_plus")


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path))
    with pytest.raises(BuildError, match="'no-such-compiler', which does not exist") as caught:
        torch_adapter.build_adapter()
    assert "g++" in caught.value.fix


def test_a_compiler_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "g++"
    old.write_text(
        "#!/bin/sh\n"
        'case "$1" in --version|-dumpmachine) echo old; exit 0;; esac\n'
        "echo \"torch_adapter.cc:1:1: error: unrecognized option '-std=c++20'\" >&2\n"
        "exit 1\n"
    )
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BuildError) as caught:
        torch_adapter.build_adapter()
    assert caught.value.message.startswith(
        f"PyTorch's adapter for kernels does not compile against torch {torch.__version__}:"
    )
    assert "error: unrecognized" not in caught.value.message
    assert "unrecognized option '-std=c++20'" in caught.value.message
    assert "a newer compiler" in caught.value.fix


def test_sparse_tensors_keep_the_function() -> None:
    x = torch.eye(3).to_sparse()
    torch.testing.assert_close(twice_plus(x, x).to_dense(), 3 * torch.eye(3))
    assert bodies == ["twice_plus"]


@pytest.mark.skipif(SANITIZE, reason="this is the process that runs under them")
@pytest.mark.skipif(sys.platform != "linux", reason="the sanitizers' libraries are preloaded as on Linux")
@pytest.mark.newest
@pytest.mark.sweep
def test_under_the_sanitizers() -> None:
    """AddressSanitizer and UndefinedBehaviorSanitizer end the process at the first fault of adapter or kernel."""
    compiler = find_compiler().command
    standard = subprocess.run([*compiler, "-print-file-name=libstdc++.so"], capture_output=True, text=True, check=True)
    runtimes = [*sanitizer_runtimes(), standard.stdout.strip()]
    environment = {
        **os.environ,
        "OPBRIDGE_TEST_SANITIZE": "1",
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", __file__]
    done = subprocess.run(
        [*command, "-k", "not sound and not compile and not export"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
