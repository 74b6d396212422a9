"""``read_model``: weights are mapped, and what is wrong with a file is said before anything is done with it."""

from __future__ import annotations

import contextlib
import os
import time
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from one_node import make_model, value_info
from onnx import helper, numpy_helper
from onnx.checker import ValidationError
from onnx.inliner import inline_local_functions

from opbridge.errors import InputError
from opbridge.onnx_model.read import model_of_proto, read_model
from opbridge.onnx_model.structure import _DEEPEST_CALLS
from opbridge.onnx_model.write import save_model
from opbridge.proof.verify.widened_model import widened_model

pytestmark = pytest.mark.newest

node = helper.make_node
ROW = ("FLOAT", ["n", 64])
WEIGHT = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


def product(weight: np.ndarray = WEIGHT) -> onnx.ModelProto:
    return make_model(
        [node("MatMul", ["x", "w"], ["y"], "product")],
        {"x": ROW},
        {"y": ROW},
        initializers=[numpy_helper.from_array(weight, "w")],
    )


@pytest.fixture
def external(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    onnx.save(product(), file, save_as_external_data=True, location="model.data", size_threshold=0)
    return file


def refused(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read_model(path)
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize("external_data", [False, True])
def test_weights_are_mapped_wherever_they_are(tmp_path: Path, external_data: bool) -> None:
    big = np.zeros(32 << 20, np.uint8)
    big[-1] = 7
    value = ir.Value(
        name="w", type=ir.TensorType(ir.DataType.UINT8), shape=ir.Shape(big.shape), const_value=ir.tensor(big)
    )
    graph = ir.Graph([], [value], nodes=[], initializers=[value], opset_imports={"": 20}, name="g")
    save_model(ir.Model(graph, ir_version=10), tmp_path, external_data=external_data)
    tracemalloc.start()
    try:
        model = read_model(tmp_path / "model.onnx")
        found = model.graph.initializers["w"].const_value
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < big.nbytes / 4
    assert found.numpy()[-1] == 7
    found.release()
    assert found.numpy()[-1] == 7, "what was let go is read again"


DTYPES = {
    "float32": WEIGHT,
    "float16": WEIGHT.astype(np.float16),
    "bfloat16": WEIGHT.astype(ml_dtypes.bfloat16),
    "int4": (np.arange(16384) % 16 - 8).astype(ml_dtypes.int4),
    "int4 of odd size": (np.arange(16383) % 16 - 8).astype(ml_dtypes.int4),
    "bool": np.arange(9000) % 3 == 0,
    "complex64": WEIGHT.astype(np.complex64),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(3, np.int64),
}


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("external_data", [False, True])
def test_every_type_comes_back(tmp_path: Path, name: str, external_data: bool) -> None:
    dtype = ir.DataType.INT4 if "int4" in name else ir.tensor(DTYPES[name]).dtype
    tensor = ir.Tensor(DTYPES[name], dtype=dtype, name="w")
    value = ir.Value(name="w", type=ir.TensorType(dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
    graph = ir.Graph([], [value], nodes=[], initializers=[value], opset_imports={"": 21}, name="g")
    save_model(ir.Model(graph, ir_version=10), tmp_path, external_data=external_data)
    found = read_model(tmp_path / "model.onnx").graph.initializers["w"].const_value
    assert (found.dtype, list(found.shape)) == (dtype, list(tensor.shape))
    assert found.numpy().reshape(-1).tolist() == tensor.numpy().reshape(-1).tolist()
    assert found.tobytes() == tensor.tobytes()


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    proto = product()
    proto.graph.doc_string, proto.producer_name = "a graph", "someone"
    onnx.save(proto, tmp_path / "a.onnx")
    assert ir.to_proto(read_model(tmp_path / "a.onnx")).SerializeToString(deterministic=True) == ir.to_proto(
        ir.from_proto(proto)
    ).SerializeToString(deterministic=True)


def test_the_file_may_be_replaced_while_the_model_is_in_use(external: Path) -> None:
    model = read_model(external)
    other = external.with_name("other")
    other.write_bytes(b"\0" * 16384)
    os.replace(other, external.with_name("model.data"))
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), WEIGHT)


def test_external_data_of_a_constant_inside_a_branch(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(WEIGHT, "inner")
    branch = helper.make_graph(
        [node("Constant", [], ["c"], value=tensor)], "b", [], [helper.make_tensor_value_info("c", 1, [64, 64])]
    )
    proto = make_model(
        [node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)], {"yes": ("BOOL", [])}, {"y": ROW}
    )
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, convert_attribute=True, size_threshold=0, location="d"
    )
    model = read_model(tmp_path / "m.onnx")
    for attribute in model.graph[0].attributes.values():
        inner = attribute.as_graph()[0].attributes["value"].as_tensor()
        np.testing.assert_array_equal(inner.numpy(), WEIGHT)


BAD_FILES = {
    "nothing": (b"", "is empty"),
    "a text": (b"hello, this is no model at all", "is not an ONNX model"),
    "the beginning of a model": (
        product().SerializeToString()[:-100],
        "is not an ONNX model: the field that begins at byte",
    ),
    "a model without a graph": (onnx.ModelProto(ir_version=8).SerializeToString(), "has no graph"),
    "another protocol buffer": (helper.make_tensor("x", 1, [1], [1.0]).SerializeToString(), "is not an ONNX model"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_is_no_model(tmp_path: Path, name: str) -> None:
    content, message = BAD_FILES[name]
    (tmp_path / "bad.onnx").write_bytes(content)
    assert message in refused(tmp_path / "bad.onnx").message


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "nowhere.onnx").message
    assert "can't be read" in refused(tmp_path).message
    os.mkfifo(tmp_path / "pipe.onnx")
    assert "is not a regular file" in refused(tmp_path / "pipe.onnx").message


def changed(file: Path, **entries: object) -> Path:
    """The model with other entries about its external data; None removes one."""
    proto = onnx.load(file, load_external_data=False)
    (tensor,) = proto.graph.initializer
    said = {entry.key: entry.value for entry in tensor.external_data} | entries
    del tensor.external_data[:]
    for key, value in said.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    onnx.save(proto, file)
    return file


BAD_DATA = {
    "missing": ({"location": "gone.data"}, "the external data 'gone.data' of 'w' can't be read: No such file"),
    "above": ({"location": "../model.data"}, "at '../model.data', which leaves the model's folder"),
    "above, inside": ({"location": "a/../../model.data"}, "which leaves the model's folder"),
    "above, by backslashes": ({"location": "..\\model.data"}, "which leaves the model's folder"),
    "absolute": ({"location": "/dev/null"}, "at the absolute path '/dev/null', which is refused"),
    "absolute, on Windows": ({"location": "C:\\model.data"}, "at the absolute path"),
    "a link": ({"location": "link.data"}, "'link.data', a link that leaves the model's folder"),
    "behind a link": ({"location": "linked/model.data"}, "a link that leaves the model's folder"),
    "no location": ({"location": None}, "names no file"),
    "a zero byte": ({"location": "model.data\0x"}, "names no file"),
    "too short": ({"offset": 16}, "ends at byte 16400 of 'model.data', which has 16384 bytes"),
    "another length": ({"length": 12}, "has the stated length of 12 bytes, but its type and shape need 16384"),
    "no number": ({"offset": "-8"}, "has the offset '-8'"),
    "the folder": ({"location": "."}, "can't be read"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_external_data_that_is_not_where_it_may_be(external: Path, name: str) -> None:
    entries, message = BAD_DATA[name]
    outside = external.parent.parent / f"{external.parent.name}_outside"
    outside.mkdir()
    (outside / "model.data").write_bytes(WEIGHT.tobytes())
    (external.parent / "link.data").symlink_to(outside / "model.data")
    (external.parent / "linked").symlink_to(outside)
    assert message in refused(changed(external, **entries)).message


def test_a_link_within_the_folder_is_fine(external: Path) -> None:
    (external.parent / "link.data").symlink_to(external.parent / "model.data")
    read_model(changed(external, location="link.data"))


def relu(x: str, y: str, name: str = "") -> onnx.NodeProto:
    return node("Relu", [x], [y], name)


VECTOR = ("FLOAT", ["n"])
BAD_GRAPHS = {
    "dangling": ([relu("z", "y", "first")], "the node 'first' (ai.onnx::Relu) reads 'z', which nothing produces"),
    "dangling output": ([relu("x", "z")], "nothing produces the output 'y'"),
    "cyclic": (
        [node("Add", ["x", "b"], ["a"], "one"), relu("a", "b", "two"), relu("b", "y")],
        "has a cycle: 'one' (ai.onnx::Add) → 'two' (ai.onnx::Relu) → 'one' (ai.onnx::Add)",
    ),
    "made twice": (
        [relu("x", "y", "one"), relu("x", "y", "two")],
        "the node 'two' (ai.onnx::Relu) produces 'y', which",
    ),
    "made again": ([relu("x", "x", "one"), relu("x", "y")], "produces 'x', which is an input or initializer too"),
    "no opset": (
        [node("F", ["x"], ["y"], domain="mylib")],
        "in the domain 'mylib', but does not import an opset for that domain",
    ),
    "a fix in a name": ([node("F\nfix: run this", ["x"], ["y"])], r"the operator 'F\nfix: run this' in the domain ''"),
}


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_a_graph_that_can_not_run(tmp_path: Path, name: str) -> None:
    nodes, message = BAD_GRAPHS[name]
    proto = make_model(nodes, {"x": VECTOR}, {"y": VECTOR})
    onnx.save(proto, tmp_path / "bad.onnx")
    assert message in refused(tmp_path / "bad.onnx").message
    with pytest.raises(InputError, match="The model"):
        model_of_proto(proto)


def test_a_name_that_is_close_is_proposed(tmp_path: Path) -> None:
    proto = make_model([relu("hiden", "y"), relu("x", "hidden")], {"x": VECTOR}, {"y": VECTOR})
    with pytest.raises(InputError) as caught:
        model_of_proto(proto)
    assert caught.value.fix == "did you mean 'hidden'?"


def test_a_cycle_through_a_branch() -> None:
    branch = helper.make_graph([relu("b", "c")], "g", [], [helper.make_tensor_value_info("c", 1, ["n"])])
    nodes = [
        node("If", ["yes"], ["a"], "choice", then_branch=branch, else_branch=branch),
        relu("a", "b", "back"),
        relu("b", "y"),
    ]
    with pytest.raises(InputError, match=r"has a cycle: 'choice'.*'back'"):
        model_of_proto(make_model(nodes, {"yes": ("BOOL", [])}, {"y": VECTOR}))


def test_a_long_cycle_of_long_names_gives_a_short_error() -> None:
    names = [f"{'v' * 2000}{number}" for number in range(200)]
    nodes = [relu(one, other) for one, other in zip(names, [*names[1:], names[0]], strict=True)]
    with pytest.raises(InputError, match="has a cycle: ") as caught:
        model_of_proto(make_model([*nodes, relu("x", "y")], {"x": VECTOR}, {"y": VECTOR}))
    assert len(caught.value.message) < 4000


def test_a_name_is_not_compared_with_all_names_of_a_large_model() -> None:
    nodes = [relu("x", f"{'v' * 500}{number}") for number in range(2000)]
    started = time.monotonic()
    with pytest.raises(InputError, match="which nothing produces"):
        model_of_proto(make_model([*nodes, relu("w" * 500, "y")], {"x": VECTOR}, {"y": VECTOR}))
    assert time.monotonic() - started < 5  # It took 30 seconds.


def test_an_order_in_which_nodes_can_not_run_is_mended(tmp_path: Path) -> None:
    onnx.save(
        make_model([relu("a", "y"), node("Abs", ["x"], ["a"])], {"x": VECTOR}, {"y": VECTOR}), tmp_path / "m.onnx"
    )
    assert [item.op_type for item in read_model(tmp_path / "m.onnx").graph] == ["Abs", "Relu"]


@pytest.mark.parametrize("opset", [0, 9999])
def test_an_unknown_opset(opset: int) -> None:
    proto = make_model([relu("x", "y")], {"x": VECTOR}, {"y": VECTOR})
    proto.opset_import[0].version = opset
    with pytest.raises(InputError, match=f"unknown opset {opset}; the installed onnx supports 1 to") as caught:
        model_of_proto(proto)
    assert "pip install --upgrade onnx" in caught.value.fix


def test_an_unknown_ir_version_and_two_opsets_of_one_domain() -> None:
    proto = make_model([relu("x", "y")], {"x": VECTOR}, {"y": VECTOR})
    proto.ir_version = 99
    with pytest.raises(InputError, match="has the IR version 99"):
        model_of_proto(proto)
    proto.ir_version = 10
    proto.opset_import.append(helper.make_opsetid("ai.onnx", 7))
    with pytest.raises(InputError, match=r"imports the domain 'ai\.onnx' as version 20 and 7"):
        model_of_proto(proto)


def test_functions_that_call_themselves() -> None:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    functions = [
        helper.make_function("f", "A", ["x"], ["y"], [node("B", ["x"], ["y"], domain="f")], opsets),
        helper.make_function("f", "B", ["x"], ["y"], [node("A", ["x"], ["y"], domain="f")], opsets),
    ]
    proto = make_model(
        [node("A", ["x"], ["y"], domain="f")], {"x": VECTOR}, {"y": VECTOR}, functions=functions, domains=["f"]
    )
    with pytest.raises(InputError, match=r"recursive functions: f::[AB] → f::[AB]"):
        model_of_proto(proto)


def test_a_chain_of_functions_that_onnx_does_not_inline() -> None:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    names = ["Relu", *(f"F{number}" for number in range(_DEEPEST_CALLS + 1))]
    functions = [
        helper.make_function("f", name, ["x"], ["y"], [node(called, ["x"], ["y"], domain=domain)], opsets)
        for name, called, domain in zip(names[1:], names[:-1], ["", *["f"] * _DEEPEST_CALLS], strict=True)
    ]

    def model(length: int) -> onnx.ModelProto:
        nodes = [node(f"F{length - 1}", ["x"], ["y"], domain="f")]
        return make_model(nodes, {"x": VECTOR}, {"y": VECTOR}, functions=functions[:length], domains=["f"])

    model_of_proto(model(_DEEPEST_CALLS))
    assert len(inline_local_functions(model(_DEEPEST_CALLS)).graph.node) == 1
    with pytest.raises(InputError, match=f"a chain of more than {_DEEPEST_CALLS} functions"):
        model_of_proto(model(_DEEPEST_CALLS + 1))
    with pytest.raises(ValidationError, match="call chain depth exceeds"):
        inline_local_functions(model(_DEEPEST_CALLS + 1))


def test_weights_that_are_the_same_bytes_are_written_once(tmp_path: Path) -> None:
    """A file of 16 MiB may be a thousand weights: 16 GiB in another file, and 32 GiB in float64."""
    first, last = WEIGHT, WEIGHT + 1
    weights = [numpy_helper.from_array(array, name) for name, array in (("a", first), ("b", first), ("c", last))]
    nodes = [node("MatMul", ["x", "a"], ["p"]), node("MatMul", ["p", "b"], ["q"]), node("MatMul", ["q", "c"], ["y"])]
    model = make_model(nodes, {"x": ROW}, {"y": ROW}, initializers=weights)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    shared = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    del shared.graph.initializer[1].external_data[:]
    shared.graph.initializer[1].external_data.extend(shared.graph.initializer[0].external_data)
    onnx.save(shared, tmp_path / "shared.onnx")
    for name, make, itemsize in (("copy", lambda read: read, 4), ("wide", widened_model, 8)):
        save_model(make(read_model(tmp_path / "shared.onnx")), tmp_path, name=name, external_data=True)
        assert (tmp_path / f"{name}.data").stat().st_size == 2 * WEIGHT.size * itemsize
        read = read_model(tmp_path / name).graph.initializers
        for weight, array in zip("abc", (first, first, last), strict=True):
            assert np.array_equal(read[weight].const_value.numpy(), array)


def test_nodes_are_sorted_if_they_are_not() -> None:
    """A branch reads a value that a later node produces."""
    branch = helper.make_graph([node("Neg", ["later"], ["inner"])], "branch", [], [value_info("inner", VECTOR)])
    nodes = [node("Relu", ["x"], ["later"]), node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    for order in (nodes, nodes[::-1]):
        read = model_of_proto(make_model(order, {"x": VECTOR, "c": ("BOOL", [])}, {"y": VECTOR}))
        assert [each.op_type for each in read.graph] == ["Relu", "If"]
    several = [node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["b"]), node("Add", ["b", "a"], ["y"])]
    read = model_of_proto(make_model(several, {"x": VECTOR}, {"y": VECTOR}))
    assert [each.op_type for each in read.graph] == ["Relu", "Neg", "Add"]


def test_functions_that_expand_to_a_model_without_end() -> None:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    bodies = [[node("Relu", ["x"], ["y"])]]
    for number in range(40):
        bodies.append([node(f"F{number}", [a], [b], domain="f") for a, b in (("x", "m"), ("m", "y"))])
    functions = [
        helper.make_function("f", f"F{number}", ["x"], ["y"], body, opsets) for number, body in enumerate(bodies)
    ]
    proto = make_model(
        [node("F40", ["x"], ["y"], domain="f")], {"x": VECTOR}, {"y": VECTOR}, functions=functions, domains=["f"]
    )
    with pytest.raises(InputError, match="expands to more than 1,000,000 nodes"):
        model_of_proto(proto)
    proto.graph.node[0].op_type = "F12"
    del proto.functions[13:]
    assert len(model_of_proto(proto).functions) == 13


def test_an_unknown_element_type_and_a_weight_of_the_wrong_length(tmp_path: Path) -> None:
    proto = product()
    proto.graph.initializer[0].data_type = 77
    with pytest.raises(InputError, match="the weight 'w' has the type number 77"):
        model_of_proto(proto)
    proto = product()
    proto.graph.initializer[0].raw_data += b"1234"
    onnx.save(proto, tmp_path / "m.onnx")
    assert "the weight 'w' has 16388 bytes, but its type and shape need 16384" in refused(tmp_path / "m.onnx").message


@pytest.mark.parametrize("dims", [(3,), (0,), (2**40, 2**40), ()])
@pytest.mark.parametrize("in_a_node", [False, True])
def test_a_small_weight_that_does_not_fit_its_shape(tmp_path: Path, dims: tuple[int, ...], in_a_node: bool) -> None:
    small = numpy_helper.from_array(np.ones(2, np.float32), "w")
    small.dims[:] = dims
    constants = [node("Constant", [], ["w"], value=small)] if in_a_node else []
    weights = [] if in_a_node else [small]
    nodes = [*constants, node("Add", ["x", "w"], ["y"])]
    model = make_model(nodes, {"x": VECTOR}, {"y": VECTOR}, initializers=weights)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    message = "the content of the weight 'w' does not fit its type and the shape"
    assert message in refused(tmp_path / "m.onnx").message
    with pytest.raises(InputError, match=message):
        model_of_proto(model)


def test_a_negative_size_is_a_dynamic_dimension(tmp_path: Path) -> None:
    model = make_model([node("Relu", ["x"], ["y"])], {"x": ("FLOAT", [-1, 4])}, {"y": ("FLOAT", [-1, 4])})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    graph = read_model(tmp_path / "m.onnx").graph
    assert [list(value.shape) for value in (*graph.inputs, *graph.outputs)] == [[ir.SymbolicDim(None), 4]] * 2


def test_what_would_be_lost_is_refused() -> None:
    proto = product()
    proto.graph.sparse_initializer.append(onnx.SparseTensorProto())
    with pytest.raises(InputError, match="has sparse initializers, which opbridge can't keep"):
        model_of_proto(proto)


@pytest.mark.slow
def test_each_changed_bit_is_refused_or_can_be_written_again(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    content = make_model(
        [helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5, name="leaky"), node("Add", ["y", "w"], ["z"])],
        {"x": ("FLOAT", ["n", 4])},
        {"z": ("FLOAT", ["n", 4])},
        initializers=[numpy_helper.from_array(np.ones(4, np.float32), "w")],
    ).SerializeToString()
    for place in range(len(content)):
        for bit in range(8):
            file.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            with contextlib.suppress(InputError):
                ir.to_proto(read_model(file))


def test_a_proto_does_not_say_where_its_weights_are(external: Path) -> None:
    with pytest.raises(InputError, match="weight 'w' is in another file") as caught:
        model_of_proto(onnx.load(external, load_external_data=False))
    assert "pass the path" in caught.value.fix
