"""Every internal of torch that opbridge reads, so that a release that moves one fails here first."""

import threading

import pytest
import torch
from torch.onnx._internal.exporter._registration import ONNXRegistry

from opbridge import torch_internals


def test_the_mappings_of_torch_are_found_with_their_opsets():
    mapped = torch_internals.mapped_targets()
    assert (mapped["aten::add.Tensor"], mapped["aten::gelu.default"]) == (18, 18)
    assert mapped["aten::_fft_r2c.default"] == 18
    assert max(mapped.values()) > 18
    assert "aten::mul.Tensor" in torch_internals.mapped_targets(complex_inputs=True)


def test_the_decompositions_leave_out_what_is_kept():
    table = torch_internals.decomposition_table({"aten::gelu.default"})
    assert torch.ops.aten.gelu.default not in table
    assert torch.ops.aten.hardswish.default in table


def test_a_program_is_decomposed_under_the_settings_of_torch_onnx():
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.randn(1, 2),))
    with torch_internals.decomposing(program):
        assert torch.fx.experimental._config.backed_size_oblivious
    assert not torch.fx.experimental._config.backed_size_oblivious


@pytest.mark.parametrize("opset", [18, 23])
def test_the_registry_is_read_once_and_is_that_of_torch(opset):
    own = ONNXRegistry().from_torchlib(opset_version=opset)
    with torch_internals.reusing_registry():
        first = ONNXRegistry().from_torchlib(opset_version=opset)
        second = ONNXRegistry.from_torchlib(opset_version=opset)
    assert first.opset_version == own.opset_version == opset
    assert _functions(first) == _functions(own)
    target = torch.ops.aten.relu.default
    assert first.get_decomps(target)[0] is second.get_decomps(target)[0]


def _functions(registry):
    return {
        target: [(meta.onnx_function, meta.signature, meta.is_complex) for meta in metas]
        for target, metas in registry.functions.items()
    }


def test_what_one_export_adds_to_the_registry_no_other_sees():
    with torch_internals.reusing_registry():
        changed = ONNXRegistry.from_torchlib(opset_version=18)
        changed.register_op(torch.ops.aten.relu.default, lambda x: x)
        changed.register_op(torch.ops.aten.cummax.default, lambda x: x)
        fresh = ONNXRegistry.from_torchlib(opset_version=18)
    assert [meta.is_custom for meta in changed.get_decomps(torch.ops.aten.relu.default)] == [True, False]
    assert [meta.is_custom for meta in fresh.get_decomps(torch.ops.aten.relu.default)] == [False]
    assert not fresh.is_registered(torch.ops.aten.cummax.default)


def test_torch_has_its_own_reader_back_after_an_error_and_after_two_threads_at_once():
    own = vars(ONNXRegistry)["from_torchlib"]
    with pytest.raises(ValueError, match="inside"), torch_internals.reusing_registry():
        raise ValueError("inside")
    assert vars(ONNXRegistry)["from_torchlib"] is own

    entered, leave = threading.Event(), threading.Event()

    def other():
        with torch_internals.reusing_registry():
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    with torch_internals.reusing_registry():
        thread.start()
        entered.wait(30)
    leave.set()
    thread.join(30)
    assert vars(ONNXRegistry)["from_torchlib"] is own
