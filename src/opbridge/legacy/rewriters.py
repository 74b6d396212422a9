"""MMDeploy's three registries, by their own words, on opbridge's rungs.

::

    from opbridge.legacy.rewriters import FUNCTION_REWRITER, MODULE_REWRITER, SYMBOLIC_REWRITER, for_engine

    @FUNCTION_REWRITER.register_rewriter(func_name="mydet.decode_boxes", backend="onnxruntime")
    def decode_boxes__onnxruntime(points, distances): ...

    with for_engine("onnxruntime") as rewriters:
        opbridge.export(rewriters.replaced(model), args, path="build/model", ops=rewriters.ops)

A function becomes a mapping of the rung ``rewrite``, a symbolic function one that the bridge honours, and a module
another module while the block runs. A declaration for the engine beats one for ``"default"``.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from opbridge.catalog.declare.spec import OPS_FILE_PREFIX, OpSpec, declare
from opbridge.errors import InputError
from opbridge.legacy import torch_registry
from opbridge.legacy.registrations import register_custom_op_symbolic, unregister_custom_op_symbolic
from opbridge.legacy.switch import enable
from opbridge.torch_graph import LOWEST_OPSET

if TYPE_CHECKING:
    import torch

__all__ = ["FUNCTION_REWRITER", "MODULE_REWRITER", "SYMBOLIC_REWRITER", "Context", "Rewriters", "for_engine"]

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT = "default"


@dataclasses.dataclass(frozen=True)
class Context:
    """What a rewriter may ask for.

    Attributes:
        origin_func: The function that is replaced; None for a symbolic function.
        cfg: The configuration that :func:`for_engine` was given.
        backend: The engine.
    """

    origin_func: Callable[..., Any] | None
    cfg: Mapping[str, Any]
    backend: str


_context: contextvars.ContextVar[Context | None] = contextvars.ContextVar("opbridge_rewriter", default=None)


class _Registry:
    """What is declared, by name and engine."""

    def __init__(self) -> None:
        self.declared: dict[str, dict[str, tuple[Any, dict[str, Any]]]] = {}

    def get_context(self) -> Context:
        """The context of the rewriter that is running.

        Raises:
            InputError: None is.
        """
        context = _context.get()
        if context is None:
            raise InputError(
                "get_context: no rewriter is running.", fix="call it inside a rewriter, while a model is exported."
            )
        return context

    def _add(self, name: str, backend: Any, value: Any, **options: Any) -> None:
        self.declared.setdefault(name, {})[str(getattr(backend, "value", backend))] = (value, options)

    def for_backend(self, backend: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """What is in force for an engine."""
        for name, by_backend in self.declared.items():
            chosen = by_backend.get(backend) or by_backend.get(DEFAULT)
            if chosen is not None:
                yield name, *chosen


class FunctionRewriter(_Registry):
    """``FUNCTION_REWRITER``: a Python function or a torch API is replaced while the model is captured."""

    def register_rewriter(self, func_name: str, backend: Any = DEFAULT, **_: Any) -> Callable[[F], F]:
        """Declare the decorated function as what takes the place of another.

        Args:
            func_name: The import path of the other: ``"torch.Tensor.repeat"``, ``"mydet.boxes.decode"``.
            backend: The engine's name, or ``"default"`` for every engine.

        Returns:
            A decorator. The function takes the other's arguments, after a context if its first parameter is called
            ``ctx``; :meth:`get_context` gives the other as ``origin_func``.
        """

        def decorate(function: F) -> F:
            self._add(func_name, backend, function)
            return function

        return decorate


class SymbolicRewriter(_Registry):
    """``SYMBOLIC_REWRITER``: a symbolic function for a torch operator or an autograd.Function."""

    def register_symbolic(
        self,
        func_name: str,
        backend: Any = DEFAULT,
        is_pytorch: bool = False,
        arg_descriptors: Sequence[str] | None = None,
        **_: Any,
    ) -> Callable[[F], F]:
        """Declare the decorated function as a symbolic function.

        Args:
            func_name: ``"grid_sampler"`` (of aten) or ``"mylib::op"`` with ``is_pytorch``, otherwise the import path of
                an autograd.Function.
            backend: The engine's name, or ``"default"`` for every engine.
            is_pytorch: Whether it is for a registered operator.
            arg_descriptors: The codes of ``parse_args``.
        """

        def decorate(function: F) -> F:
            self._add(func_name, backend, function, is_pytorch=is_pytorch, codes=arg_descriptors)
            return function

        return decorate


class ModuleRewriter(_Registry):
    """``MODULE_REWRITER``: a submodule is replaced by another that is made from it."""

    def register_rewrite_module(self, module_type: str | type, backend: Any = DEFAULT, **_: Any) -> Callable[[F], F]:
        """Declare the decorated class as what takes the place of modules of a type.

        Args:
            module_type: The class, or its import path.
            backend: The engine's name, or ``"default"`` for every engine.

        Returns:
            A decorator. The class is made from the module and, if it takes a second argument, the configuration.
        """
        name = module_type if isinstance(module_type, str) else f"{module_type.__module__}.{module_type.__qualname__}"

        def decorate(replacement: F) -> F:
            self._add(name, backend, replacement)
            return replacement

        return decorate


FUNCTION_REWRITER = FunctionRewriter()
SYMBOLIC_REWRITER = SymbolicRewriter()
MODULE_REWRITER = ModuleRewriter()

_OPSET = 11
"""From which opset on a symbolic function counts; MMDeploy asks for none."""


class Rewriters:
    """The rewriters that are in force in a :func:`for_engine` block.

    Attributes:
        ops: What ``opbridge.export`` and ``opbridge.diagnose`` take as ``ops=``.
    """

    def __init__(self, backend: str, config: Mapping[str, Any], undo: contextlib.ExitStack) -> None:
        self._backend, self._config, self._undo = backend, config, undo
        self.ops = tuple(
            _as_rewrite(name, function, backend, config) for name, function, _ in FUNCTION_REWRITER.for_backend(backend)
        )

    def replaced(self, model: torch.nn.Module) -> torch.nn.Module:
        """The model with its modules replaced; at the end of the block it is as it was."""
        types = {_imported(name): made for name, made, _ in MODULE_REWRITER.for_backend(self._backend)}
        if type(model) in types:
            return self._made(types[type(model)], model)
        made: dict[torch.nn.Module, torch.nn.Module] = {}
        modules = dict(model.named_modules(remove_duplicate=False))  # One module may stand in several places.
        for path, child in modules.items():
            if path and type(child) in types:
                if child not in made:
                    made[child] = self._made(types[type(child)], child)
                parent, name = modules[path.rpartition(".")[0]], path.rpartition(".")[2]
                self._undo.callback(setattr, parent, name, child)
                setattr(parent, name, made[child])
        return model

    def _made(self, replacement: Callable[..., Any], module: torch.nn.Module) -> Any:
        several = len(inspect.signature(replacement).parameters) > 1
        made = replacement(module, self._config) if several else replacement(module)
        return made.train(module.training)


@contextlib.contextmanager
def for_engine(backend: str, config: Mapping[str, Any] | None = None) -> Iterator[Rewriters]:
    """Put everything that is declared for an engine, or for ``"default"``, in force; the bridge is on meanwhile.

    Args:
        backend: The engine's name: ``"onnxruntime"``, ``"ncnn"``, ``"tensorrt"``...
        config: What rewriters find as ``cfg`` of their context.

    Raises:
        InputError: A name that was declared can't be imported.
    """
    config = config or {}
    with contextlib.ExitStack() as undo:
        undo.enter_context(enable())
        for name, function, options in SYMBOLIC_REWRITER.for_backend(backend):
            symbolic = _as_symbolic(function, options["codes"], backend, config)
            if options["is_pytorch"]:
                undo.enter_context(_with_registration(name if "::" in name else f"aten::{name}", symbolic))
            else:
                undo.enter_context(_with_symbolic(_imported(name), symbolic))
        yield Rewriters(backend, config, undo)


def _as_rewrite(name: str, function: Callable[..., Any], backend: str, config: Mapping[str, Any]) -> Callable[..., Any]:
    """The function as ``opbridge.rewrite`` wants it: with the original as its first argument."""

    @functools.wraps(function)
    def rewrite(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with _running(Context(original, config, backend)) as context:
            return function(*_leading(function, context), *args, **kwargs)

    code = inspect.unwrap(function).__code__
    del rewrite.__wrapped__  # type: ignore[attr-defined]
    rewrite.__module__ = f"{OPS_FILE_PREFIX}rewriters"  # It counts where it is passed as ops=, and nowhere else.
    declare(OpSpec(name, "rewrite", rewrite, LOWEST_OPSET, None, "", f"{code.co_filename}:{code.co_firstlineno}"))
    return rewrite


def _as_symbolic(
    function: Callable[..., Any], codes: Sequence[str] | None, backend: str, config: Mapping[str, Any]
) -> Callable[..., Any]:
    def symbolic(g: Any, *args: Any, **kwargs: Any) -> Any:
        with _running(Context(None, config, backend)) as context:
            return function(*_leading(function, context), g, *args, **kwargs)

    functools.update_wrapper(symbolic, function)
    # parse_args reads the names of the arguments here.
    parameters = list(inspect.signature(function).parameters.values())
    own = parameters[1:] if _wants_context(function) else parameters
    symbolic.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    if codes is None:
        return symbolic
    from torch.onnx.symbolic_helper import parse_args

    return parse_args(*codes)(symbolic)  # type: ignore[arg-type]


@contextlib.contextmanager
def _with_registration(name: str, symbolic: Callable[..., Any]) -> Iterator[None]:
    """A registered symbolic function; one that was registered before comes back."""
    own = torch_registry.registered().get(name, {}).get(_OPSET)
    register_custom_op_symbolic(name, symbolic, _OPSET)
    try:
        yield
    finally:
        unregister_custom_op_symbolic(name, _OPSET)
        if own is not None:
            register_custom_op_symbolic(name, own, _OPSET)


@contextlib.contextmanager
def _with_symbolic(function: Any, symbolic: Callable[..., Any]) -> Iterator[None]:
    """An autograd.Function with another ``symbolic``."""
    own = vars(function).get("symbolic")
    function.symbolic = staticmethod(symbolic)
    try:
        yield
    finally:
        if own is None:
            del function.symbolic
        else:
            function.symbolic = own


@contextlib.contextmanager
def _running(context: Context) -> Iterator[Context]:
    token = _context.set(context)
    try:
        yield context
    finally:
        _context.reset(token)


def _wants_context(function: Callable[..., Any]) -> bool:
    return next(iter(inspect.signature(function).parameters), "") == "ctx"


def _leading(function: Callable[..., Any], context: Context) -> tuple[Context, ...]:
    return (context,) if _wants_context(function) else ()


def _imported(path: str) -> Any:
    """The class of an import path.

    Raises:
        InputError: There is none.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"rewriters: {path!r} can't be imported: {error}.", fix="check the import path, or install its package."
        ) from error
