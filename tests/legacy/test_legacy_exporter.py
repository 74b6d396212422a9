"""torch.onnx.export with the bridge on: what it returns and writes, and its arguments of former years."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from legacy_graphs import output_trees
from torch.autograd import Function

from opbridge import legacy
from opbridge.errors import InputError, TranslationError, UnsupportedOperatorError


class Half(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 0.5

    @staticmethod
    def symbolic(g, x):
        return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(0.5)))


class Own(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 0.5

    @staticmethod
    def symbolic(g, x):
        return g.op("own::Half", x)


class Net(torch.nn.Module):
    def __init__(self, function: Any = Half) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.function = function

    def forward(self, x):
        return self.function.apply(self.linear(x))


X = torch.randn(4, 3)


@pytest.fixture(autouse=True)
def bridge() -> Iterator[None]:
    legacy.enable()
    yield
    legacy.disable()


def export(model: Any, args: Any = (X,), *positional: Any, **options: Any) -> onnx.ModelProto:
    """The model as it was written."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.onnx.export(model, args, buffer, *positional, **options)
    return onnx.load_from_string(buffer.getvalue())


def run(model: onnx.ModelProto, **inputs: torch.Tensor) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {name: value.numpy() for name, value in inputs.items()})


def sizes(value: onnx.ValueInfoProto) -> list[Any]:
    return [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]


def test_it_returns_and_writes_what_torch_does(tmp_path: Path) -> None:
    net = Net().eval()
    program = torch.onnx.export(net, (X,), tmp_path / "m.onnx", external_data=False)
    assert isinstance(program, torch.onnx.ONNXProgram)
    torch.testing.assert_close(program(X)[0], net(X))
    written = onnx.load(tmp_path / "m.onnx")
    assert written.opset_import[0].version == 20
    np.testing.assert_allclose(run(written, x=X)[0], net(X).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert [node.op_type for node in written.graph.node] == ["Gemm", "Constant", "Mul"]


def test_a_file_that_can_not_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"torch\.onnx\.export: \S+none/m\.onnx can't be written: No such file"):
        torch.onnx.export(Net(), (X,), str(tmp_path / "none" / "m.onnx"))


def test_weights_are_external_or_left_out_on_demand(tmp_path: Path) -> None:
    torch.onnx.export(Net(), (X,), str(tmp_path / "a.onnx"))
    assert (tmp_path / "a.onnx.data").is_file()
    assert not export(Net(), export_params=False).graph.initializer
    kept = export(Net(), keep_initializers_as_inputs=True).graph
    assert [value.name for value in kept.input] == ["x", "linear.weight", "linear.bias"]


def test_old_arguments_are_mapped_with_one_warning() -> None:
    buffer = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.onnx.export(
            Net(Own),
            X,
            buffer,
            True,
            False,
            torch.onnx.TrainingMode.EVAL,
            ["input"],
            ["output"],
            opset_version=11,
            dynamic_axes={"input": {0: "batch"}, "output": [0]},
            custom_opsets={"own": 3},
            operator_export_type=torch.onnx.OperatorExportTypes.ONNX,
            do_constant_folding=True,
            enable_onnx_checker=True,
            example_outputs=X,
            use_external_data_format=False,
            _retain_param_name=True,
            strip_doc_string=True,
            aten=False,
            export_raw_ir=False,
        )
    (warning,) = [item for item in caught if "torch.onnx.export has old arguments" in str(item.message)]
    assert warning.filename == __file__
    for text in (
        "dynamic_axes: use dynamic_shapes",
        "custom_opsets: it is honoured",
        "use_external_data_format: use external_data",
        "enable_onnx_checker: use onnx.checker.check_model",
        "example_outputs: remove it",
        "training: use model.eval()",
        "verbose: pass it by keyword",
    ):
        assert text in str(warning.message)
    model = onnx.load_from_string(buffer.getvalue())
    assert {item.domain: item.version for item in model.opset_import} == {"": 11, "own": 3}
    assert sizes(model.graph.input[0]) == ["batch", 3]
    assert sizes(model.graph.output[0]) == ["batch", 2]
    assert (model.graph.input[0].name, model.graph.output[0].name) == ("input", "output")
    assert "use_external_data_format" in {item.name for item in legacy.bridged() if item.kind == "old argument"}


