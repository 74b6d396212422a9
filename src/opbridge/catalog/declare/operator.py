"""``@opbridge.operator``: an operator of the user's own, declared once.

The declaration makes it a ``torch.library`` operator, so that it stays one node when a model is captured, and keeps the
Python function as its implementation in PyTorch, as its shape function (run on fake tensors) and as the body of the
ONNX function that carries it into an engine.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbridge.catalog.declare.fakes import tensors_in
from opbridge.catalog.declare.spec import _TARGET, OpSpec, Sample, declare, replaces
from opbridge.errors import BuildError, InputError, first_line
from opbridge.kernels.compiler import build as compile_library
from opbridge.kernels.declared import KernelSpec, declare_kernel, declare_python_kernel
from opbridge.kernels.python_kernel import operator_parameters, python_kernel
from opbridge.kernels.python_source import place
from opbridge.kernels.torch_adapter import attach, detach
from opbridge.torch_graph import LOWEST_OPSET

if TYPE_CHECKING:
    import torch

__all__ = ["Operator", "operator", "register_fake", "without_kernels"]


class Operator:
    """A declared operator. Call it like the function it was made from.

    Attributes:
        target: ``"namespace::name"``.
        function: The Python function: the reference for everything else.
        body: Torch code for the ONNX function body; ``function`` unless :meth:`set_body` gave another.
        source: ``file:line`` of the declaration.
    """

    def __init__(self, target: str, function: Callable[..., Any], samples: Callable[[], Any] | None = None) -> None:
        self.target = target
        self.function = function
        self.body: Callable[..., Any] = function
        self.source = _source(function)
        self.samples = samples
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self._kernel: KernelSpec | None = None
        self._kernel_state = "waiting"
        self._kernel_lock = threading.RLock()
        self._definition = _define(target, function, self._compute)
        self._register_autograd()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the torch operator."""
        return self._definition(*args, **kwargs)

    def fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use ``function`` as the shape function instead of tracing the operator's own.

        Needed where the operator's function can't run on fake tensors: it calls C++ or NumPy, or reads a tensor's
        contents. The function takes the operator's arguments and returns empty tensors of the right shapes and dtypes.
        """
        self._definition.register_fake(_contiguous(function))
        return function

    def set_body(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use ``function`` (torch code of the same signature) as the ONNX function body.

        Needed where the operator's own function is not made of torch operators.
        """
        self.body = function
        return function

    def kernel(
        self,
        header: str | Path | Callable[..., Any] | None = None,
        *,
        native: bool = False,
        layout: str | None = None,
        dtypes: Sequence[str] | Mapping[str, Sequence[str]] = ("float32", "float64"),
        grain: int | None = None,
    ) -> Any:
        """Give the operator a compiled kernel (rung ``kernel``): in every engine, and in PyTorch on the CPU.

        It is compiled when it is first needed: by an export, or by the first call on CPU tensors. The Python function
        stays as the reference, for other devices and element types, for gradients, and as the ONNX function body.

        A kernel in C++ is a file: ``my_add.kernel("my_add.h")``. One in Python is a function, which Numba compiles;
        what is deployed holds no Python::

            @my_add.kernel
            def my_add_kernel(a, b):                  # one element of each input, broadcast
                return 2 * a + b


            @rms_norm.kernel(layout="x[..., n] -> y[..., n]")
            def rms_norm_kernel(x, epsilon, y, begin, end):
                for row in range(begin, end):         # a part of y's first axis, in one of the engine's threads
                    ...

        Args:
            header: The kernel's C++ file, relative to the file of this declaration (see ``opbridge.h``); or a function.
            native: Use all instructions of this machine's processor; the library may then not run on another.
            layout: Of a kernel in Python on arrays: its tensors, their sizes, and types other than T.
            dtypes: The element types of T, or of each type variable of the layout, of a kernel in Python.
            grain: The least steps from begin to end of a kernel in Python.

        Returns:
            The function itself as a decorator, a decorator if there is neither file nor function; otherwise None.

        Raises:
            InputError: The file is missing, another kernel is declared for the operator, or a function's parameters
                and layout are not those of the operator.
        """
        if isinstance(header, str | Path):
            file = Path(self.source.rpartition(":")[0])
            self._kernel = declare_kernel(self.target, header, file, self.source, native)
            return None

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            parameters = operator_parameters(self.target)
            written = python_kernel(self.target, function, parameters, layout=layout, dtypes=dtypes, grain=grain)
            self._kernel = declare_python_kernel(written, place(written.function), native)
            return function

        return decorate if header is None else decorate(header)

    def _attach_kernel(self) -> bool:
        """Compile the declared kernel and make it the CPU implementation. False if that is done, or can't be."""
        with self._kernel_lock:
            if self._kernel is None or self._kernel_state != "waiting":
                return False
            try:
                attach(self.target, compile_library([self._kernel.header], native=self._kernel.native))
            except BuildError as error:
                self._kernel_state = "failed"
                warnings.warn(
                    f"{self.target} runs its Python function, because its kernel can't be built: {error}", stacklevel=4
                )
                return False
            self._kernel_state = "attached"
            return True

    def _compute(self, *args: Any, **kwargs: Any) -> Any:
        """The operator's implementation in PyTorch, until a kernel takes its place on the CPU."""
        if self._kernel is not None and self._kernel_state == "waiting" and self._attach_kernel():
            return self._definition(*args, **kwargs)
        return self.function(*args, **kwargs)

    def _suspend_kernel(self) -> None:
        with self._kernel_lock:
            if self._kernel_state == "attached":
                detach(self.target)
            self._kernel_state = "suspended" if self._kernel_state != "failed" else "failed"

    def _resume_kernel(self) -> None:
        with self._kernel_lock:
            self._kernel_state = "waiting" if self._kernel_state == "suspended" else self._kernel_state

    def _register_autograd(self) -> None:
        """Differentiate through the Python function, which is made of differentiable torch operators."""

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            import torch

            leaves, ctx.structure = torch.utils._pytree.tree_flatten(inputs)
            ctx.save_for_backward(*(value for value in leaves if isinstance(value, torch.Tensor)))
            ctx.other = [None if isinstance(value, torch.Tensor) else (value,) for value in leaves]

        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            return _backward_through(self.function, ctx, gradients)

        self._definition.register_autograd(backward, setup_context=setup_context)


