"""Generate the C++ source around the assembly of a kernel in Python.

The source holds the assembly, the operator's schema, the shape function of the layout, and the kernel, which calls the
assembly in the host's threads. It is built, cached and bundled like any kernel in C++, without Python.
"""

from __future__ import annotations

import itertools
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence

from opbridge.kernels import numba_compiler
from opbridge.kernels.layout import TensorLayout, cpp_size
from opbridge.kernels.numba_compiler import Entry
from opbridge.kernels.python_kernel import DTYPES, Parameter, PythonKernel
from opbridge.kernels.python_source import place, returning_errors, source_text

__all__ = ["cpp_source"]

# With more inputs, an elementwise kernel would have too many loops: one for each choice of repeated inputs.
_MOST_CHOICES = 3


def cpp_source(kernel: PythonKernel, *, native: bool) -> str:
    """Compile a kernel, and write the C++ source that holds it.

    Args:
        kernel: The kernel to compile.
        native: Compile for this machine's processor only.

    Raises:
        BuildError: Numba is missing, can't compile the function, or the result needs Python.
    """
    texts: tuple[str, ...] = ()
    function = kernel.function
    if not kernel.layout.elementwise:
        function, texts = returning_errors(function)
    entries = list(_entries(kernel))
    assembly = [
        numba_compiler.compile_entry(entry, kernel.function, function, native=native) for _, _, entry in entries
    ]
    wide = any(f"\n{entries[0][2].symbol}_avx2:" in text for text in assembly)
    parts = [
        _head(kernel),
        'asm(R"opbridge_asm(\n' + "\n".join(assembly) + '.text\n)opbridge_asm");\n\nnamespace {\n',
        _compiled_struct(kernel, entries, wide),
        _elementwise(kernel) if kernel.layout.elementwise else _arrays(kernel, texts),
        "}  // namespace\n",
        _registration(kernel),
    ]
    return "\n".join(parts)


def _head(kernel: PythonKernel) -> str:
    system = {"linux": "__linux__", "darwin": "__APPLE__", "win32": "_WIN32"}.get(sys.platform, "__linux__")
    machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    lines = "".join(f"//   {line}\n".replace("   \n", "\n") for line in source_text(kernel.function).splitlines())
    file = place(kernel.function).replace("\\", "/").rsplit("/", 1)[-1]
    return f"""\
// The kernel of {kernel.target}. It is written in Python ({file}) and was compiled by Numba:
//
{lines}//
// The following code is generated: change the Python function instead.
#include "opbridge.h"
#include "opbridge/layout.h"

#if !defined({system}) || !defined(__{machine}__)
#error "this kernel was compiled from Python for {sys.platform} on {machine}; for another platform, export there"
#endif
"""


def _entries(kernel: PythonKernel) -> Iterator[tuple[dict[str, str], int, Entry]]:
    """The functions to compile, each with its variant and its choice of optional inputs as bits."""
    optional = [parameter.name for parameter in kernel.parameters if parameter.optional]
    for variant in kernel.variants:
        for choice in range(2 ** len(optional)):
            given = {name for bit, name in enumerate(optional) if choice >> bit & 1}
            symbol = "_".join([f"opbridge_python_{kernel.name}", *variant.values(), str(choice)])
            if kernel.layout.elementwise:
                yield variant, choice, _elementwise_entry(kernel, variant, symbol)
            else:
                absent = set(optional) - given
                yield variant, choice, _array_entry(kernel, variant, absent, symbol)


def _attributes(kernel: PythonKernel) -> tuple[list[str], list[str], dict[str, str]]:
    """An entry's parameters for attributes, their types, and the kernel's argument for each."""
    names: list[str] = []
    kinds: list[str] = []
    values: dict[str, str] = {}
    for parameter in kernel.parameters:
        name, kind = parameter.name, parameter.kind
        if kind in ("int[]", "float[]"):
            names += [name, f"{name}_count"]
            kinds += [f"{'int64' if kind == 'int[]' else 'float64'}*", "int64"]
            values[name] = f"carray({name}, ({name}_count,))"
        elif kind != "tensor":
            names.append(name)
            kinds.append("float64" if kind == "float" else "int64")
            values[name] = f"{name} != 0" if kind == "bool" else name
    return names, kinds, values