def test_that_the_optimizer_runs_all_the_same_is_told() -> None:
    with pytest.warns(FutureWarning, match="optimize: torch's optimizer runs anyway"):
        torch.onnx.export(Net(), (X,), optimize=False)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("opset_version", "17", "opset_version is '17', but must be a number."),
        ("dynamic_axes", ["x"], "dynamic_axes is ['x'], but must be a dict from names of inputs and outputs to "),
        ("custom_opsets", [1], "custom_opsets is [1], but must be a dict from domains to versions."),
        ("input_names", "x", "input_names is 'x', but must be a list of names."),
        ("training", "TESTING", "training is 'TESTING', not one of EVAL, TRAINING, PRESERVE."),
        ("operator_export_type", "RAW", "operator_export_type is 'RAW', not one of ONNX, ONNX_ATEN, ONNX_ATEN_FALLBA"),
    ],
)
def test_values_that_no_argument_takes(name: str, value: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        export(Net(Own), **{name: value})
    assert raised.value.message.startswith(f"torch.onnx.export: {message}")


def test_the_raw_graph_of_old_is_no_reason_to_fail() -> None:
    assert "own" in {node.domain for node in export(Net(Own), export_raw_ir=True).graph.node}


def test_without_old_arguments_there_is_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        torch.onnx.export(Net(), (X,), input_names=["a"], dynamic_shapes={"x": {0: "batch"}})


def test_an_older_opset_runs() -> None:
    net = Net().eval()
    model = export(net, opset_version=11)
    assert model.opset_import[0].version == 11
    np.testing.assert_allclose(run(model, x=X)[0], net(X).detach().numpy(), rtol=1e-5, atol=1e-6)


class ScatterMax(Function):
    @staticmethod
    def forward(ctx, x, index):
        return x.new_zeros(x.shape).scatter_reduce(0, index, x, "amax")

    @staticmethod
    def symbolic(g, x, index):
        zeros = g.op("Mul", x, g.op("Constant", value_t=torch.tensor(0.0)))
        return g.op("ScatterElements", zeros, index, x, axis_i=0, reduction_s="max")


def test_a_node_written_for_the_requested_opset_stays_though_only_a_newer_one_has_it() -> None:
    class Scattered(Net):
        def forward(self, x, index):
            return torch.nn.functional.softplus(ScatterMax.apply(x, index))

    model = export(Scattered(), (X, torch.tensor([[0, 1, 1], [1, 0, 2]])), opset_version=16)
    assert model.opset_import[0].version == 16
    (node,) = (node for node in model.graph.node if node.op_type == "ScatterElements")
    assert {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute} == {
        "axis": 0,
        "reduction": b"max",
    }
    assert not {"Loop", "opbridge.symbolic"} & {node.op_type for node in model.graph.node}
    assert not any(node.metadata_props for node in model.graph.node)


def test_labels_of_dynamic_axes() -> None:
    model = export(
        lambda a, b: (a + b, a.sum(1)),
        (torch.randn(4, 3), torch.randn(4, 3)),
        input_names=["left", "right"],
        output_names=["sum"],
        dynamic_axes={"left": {0: "n", 1: "c"}, "right": {0: "n"}, "sum": {0: "n"}},
    ).graph
    assert [value.name for value in model.input] == ["left", "right"]
    assert [value.name for value in model.output] == ["sum", "output_1"]
    assert sizes(model.input[0])[0] == sizes(model.input[1])[0] == sizes(model.output[0])[0] == "n"


def test_a_label_of_a_dimension_that_the_model_fixes() -> None:
    with pytest.warns(UserWarning, match=r"these dimensions are static in the model: 'channels' of 'x' \(always 3\)"):
        export(Net(), input_names=["x"], dynamic_axes={"x": {1: "channels"}})


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"y": {0: "n"}}, "dynamic_axes: 'y' is neither an input nor an output; the names are x."),
        ({"x": {5: "n"}}, "dynamic_axes: axis 5 of 'x' is out of range: it has 2 dimensions."),
    ],
)
def test_labels_that_fit_nothing(axes: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        export(Net(), dynamic_axes=axes)
    assert raised.value.message == message


def test_names_beyond_the_inputs_are_those_of_the_parameters() -> None:
    graph = export(Net(), input_names=["image", "w", "b"]).graph
    assert [value.name for value in graph.input] == ["image"]
    assert {tensor.name for tensor in graph.initializer} >= {"w", "b"}


def test_a_dict_at_the_end_holds_arguments_by_keyword() -> None:
    model = export(lambda a, scale: a * scale, (X, {"scale": torch.tensor(2.0)}))
    assert [value.name for value in model.graph.input] == ["a", "scale"]


def test_a_translation_table_and_registered_symbolics_count() -> None:
    from onnxscript import opset18

    model = export(torch.asinh, custom_translation_table={torch.ops.aten.asinh.default: lambda x: opset18.Sinh(x)})
    assert [node.op_type for node in model.graph.node] == ["Sinh"]
    torch.onnx.register_custom_op_symbolic("aten::asinh", lambda g, x: g.op("own::Asinh", x), 9)
    try:
        assert [node.domain for node in export(torch.asinh).graph.node] == ["own"]
        assert [node.domain for node in export(_program(), ()).graph.node] == ["own"]
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::asinh", 9)


class Asinh(torch.nn.Module):
    def forward(self, x):
        return x.asinh()


def _program() -> torch.export.ExportedProgram:
    return torch.export.export(Asinh(), (X,))


class Controlled(torch.nn.Module):
    def forward(self, x):
        total = torch.zeros_like(x[0])
        for row in range(x.size(0)):
            if bool(x[row].sum() > 0):
                total = total + x[row]
            elif bool(x[row].sum() < -1):
                total = total - x[row]
        return total


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_scripted_module_keeps_its_control_flow() -> None:
    scripted = torch.jit.script(Controlled())
    model = export(scripted, input_names=["x"], dynamic_axes={"x": {0: "n"}}, opset_version=18)
    assert model.opset_import[0].version == 18
    assert "Loop" in [node.op_type for node in model.graph.node]
    for rows in (1, 6):
        x = torch.randn(rows, 3)
        np.testing.assert_allclose(run(model, x=x)[0], Controlled()(x).numpy(), rtol=1e-5)
    assert ("TorchScript module", "Controlled") in {(item.kind, item.name) for item in legacy.bridged()}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_traced_module() -> None:
    net = Net().eval()
    model = export(torch.jit.trace(net, X), input_names=["x"])
    np.testing.assert_allclose(run(model, x=X)[0], net(X).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_traced_module_takes_registrations_for_a_newer_opset() -> None:
    torch.onnx.register_custom_op_symbolic("aten::asinh", lambda g, x: g.op("own::Asinh", x), 18)
    try:
        model = export(torch.jit.trace(Asinh(), X), custom_opsets={"own": 1}, opset_version=18)
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::asinh", 18)
    assert [node.domain for node in model.graph.node] == ["own"]


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("dynamic_shapes", ({0: "n"},), "use dynamic_axes"),
        ("custom_translation_table", {torch.ops.aten.asinh.default: print}, "use torch.onnx.register_custom_op"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_what_a_traced_module_can_not_take_is_not_dropped(name: str, value: Any, instead: str) -> None:
    with pytest.raises(InputError, match=f"{name} can't be used with a TopLevelTracedModule") as raised:
        export(torch.jit.trace(Asinh(), X), **{name: value})
    assert raised.value.fix.startswith(instead)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_old_exporter_is_left_to_torch() -> None:
    buffer = io.BytesIO()
    assert torch.onnx.export(Net(Own), (X,), buffer, dynamo=False, opset_version=17) is None
    assert onnx.load_from_string(buffer.getvalue()).producer_name == "pytorch"


def test_arguments_that_never_were() -> None:
    with pytest.raises(InputError, match=r"No version of torch\.onnx\.export has an argument 'opset'"):
        export(Net(), opset=11)
    with pytest.raises(InputError, match="got 9 positional arguments; only model, args, f, export_params"):
        export(Net(), (X,), True, False, None, None, None, None)
    with pytest.raises(InputError, match="got 'verbose' twice"):
        export(Net(), (X,), True, False, verbose=True)


def test_an_operator_without_a_mapping_is_named() -> None:
    with torch.library._scoped_library("own_legacy", "FRAGMENT") as library:
        library.define("nothing(Tensor x) -> Tensor")
        torch.library.register_fake("own_legacy::nothing", torch.empty_like, lib=library)
        with pytest.raises(UnsupportedOperatorError, match=r"own_legacy::nothing: ") as raised:
            export(lambda x: torch.ops.own_legacy.nothing(x))
    assert "register_custom_op_symbolic('own_legacy::nothing', ...)" in raised.value.fix


def test_a_node_that_the_opset_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from opbridge.onnx_model import opsets

    lost = opsets.Unexpressed("node_1", "ai.onnx::Gemm", "it is the test's")
    monkeypatch.setattr(opsets, "convert_opset", lambda model, n, **_: opsets.ConvertedOpset(model, 18, n, (), (lost,)))
    with pytest.raises(TranslationError, match=r"ai.onnx::Gemm can't be expressed at opset 11: it is") as raised:
        export(Net(), opset_version=11)
    assert "newer opset_version" in raised.value.fix


def test_opsets_that_are_not_written() -> None:
    with pytest.warns(UserWarning, match="opset_version=9: the oldest supported opset is 11"):
        assert export(Net(), opset_version=9).opset_import[0].version == 11
    with pytest.raises(InputError, match="opset_version=99: the newest opset of the installed onnx is "):
        export(Net(), opset_version=99)


def test_verbose_prints_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    export(Net(), verbose=True)
    assert "Gemm" in capsys.readouterr().out


@pytest.mark.slow
def test_with_the_bridge_off_the_old_declarations_do_not_count() -> None:
    legacy.disable()
    program = torch.onnx.export(Net(Own).eval(), (X,))
    assert {node.domain for node in program.model.graph} == {""}
    assert not torch.onnx.export.__module__.startswith("opbridge")


LIBRARIES = [torch.library.Library("aten", "FRAGMENT"), torch.library.Library("legacy_export_types", "DEF")]
for _library in LIBRARIES:
    _library.define("without_mapping(Tensor x, float a, int[] sizes, str? mode=None) -> (Tensor, Tensor)")
    _library.impl("without_mapping", lambda x, a, sizes, mode=None: (x * a, x + 1), "CompositeExplicitAutograd")


@pytest.mark.parametrize(
    ("namespace", "export_type"),
    [
        ("legacy_export_types", "ONNX_FALLTHROUGH"),
        ("aten", "ONNX_FALLTHROUGH"),
        ("aten", "ONNX_ATEN_FALLBACK"),
    ],
)
def test_an_operator_without_a_mapping_is_kept_as_the_export_type_says(namespace: str, export_type: str) -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            first, second = getattr(torch.ops, namespace).without_mapping(x, 0.5, [1, 2])
            return first.exp(), second

    options = {"operator_export_type": getattr(torch.onnx.OperatorExportTypes, export_type), "opset_version": 17}
    # torch's own exporter guesses the number of outputs of an ATen node.
    expected = output_trees(export(Model(), (X,), dynamo=False, **options)) if namespace != "aten" else None
    found = output_trees(export(Model(), (X,), **options))
    name = "ATen" if export_type == "ONNX_ATEN_FALLBACK" else "without_mapping"
    domain = "org.pytorch.aten" if namespace == "aten" else namespace
    assert [str(tree).count(f"{domain}::{name}") for _, tree in found] == [1, 1]
    assert expected is None or found == expected
    (noted,) = [item for item in legacy.bridged() if item.name == f"operator_export_type={export_type}"]
    assert noted.notes == (f"{namespace}::without_mapping has no mapping to ONNX, so the operator itself is the node",)


def test_an_operator_of_a_library_is_refused_as_an_aten_node() -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.ops.legacy_export_types.without_mapping(x, 0.5, [1, 2])[0]

    with pytest.raises(UnsupportedOperatorError, match="legacy_export_types::without_mapping: no mapping to ONNX"):
        export(Model(), operator_export_type=torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK)