def _backward_through(function: Callable[..., Any], ctx: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    import torch

    saved = iter(ctx.saved_tensors)
    given = [next(saved) if value is None else value[0] for value in ctx.other]
    leaves = [value.detach() if isinstance(value, torch.Tensor) else value for value in given]
    wanted = [i for i, value in enumerate(given) if isinstance(value, torch.Tensor) and value.requires_grad]
    for index in wanted:
        leaves[index].requires_grad_()
    with torch.enable_grad():
        outputs = function(*torch.utils._pytree.tree_unflatten(leaves, ctx.structure))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if g is not None and o.requires_grad]
        found = torch.autograd.grad(
            [o for o, _ in pairs], [leaves[i] for i in wanted], [g for _, g in pairs], allow_unused=True
        )
    result: list[Any] = [None] * len(leaves)
    for index, gradient in zip(wanted, found, strict=True):
        result[index] = gradient
    inputs = torch.utils._pytree.tree_unflatten(leaves, ctx.structure)
    returned = torch.utils._pytree.tree_unflatten(result, ctx.structure)
    # For a list of numbers torch wants one None.
    return tuple(r if tensors_in(value) else None for r, value in zip(returned, inputs, strict=True))


def _source(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def _define(target: str, function: Callable[..., Any], compute: Callable[..., Any]) -> Any:
    import torch

    try:
        schema = torch.library.infer_schema(function, mutates_args=())
    except ValueError as error:
        raise InputError(
            f"@operator({target!r}) at {_source(function)}: torch can't read the function's signature: "
            f"{first_line(error)}",
            fix="annotate every parameter and the result: torch.Tensor, Optional[torch.Tensor], int, float, bool, str, "
            "list[int], list[torch.Tensor]; several results as tuple[torch.Tensor, torch.Tensor].",
        ) from error
    definition = torch.library.custom_op(target, _contiguous(compute), mutates_args=(), schema=schema)
    definition.register_fake(_contiguous(function))
    return definition


def _contiguous(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with contiguous results.

    A kernel's are; were the Python function's strides others, a compiled graph would read the kernel's results wrongly.
    """

    @functools.wraps(function)
    def computed(*args: Any, **kwargs: Any) -> Any:
        import torch

        def lay_out(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.contiguous() if tensor.layout is torch.strided else tensor

        return torch.utils._pytree.tree_map_only(torch.Tensor, lay_out, function(*args, **kwargs))

    return computed


_operators: dict[str, Operator] = {}


def find_operator(target: str) -> Operator | None:
    """The operator declared as ``target`` in this process, if any."""
    return _operators.get(target)


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Let every declared operator run its Python function in PyTorch: the reference that kernels are compared with."""
    operators = list(_operators.values())
    for declared in operators:
        declared._suspend_kernel()
    try:
        yield
    finally:
        for declared in operators:
            declared._resume_kernel()


def operator(
    target: str, *, samples: Callable[[], list[Sample]] | None = None
) -> Callable[[Callable[..., Any]], Operator]:
    """Declare an operator of your own, once.

    The decorated function is made of torch operators; its annotations give the operator's schema. From then on it is
    the torch operator ``torch.ops.namespace.name``: one node when a model is captured, and one node
    ``namespace::name`` in the ONNX model, with the function as its ONNX function body, so that it runs in every engine.

    Args:
        target: ``"mylib::my_add"``.
        samples: Returns inputs (:class:`~opbridge.spec.Sample`) to check it on.

    Raises:
        InputError: The target is malformed, already declared elsewhere, or the signature is not annotated.
    """
    if not _TARGET.fullmatch(target) or "." in target:
        raise InputError(
            f"@operator({target!r}): an operator is named 'namespace::name'.",
            fix="write for example @opbridge.operator('mylib::my_add').",
        )

    def decorate(function: Callable[..., Any]) -> Operator:
        earlier = _operators.get(target)
        if earlier is not None and not replaces(target, _source(function), earlier.source):
            raise InputError(
                f"The operator {target!r} is declared twice: at {earlier.source} and at {_source(function)}.",
                fix="rename one of them, or import the first declaration instead of repeating it.",
            )
        if earlier is None:
            _refuse_foreign(target, function)
        detach(target)
        declared = _operators[target] = Operator(target, function, samples)
        declare(OpSpec(target, "function", declared, LOWEST_OPSET, samples, "", declared.source))
        return declared

    return decorate


def _refuse_foreign(target: str, function: Callable[..., Any]) -> None:
    import torch

    namespace, name = target.split("::")
    if hasattr(getattr(torch.ops, namespace), name):
        raise InputError(
            f"@operator({target!r}) at {_source(function)}: torch already has an operator of this name.",
            fix="choose another name, or give the existing operator what it lacks with opbridge.translation, "
            "opbridge.decomposition, opbridge.fake_for or opbridge.body_for.",
        )


def register_fake(target: str, function: Callable[..., Any]) -> None:
    """Give the torch operator ``target`` a shape function.

    Raises:
        InputError: There is no such operator, or it has a shape function already.
    """
    import torch

    namespace, _, name = target.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.split(".")[0], None)
    if packet is None:
        raise InputError(
            f"fake_for({target!r}): torch has no operator of this name.",
            fix="import the library that registers it first, or check the spelling; a plain Python or C++ function "
            "is made an operator with @opbridge.operator.",
        )
    try:
        torch.library.register_fake(target, function, allow_override=True)
    except RuntimeError as error:
        raise InputError(
            f"fake_for({target!r}): torch refuses the shape function: {first_line(error)}",
            fix="the operator has a shape function already; remove this one.",
        ) from error