def _array_entry(kernel: PythonKernel, variant: Mapping[str, str], absent: set[str], symbol: str) -> Entry:
    names, kinds, values = _attributes(kernel)
    for tensor in kernel.layout.tensors:
        sizes = [f"{tensor.name}_{axis}" for axis in range(len(tensor.sizes or ()))]
        names += [tensor.name, *sizes]
        kinds += [f"{kernel.dtype(tensor, variant)}*", *["int64"] * len(sizes)]
        present = f"carray({tensor.name}, ({', '.join(sizes)},))"
        values[tensor.name] = "None" if tensor.name in absent else present
    order = [parameter.name for parameter in kernel.parameters]
    arguments = [values[name] for name in [*order, *(tensor.name for tensor in kernel.layout.outputs)]]
    if kernel.threaded:
        names, kinds, arguments = [*names, "begin", "end"], [*kinds, "int64", "int64"], [*arguments, "begin", "end"]
    source = f"def entry({', '.join(names)}):\n    return kernel({', '.join(arguments)})\n"
    return Entry(symbol, source, tuple(kinds), "int32")


def _elementwise_entry(kernel: PythonKernel, variant: Mapping[str, str], symbol: str) -> Entry:
    """A loop along one axis with a step for each input, and separate loops for steps of 0 and 1."""
    names, kinds, values = _attributes(kernel)
    inputs, (output,) = kernel.layout.inputs, kernel.layout.outputs
    order = [parameter.name for parameter in kernel.parameters]

    def loop(steps: Sequence[str], indent: str) -> list[str]:
        places = {tensor.name: f"{tensor.name}[{step}]" for tensor, step in zip(inputs, steps, strict=True)}
        call = ", ".join({**values, **places}[name] for name in order)
        return [f"{indent}for i in range(count):", f"{indent}    out[i] = kernel({call})"]

    lines = [f"    {tensor.name} = carray({tensor.name}, ((count - 1) * {tensor.name}_step + 1,))" for tensor in inputs]
    lines.append("    out = carray(out, (count,))")
    if len(inputs) <= _MOST_CHOICES:
        for steps in itertools.product((1, 0), repeat=len(inputs)):
            tests = [f"{tensor.name}_step == {step}" for tensor, step in zip(inputs, steps, strict=True)]
            lines.append(f"    if {' and '.join(tests)}:")
            lines += [*loop(["i" if step else "0" for step in steps], " " * 8), "        return"]
    lines += loop([f"i * {tensor.name}_step" for tensor in inputs], " " * 4)
    for tensor in inputs:
        names += [tensor.name, f"{tensor.name}_step"]
        kinds += [f"{kernel.dtype(tensor, variant)}*", "int64"]
    names, kinds = [*names, "out", "count"], [*kinds, f"{kernel.dtype(output, variant)}*", "int64"]
    source = "\n".join([f"def entry({', '.join(names)}):", *lines, ""])
    return Entry(symbol, source, tuple(kinds), "")


def _compiled_struct(kernel: PythonKernel, entries: Sequence[tuple[dict[str, str], int, Entry]], wide: bool) -> str:
    """The compiled functions, as static functions ``run_<choice>`` of a struct per variant."""
    lines = ["template <class...>", "struct Compiled;"]
    for variant, group in itertools.groupby(entries, lambda item: item[0]):
        types = ", ".join(DTYPES[dtype] for dtype in variant.values())
        lines += ["template <>", f"struct Compiled<{types}> {{"]
        for _, choice, entry in group:
            parameters = [_cpp_type(kind) for kind in entry.parameters]
            result = "int32_t" if entry.returns else "void"
            for suffix in ["", "_avx2"] if wide else [""]:
                lines.append(
                    f"  static {result} run_{choice}{suffix}({', '.join(parameters)}) "
                    f'asm(OPBRIDGE_SYMBOL_PREFIX "{entry.symbol}{suffix}");'
                )
            names = [f"a{number}" for number in range(len(parameters))]
            declared = ", ".join(f"{kind} {name}" for kind, name in zip(parameters, names, strict=True))
            call = f"run_{choice}({', '.join(names)})"
            lines.append(f"  static {result} call_{choice}({declared}) {{")
            if wide:
                lines.append(f"    if (opbridge::has_avx2()) return run_{choice}_avx2({', '.join(names)});")
            lines += [f"    return {call};", "  }"]
        lines.append("};")
    return "\n".join(lines) + "\n"


def _cpp_type(kind: str) -> str:
    dtype = kind.removesuffix("*")
    return f"{DTYPES[dtype]}*" if kind.endswith("*") else DTYPES[dtype]


def _template(kernel: PythonKernel) -> tuple[str, str]:
    """The kernel's template line, and the arguments of its struct."""
    variables = list(kernel.dtypes)
    line = f"template <{', '.join(f'class {name}' for name in variables)}>\n" if variables else ""
    return line, ", ".join(variables)


