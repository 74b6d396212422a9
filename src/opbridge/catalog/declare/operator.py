"""``@opbridge.operator``: a user's own operator, declared once.

The declaration registers the function as a ``torch.library`` operator, so that it stays one node when a model is
captured. The Python function is the operator's implementation in PyTorch, its shape function (run on fake tensors), and
the body of its ONNX function.
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
    """A declared operator, which is called like the function that it was made from.

    Attributes:
        target: ``"namespace::name"``.
        function: The Python function, which is the reference for kernels and bodies.
        body: Torch code for the ONNX function body: ``function``, or the function passed to :meth:`set_body`.
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
        """Use ``function`` as the shape function instead of the operator's own function.

        A separate shape function is needed if the operator's function cannot run on fake tensors because it calls C++
        or NumPy, or reads a tensor's contents. The shape function has the operator's parameters and returns empty
        tensors of the result's shapes and dtypes.
        """
        self._definition.register_fake(_contiguous(function))
        return function

    def set_body(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Use ``function``, torch code with the same signature, as the ONNX function body.

        A separate body is needed if the operator's own function does not consist of torch operators.
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
        """Declare a compiled kernel (rung ``kernel``), for every engine and for PyTorch on the CPU.

        The kernel is compiled when it is first needed: by an export, or by the first call on CPU tensors. The Python
        function remains the reference, the implementation for other devices and element types, the source of
        gradients, and the ONNX function body.

        A C++ kernel is a file: ``my_add.kernel("my_add.h")``. A Python kernel is a function that Numba compiles; the
        compiled library needs no Python at run time::

            @my_add.kernel
            def my_add_kernel(a, b):                  # one element of each input, broadcast
                return 2 * a + b


            @rms_norm.kernel(layout="x[..., n] -> y[..., n]")
            def rms_norm_kernel(x, epsilon, y, begin, end):
                for row in range(begin, end):         # a range of y's first axis, on one thread of the engine
                    ...

        Args:
            header: The kernel's C++ file (see ``opbridge.h``), relative to the file of this declaration; or a function.
            native: Whether to use all instructions of this machine's processor; the library may then not run on others.
            layout: For a Python kernel on arrays: its tensors, their sizes, and element types other than T.
            dtypes: For a Python kernel: the element types of T, or of each type variable of the layout.
            grain: For a Python kernel: the minimum number of steps between begin and end.

        Returns:
            The decorated function; a decorator if ``header`` is None; None if ``header`` is a file.

        Raises:
            InputError: The file is missing, another kernel is declared for the operator, or the function's parameters
                or layout do not match the operator.
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
        """Compile the declared kernel and make it the CPU implementation; False if it is already done or has failed."""
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
        """The operator's implementation in PyTorch until a kernel replaces it on the CPU."""
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
        """Define gradients by differentiating the Python function, which consists of differentiable torch operators."""

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
    # For a list of numbers torch expects one None.
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
    """Wrap the function so that its results are contiguous.

    A kernel's results are contiguous. If the Python function had other strides, a compiled graph would misread them.
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
    """The operator declared as ``target`` in this process, or None."""
    return _operators.get(target)


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Make every declared operator run its Python function in PyTorch: the reference for its kernel."""
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
    """Declare your own operator.

    The decorated function consists of torch operators, and its annotations define the operator's schema. The result is
    the torch operator ``torch.ops.namespace.name``. It is one node in a captured graph, and one node
    ``namespace::name`` in the ONNX model with the function as its ONNX function body, so that it runs in every engine::

        @opbridge.operator("mylib::my_add")
        def my_add(a: Tensor, b: Tensor) -> Tensor:
            return 2 * a + b

        my_add.kernel("my_add.h")              # optional: a compiled kernel

    Args:
        target: The operator's name: ``"mylib::my_add"``.
        samples: A function that returns the inputs on which ``opbridge test-op`` tests the operator.

    Raises:
        InputError: The target is malformed or already declared elsewhere, or the signature is not annotated.
    """
    if not _TARGET.fullmatch(target) or "." in target:
        raise InputError(
            f"@operator({target!r}): the name of an operator has the form 'namespace::name'.",
            fix="write, for example, @opbridge.operator('mylib::my_add').",
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
            fix="choose another name, or extend the existing operator with opbridge.translation, "
            "opbridge.decomposition, opbridge.fake_for or opbridge.body_for.",
        )


def register_fake(target: str, function: Callable[..., Any]) -> None:
    """Register the shape function of the torch operator ``target``.

    Raises:
        InputError: The operator does not exist, or already has a shape function.
    """
    import torch

    namespace, _, name = target.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.split(".")[0], None)
    if packet is None:
        raise InputError(
            f"fake_for({target!r}): torch has no operator of this name.",
            fix="first import the library that registers it, or check the spelling; to make an operator from a plain "
            "Python or C++ function use @opbridge.operator.",
        )
    try:
        torch.library.register_fake(target, function, allow_override=True)
    except RuntimeError as error:
        raise InputError(
            f"fake_for({target!r}): torch rejects the shape function: {first_line(error)}",
            fix="the operator already has a shape function; remove this one.",
        ) from error
