"""Runs the checks of a file, one after the other."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from opbridge.bundle.bundle import Bundle
from opbridge.catalog.declare.operator import Operator, without_kernels
from opbridge.errors import BuildError, InputError
from opbridge.kernels.compiler import build
from opbridge.kernels.library import KernelLibrary
from opbridge.kernels.toolchain import find_compiler
from opbridge.kernels.torch_adapter import attach, detach
from opbridge.proof.operators.in_engines import check_engine, missing_engine
from opbridge.proof.operators.in_pytorch import check_gradients, check_kernel, check_opcheck, check_shapes
from opbridge.proof.operators.outcome import Outcome, failed, failed_with, not_applicable, not_run, passed
from opbridge.proof.operators.result import CheckResult
from opbridge.proof.operators.subjects import Case, Subject, error_and_place, find_subjects, sample_cases

__all__ = ["run_checks"]

Begin = Callable[[str, str, str], None]
Export = Callable[..., Bundle]

_NO_SAMPLES = {
    "rewrite": "a rewrite has no samples: export a model that uses the function",
    "fake": "fake_for takes no samples: export a model that uses the operator",
    "function": "body_for takes no samples: export a model that uses the operator",
}


def run_checks(file: str, engines: Sequence[str], begin: Begin, export: Export) -> Iterator[CheckResult]:
    """Check the operators, mappings and kernels that ``file`` declares.

    Args:
        file: A Python file.
        engines: The engines to check in, installed or not.
        begin: A callback that receives the target, the sample and the check as it begins.
        export: :func:`opbridge.export`.

    Raises:
        InputError: The file can't be imported, or declares nothing.
    """
    begin("", "", "import")
    for subject in find_subjects(Path(file)):
        yield from _check_subject(subject, engines, begin, export)


def _check_subject(subject: Subject, engines: Sequence[str], begin: Begin, export: Export) -> Iterator[CheckResult]:
    target = subject.target
    built = None
    if subject.kernel is not None:
        begin(target, "", "kernel builds")
        built = _build(subject)
        yield _result(target, "", "kernel builds", built)
    rung = subject.spec.rung if subject.spec is not None else ""
    if subject.operator is None and rung not in ("decompose", "translate"):
        reason = _NO_SAMPLES.get(rung, "no operator of this name is declared in the file: export a model that has it")
        yield _result(target, "", "samples", not_applicable(reason))
        return
    begin(target, "", "samples")
    try:
        cases = list(sample_cases(subject))
    except InputError as error:
        yield _result(target, "", "samples", failed_with(error))
        return
    missing = {name: why for name in engines if (why := missing_engine(name)) is not None}
    for name, why in missing.items():
        yield _result(target, "", name, not_run(why))
    installed = [name for name in engines if name not in missing]
    for case in cases:
        yield from _check_case(case, installed, built, begin, export)


def _build(subject: Subject) -> Outcome:
    """Compile the kernel, and check that it defines the operator with the same arguments."""
    kernel = subject.kernel
    assert kernel is not None
    try:
        find_compiler()
    except BuildError as error:
        return not_run(f"{error.message} {error.fix}")
    try:
        path = build([kernel.header], native=kernel.native)
        library = KernelLibrary(path)
        offered = [operator.target for operator in library.operators]
        if kernel.target not in offered:
            return failed(
                f"{kernel.file.name} has no kernel for {kernel.target}; it has: {', '.join(offered)}\n"
                "fix: make the name in OPBRIDGE_OPERATOR's schema and the declared one the same."
            )
        if subject.operator is not None:
            attach(kernel.target, path)
            detach(kernel.target)
    except (BuildError, InputError) as error:
        return failed_with(error)
    variants = library.operator(kernel.target).variants
    return passed(f"{kernel.file.name}: {'; '.join(', '.join(variant) for variant in variants)}".rstrip(": "))


def _check_case(
    case: Case, engines: Sequence[str], built: Outcome | None, begin: Begin, export: Export
) -> Iterator[CheckResult]:
    target, operator = case.subject.target, case.subject.operator
    if operator is not None:
        begin(target, case.name, "Python function")
        try:
            case.call(operator.function)
        except Exception as error:
            detail = f"it raises {error_and_place(error)}"
            yield _result(target, case.name, "Python function", Outcome("failed", detail, failed_with(error).log))
            return
        for check, outcome in _checks_in_pytorch(case, operator, built, begin):
            yield _result(target, case.name, check, outcome)
    if built is not None and built.status != "passed":
        for name in engines:
            yield _result(target, case.name, name, not_run("the kernel is not built"))
        return
    for name in engines:
        begin(target, case.name, name)
        for check, outcome in check_engine(case, name, export):
            yield _result(target, case.name, check, outcome)


def _checks_in_pytorch(
    case: Case, operator: Operator, built: Outcome | None, begin: Begin
) -> Iterator[tuple[str, Outcome]]:
    checks: dict[str, Callable[[Case, Operator], Outcome]] = {
        "opcheck": check_opcheck,
        "shapes": check_shapes,
        "kernel": check_kernel,
        "gradients": check_gradients,
    }
    usable = built is None or built.status == "passed"
    for name, check in checks.items():
        begin(operator.target, case.name, name)
        if name == "kernel" and built is None:
            yield name, not_applicable("the operator has no kernel")
        elif name == "kernel" and not usable:
            yield name, not_run("the kernel is not built")
        else:
            # A kernel that can't be built must not make the checks of the Python function fail.
            with contextlib.nullcontext() if usable else without_kernels(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    outcome = check(case, operator)
                except Exception as error:
                    outcome = failed_with(error)
            yield name, outcome


def _result(target: str, sample: str, check: str, outcome: Outcome) -> CheckResult:
    return CheckResult(target, sample, check, outcome.status, outcome.detail, outcome.log)