def _type(kernel: PythonKernel, tensor: TensorLayout) -> str:
    return DTYPES.get(tensor.type, tensor.type)


def _attribute_values(kernel: PythonKernel) -> list[str]:
    """The kernel's arguments for the attributes, in the entries' order."""
    values = []
    for parameter in kernel.parameters:
        name, kind = parameter.name, parameter.kind
        if kind in ("int[]", "float[]"):
            element, getter = ("int64_t", "ints") if kind == "int[]" else ("double", "floats")
            span = f'call.attribute_{getter}("{name}")'
            values += [f"const_cast<{element}*>({span}.data())", f"{span}.size()"]
        elif kind != "tensor":
            values.append(f'call.attribute_{"float" if kind == "float" else "int"}("{name}")')
    return values


def _elementwise(kernel: PythonKernel) -> str:
    template, arguments = _template(kernel)
    inputs, (output,) = kernel.layout.inputs, kernel.layout.outputs
    handed = _attribute_values(kernel)
    for index, tensor in enumerate(inputs):
        handed += [f"const_cast<{_type(kernel, tensor)}*>(std::get<{index}>(pointers))", f"strides[{index}]"]
    given = ", ".join(f"call.input<{_type(kernel, tensor)}>({index})" for index, tensor in enumerate(inputs))
    kind = _type(kernel, output)
    return f"""\
void layout_shape(opbridge::ShapeCall& call) {{ opbridge::shape_of_broadcast(call); }}

{template}void python_kernel(opbridge::Call& call) {{
  const auto rows = [&call]({kind}* out, int64_t count, const auto& pointers, const auto& strides) {{
    Compiled<{arguments}>::call_0({", ".join([*handed, "out", "count"])});
  }};
  opbridge::elementwise_rows(call, call.output<{kind}>(0), rows, {given});
}}
"""


