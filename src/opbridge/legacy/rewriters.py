"""MMDeploy's three registries, implemented with opbridge's rungs.

::

    from opbridge.legacy.rewriters import FUNCTION_REWRITER, MODULE_REWRITER, SYMBOLIC_REWRITER, for_engine

    @FUNCTION_REWRITER.register_rewriter(func_name="mydet.decode_boxes", backend="onnxruntime")
    def decode_boxes__onnxruntime(points, distances): ...

    with for_engine("onnxruntime") as rewriters:
        opbridge.export(rewriters.replaced(model), args, path="build/model")

A function rewriter becomes a mapping of the rung ``rewrite``, a symbolic rewriter becomes a symbolic function that the
bridge honours, and a module rewriter replaces modules inside the block. A declaration for the engine takes precedence
over one for ``"default"``.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from opbridge.catalog.declare.spec import OPS_FILE_PREFIX, OpSpec, declare, specs_of
from opbridge.errors import InputError
from opbridge.legacy import torch_registry
from opbridge.legacy.exporter_rewriters import is_in_exporter, replaced_in_exporter
from opbridge.legacy.registrations import register_custom_op_symbolic, unregister_custom_op_symbolic
from opbridge.legacy.switch import enable
from opbridge.torch_graph import LOWEST_OPSET

if TYPE_CHECKING:
    import torch

__all__ = [
    "FUNCTION_REWRITER",
    "MODULE_REWRITER",
    "SYMBOLIC_REWRITER",
    "Context",
    "Rewriters",
    "active_specs",
    "for_engine",
]

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT = "default"


@dataclasses.dataclass(frozen=True)
class Context:
    """The context of a rewriter.

    Attributes:
        name: The name for which the rewriter is declared.
        origin_func: The function that is replaced; None for a symbolic function.
        cfg: The configuration passed to :func:`for_engine`.
        backend: The name of the engine.
    """

    name: str
    origin_func: Callable[..., Any] | None
    cfg: Mapping[str, Any]
    backend: str


_contexts: contextvars.ContextVar[tuple[Context, ...]] = contextvars.ContextVar("opbridge_rewriters", default=())


class _Registry:
    """The declarations of one kind, by name and engine."""

    def __init__(self) -> None:
        self.declared: dict[str, dict[str, tuple[Any, dict[str, Any]]]] = {}

    def get_context(self, key: str | None = None) -> Context:
        """Return the context of the running rewriter, or of the one that is declared for the name ``key``.

        Raises:
            InputError: No such rewriter is running.
        """
        running = [context for context in _contexts.get() if key in (None, context.name)]
        if not running:
            which = "no rewriter" if key is None else f"no rewriter of {key!r}"
            raise InputError(f"get_context: {which} is running.", fix="call it inside a rewriter, during an export.")
        return running[-1]

    def _add(self, name: str, backend: Any, value: Any, **options: Any) -> None:
        self.declared.setdefault(name, {})[str(getattr(backend, "value", backend))] = (value, options)

    def for_backend(self, backend: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """Yield the name, value and options of each declaration that applies to an engine."""
        for name, by_backend in self.declared.items():
            chosen = by_backend.get(backend) or by_backend.get(DEFAULT)
            if chosen is not None:
                yield name, *chosen


class FunctionRewriter(_Registry):
    """``FUNCTION_REWRITER``, which replaces a Python function or a torch API while the model is captured."""

    def register_rewriter(self, func_name: str, backend: Any = DEFAULT, **_: Any) -> Callable[[F], F]:
        """Declare the decorated function as the replacement of another function.

        Args:
            func_name: The import path of the replaced function, such as ``"torch.Tensor.repeat"``.
            backend: The name of the engine, or ``"default"`` for every engine.

        Returns:
            A decorator. The decorated function takes the arguments of the replaced function, after a context if its
            first parameter is named ``ctx``. ``origin_func`` of :meth:`get_context` is the replaced function.
        """

        def decorate(function: F) -> F:
            self._add(func_name, backend, function)
            return function

        return decorate


class SymbolicRewriter(_Registry):
    """``SYMBOLIC_REWRITER``, which declares a symbolic function for a torch operator or an autograd.Function."""

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
            func_name: The operator if ``is_pytorch`` is set (``"grid_sampler"`` of aten, or ``"mylib::op"``),
                otherwise the import path of an autograd.Function.
            backend: The name of the engine, or ``"default"`` for every engine.
            is_pytorch: Whether ``func_name`` is a registered operator.
            arg_descriptors: The argument descriptors of ``parse_args``.
        """

        def decorate(function: F) -> F:
            self._add(func_name, backend, function, is_pytorch=is_pytorch, codes=arg_descriptors)
            return function

        return decorate


class ModuleRewriter(_Registry):
    """``MODULE_REWRITER``, which replaces a submodule by another module constructed from it."""

    def register_rewrite_module(self, module_type: str | type, backend: Any = DEFAULT, **_: Any) -> Callable[[F], F]:
        """Declare the decorated class as the replacement of modules of a type.

        Args:
            module_type: The class of the replaced modules, or its import path.
            backend: The name of the engine, or ``"default"`` for every engine.

        Returns:
            A decorator. The decorated class is constructed from the replaced module and, if it takes a second argument,
            the configuration.
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
"""The lowest opset to which a symbolic function applies; MMDeploy's declarations have none."""