def _arrays(kernel: PythonKernel, texts: Sequence[str]) -> str:
    messages = ", ".join(f'"{_escaped(text)}"' for text in ("", *texts))
    return "\n".join(
        [_sizes_struct(kernel), _shape(kernel), f"const char* const messages[] = {{{messages}}};\n", _run(kernel)]
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _size_names(kernel: PythonKernel) -> list[str]:
    attributes = {parameter.name for parameter in kernel.parameters if parameter.kind == "int"}
    named = [size for tensor in kernel.layout.inputs for size in tensor.named if size.isidentifier()]
    return [name for name in dict.fromkeys(named) if name not in attributes]


def _integers(kernel: PythonKernel) -> list[Parameter]:
    return [parameter for parameter in kernel.parameters if parameter.kind == "int"]


def _sizes_struct(kernel: PythonKernel) -> str:
    """A C++ struct that reads and checks the sizes of the inputs against the layout."""
    optional = {parameter.name for parameter in kernel.parameters if parameter.optional}
    lines = ["// The sizes that the layout names.", "struct Sizes {", "  opbridge::LeadingSizes leading;"]
    lines += [
        f'  opbridge::NamedSize size_{parameter.name}{{"{parameter.name}", 0}};' for parameter in _integers(kernel)
    ]
    lines += [f'  opbridge::NamedSize size_{name}{{"{name}"}};' for name in _size_names(kernel)]
    lines += ["", "  explicit Sizes(const opbridge::Arguments& call) {"]
    for parameter in _integers(kernel):
        name = parameter.name
        lines.append(f'    size_{name} = opbridge::NamedSize("{name}", call.attribute_int("{name}"));')
    for index, tensor in enumerate(kernel.layout.inputs):
        lines.append(f"    if (call.has_input({index})) {{" if tensor.name in optional else "    {")
        count, text = len(tensor.named), f'"{tensor}"'
        leading = "true" if tensor.collapses else "false"
        lines.append(f"      opbridge::check_rank(call, {index}, {count}, {leading}, {text});")
        if tensor.collapses:
            lines.append(f"      leading.agree(call.sizes({index}), {count}, {text});")
        for axis, size in enumerate(tensor.named):
            value = f"call.size({index}, {axis - count})"
            if size.isdecimal():
                lines.append(f'      opbridge::NamedSize("the size", {size}).agree({value}, {text});')
            else:
                lines.append(f"      size_{size}.agree({value}, {text});")
        lines.append("    }")
    return "\n".join([*lines, "  }", "};", ""])


def _shape(kernel: PythonKernel) -> str:
    names = [*(parameter.name for parameter in _integers(kernel)), *_size_names(kernel)]
    lines = ["void layout_shape(opbridge::ShapeCall& call) {", "  const Sizes sizes(call);"]
    for name in names:
        lines.append(f"  [[maybe_unused]] const int64_t size_{name} = sizes.size_{name};")
    for index, tensor in enumerate(kernel.layout.outputs):
        sizes = ", ".join(cpp_size(size, names) for size in tensor.named)
        leading = "sizes.leading" if tensor.collapses else "opbridge::LeadingSizes()"
        lines.append(f'  call.set_output({index}, {leading}.with({{{sizes}}}, "{tensor}"));')
    return "\n".join([*lines, "}", ""])


def _run(kernel: PythonKernel) -> str:
    template, arguments = _template(kernel)
    optional = [parameter.name for parameter in kernel.parameters if parameter.optional]
    lines = [f"{template}void python_kernel(opbridge::Call& call) {{", "  [[maybe_unused]] const Sizes sizes(call);"]
    handed = _attribute_values(kernel)
    for index, tensor in enumerate(kernel.layout.inputs):
        kind, position = _type(kernel, tensor), f"call.input<{_type(kernel, tensor)}>({index})"
        sizes = [f"call.size({index}, {axis - len(tensor.named)})" for axis in range(len(tensor.named))]
        sizes = ["sizes.leading.count()", *sizes] if tensor.collapses else sizes
        data = f"const_cast<{kind}*>({position}.data())"
        if tensor.name in optional:
            data = f"call.has_input({index}) ? {data} : nullptr"
            sizes = [f"call.has_input({index}) ? {size} : 0" for size in sizes]
        handed += [data, *sizes]
    for index, tensor in enumerate(kernel.layout.outputs):
        lines.append(f"  const auto output_{index} = call.output<{_type(kernel, tensor)}>({index});")
        sizes = [f"output_{index}.size({axis - len(tensor.named)})" for axis in range(len(tensor.named))]
        handed += [f"output_{index}.data()", *(["sizes.leading.count()"] if tensor.collapses else []), *sizes]
    values = [f"v{number}" for number in range(len(handed))]
    lines += [f"  const auto {name} = {value};" for name, value in zip(values, handed, strict=True)]
    choice = " | ".join(
        f"(call.has_input({index}) ? {1 << optional.index(tensor.name)} : 0)"
        for index, tensor in enumerate(kernel.layout.inputs)
        if tensor.name in optional
    )
    lines += [f"  const int choice = {choice or '0'};", "  const auto part = [=, &call](int64_t begin, int64_t end) {"]
    passed = ", ".join([*values, *(("begin", "end") if kernel.threaded else ())])
    lines.append("    int32_t failed = 0;")
    for number in range(2 ** len(optional)):
        lines.append(f"    if (choice == {number}) failed = Compiled<{arguments}>::call_{number}({passed});")
    lines += ["    call.check(failed == 0, messages[failed]);", "  };", *_steps(kernel)]
    return "\n".join([*lines, "}", ""])


def _steps(kernel: PythonKernel) -> list[str]:
    if not kernel.threaded:
        return ["  part(0, 1);"]
    first = kernel.layout.outputs[0]
    steps = "sizes.leading.count()" if first.collapses else f"output_0.size({-len(first.named)})"
    grain = "opbridge::grain_of(output_0.count(), steps)" if kernel.grain is None else str(kernel.grain)
    return [f"  const int64_t steps = {steps};", f"  call.parallel_for(steps, {grain}, part);"]


def _registration(kernel: PythonKernel) -> str:
    return f"OPBRIDGE_OPERATOR(python_kernel, layout_shape, {', '.join([_schema(kernel), *_type_lists(kernel)])})\n"


def _schema(kernel: PythonKernel) -> str:
    types = {tensor.name: tensor.type for tensor in kernel.layout.inputs}
    parameters = []
    for parameter in kernel.parameters:
        if parameter.kind == "tensor":
            parameters.append(f"{types[parameter.name]}{'?' if parameter.optional else ''} {parameter.name}")
        else:
            kind = "int" if parameter.kind == "bool" else parameter.kind
            default = f"={parameter.default}" if parameter.default else ""
            parameters.append(f"{kind} {parameter.name}{default}")
    results = ", ".join(f"{tensor.type} {tensor.name}" for tensor in kernel.layout.outputs)
    results = f"({results})" if len(kernel.layout.outputs) > 1 else results
    return f'"{kernel.target}({", ".join(parameters)}) -> {results}"'


def _type_lists(kernel: PythonKernel) -> list[str]:
    return [f"opbridge::types<{', '.join(DTYPES[name] for name in names)}>" for names in kernel.dtypes.values()]