class Rewriters:
    """The active rewriters of a :func:`for_engine` block.

    Attributes:
        ops: The function rewriters as ``ops=``, which exports inside the block do not need.
    """

    def __init__(self, backend: str, config: Mapping[str, Any], undo: contextlib.ExitStack) -> None:
        self._backend, self._config, self._undo = backend, config, undo
        self.ops = tuple(
            _as_rewrite(name, function, backend, config)
            for name, function, _ in FUNCTION_REWRITER.for_backend(backend)
            if not is_in_exporter(name)
        )

    def replaced(self, model: torch.nn.Module) -> torch.nn.Module:
        """Replace modules of the model, and return it; the end of the block restores the model."""
        declared = {_imported(name): made for name, made, _ in MODULE_REWRITER.for_backend(self._backend)}
        types = {replaced: made for replaced, made in declared.items() if replaced is not None}
        if type(model) in types:
            return self._made(types[type(model)], model)
        made: dict[torch.nn.Module, torch.nn.Module] = {}
        modules = dict(model.named_modules(remove_duplicate=False))  # A module may occur in several places.
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
    """Activate all declarations for an engine, or for ``"default"``, and turn the bridge on inside the block.

    Args:
        backend: The name of the engine, such as ``"onnxruntime"`` or ``"tensorrt"``.
        config: The configuration, which rewriters read as ``cfg`` of their context.
    """
    config = config or {}
    with contextlib.ExitStack() as undo:
        undo.enter_context(enable())
        for name, function, options in SYMBOLIC_REWRITER.for_backend(backend):
            symbolic = _as_symbolic(name, function, options["codes"], backend, config)
            if options["is_pytorch"]:
                undo.enter_context(_with_registration(name if "::" in name else f"aten::{name}", symbolic))
            elif (replaced := _imported(name)) is not None:
                undo.enter_context(_with_symbolic(replaced, symbolic))
        for name, function, _ in FUNCTION_REWRITER.for_backend(backend):
            if is_in_exporter(name):
                replacement = _with_original(name, function, backend, config)
                symbolics = undo.enter_context(replaced_in_exporter(name, replacement))
                for operator, symbolic in symbolics.items():
                    undo.enter_context(_with_registration(operator, symbolic))
        rewriters = Rewriters(backend, config, undo)
        undo.enter_context(_active(rewriters.ops))
        yield rewriters


_active_specs: list[OpSpec] = []


def active_specs() -> tuple[OpSpec, ...]:
    """Return the rewrites of all open :func:`for_engine` blocks."""
    return tuple(_active_specs)


@contextlib.contextmanager
def _active(functions: Sequence[Callable[..., Any]]) -> Iterator[None]:
    """Let each export inside the block use the rewrites, also one that gets no ``ops=``."""
    specs = [spec for function in functions for spec in specs_of(function)]
    _active_specs.extend(specs)
    try:
        yield
    finally:
        for spec in specs:
            _active_specs.remove(spec)


def _with_original(
    name: str, function: Callable[..., Any], backend: str, config: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return the function with the original as its first argument."""

    @functools.wraps(function)
    def rewrite(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with _running(Context(name, original, config, backend)) as context:
            return function(*_leading(function, context), *args, **kwargs)

    return rewrite


def _as_rewrite(name: str, function: Callable[..., Any], backend: str, config: Mapping[str, Any]) -> Callable[..., Any]:
    """Declare the function as ``opbridge.rewrite`` does."""
    rewrite: Any = _with_original(name, function, backend, config)
    code = inspect.unwrap(function).__code__
    del rewrite.__wrapped__
    rewrite.__module__ = f"{OPS_FILE_PREFIX}rewriters"  # With this name, it applies in the block only.
    declare(OpSpec(name, "rewrite", rewrite, LOWEST_OPSET, None, "", f"{code.co_filename}:{code.co_firstlineno}"))
    return rewrite


def _as_symbolic(
    name: str, function: Callable[..., Any], codes: Sequence[str] | None, backend: str, config: Mapping[str, Any]
) -> Callable[..., Any]:
    def symbolic(g: Any, *args: Any, **kwargs: Any) -> Any:
        with _running(Context(name, None, config, backend)) as context:
            return function(*_leading(function, context), g, *args, **kwargs)

    functools.update_wrapper(symbolic, function)
    # parse_args reads the names of the arguments from the signature.
    parameters = list(inspect.signature(function).parameters.values())
    own = parameters[1:] if _wants_context(function) else parameters
    symbolic.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    if codes is None:
        return symbolic
    from torch.onnx.symbolic_helper import parse_args

    return parse_args(*codes)(symbolic)  # type: ignore[arg-type]


@contextlib.contextmanager
def _with_registration(name: str, symbolic: Callable[..., Any]) -> Iterator[None]:
    """Register a symbolic function inside the block, and restore an earlier one afterwards."""
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
    """Replace the ``symbolic`` of an autograd.Function inside the block."""
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
    token = _contexts.set((*_contexts.get(), context))
    try:
        yield context
    finally:
        _contexts.reset(token)


def _wants_context(function: Callable[..., Any]) -> bool:
    return next(iter(inspect.signature(function).parameters), "") == "ctx"


def _leading(function: Callable[..., Any], context: Context) -> tuple[Context, ...]:
    return (context,) if _wants_context(function) else ()


def _imported(path: str) -> Any:
    """Return what an import path names, also an attribute of a function (``"mmcv.ops.roi_align.__self__"``).

    What is not installed is left out with a warning, because the declarations of a library are for many others.
    """
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            importlib.import_module(".".join(parts[:count]))
            break
    try:
        return functools.reduce(getattr, parts[1:], importlib.import_module(parts[0]))
    except (ImportError, AttributeError, ValueError) as error:
        warnings.warn(f"rewriters: {path!r} can't be imported, so nothing replaces it: {error}.", stacklevel=3)
        return None
