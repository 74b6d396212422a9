"""Dataclasses as JSON data and back, and what a reader is told of data that is ill-typed."""

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from opbridge.errors import InputError
from opbridge.records import Record, StoredRecord, from_dict, to_dict, write_npz


class Kind(enum.Enum):
    ONE = "one"
    TWO = "two"


@dataclasses.dataclass(frozen=True)
class Inner(StoredRecord):
    name: str
    ratio: float = 0.0
    histogram: tuple[tuple[float, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class Outer(StoredRecord):
    path: Path
    kind: Kind
    inner: Inner | None
    items: tuple[Inner, ...] = ()
    shape: tuple[int | str, ...] = ()
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    passed: bool | None = None
    severity: Literal["error", "note"] = "note"
    labels: list[str] = dataclasses.field(default_factory=list)
    anything: Any = None


@dataclasses.dataclass(frozen=True)
class Computed(Record):
    model: object
    inner: Inner
    names: tuple[str, ...]

    json_keys = ("count", "names", "inner")

    @property
    def count(self) -> int:
        return len(self.names)


FULL = Outer(
    Path("folder/file"),
    Kind.TWO,
    Inner("a", math.inf, ((0.5, 3), (math.inf, 1))),
    (Inner("b", math.nan), Inner("c", 2.0)),
    (2, "n"),
    {"export": 1.5, "load": -math.inf},
    True,
    "error",
    ["x"],
    {"free": [1, (2, 3)]},
)


def test_a_record_becomes_json_and_comes_back():
    text = json.dumps(FULL.to_dict(), allow_nan=False)
    assert text == (
        '{"path": "folder/file", "kind": "two", '
        '"inner": {"name": "a", "ratio": "inf", "histogram": [[0.5, 3], ["inf", 1]]}, '
        '"items": [{"name": "b", "ratio": "nan", "histogram": []}, {"name": "c", "ratio": 2.0, "histogram": []}], '
        '"shape": [2, "n"], "seconds": {"export": 1.5, "load": "-inf"}, "passed": true, "severity": "error", '
        '"labels": ["x"], "anything": {"free": [1, [2, 3]]}}'
    )
    back = Outer.from_dict(json.loads(text))
    assert math.isnan(back.items[0].ratio)
    assert back.inner == FULL.inner
    assert (back.path, back.kind, back.shape, back.seconds) == (FULL.path, FULL.kind, FULL.shape, FULL.seconds)
    assert json.dumps(back.to_dict()) == text


def test_defaults_fill_in_and_unknown_keys_are_ignored():
    small = Outer.from_dict({"path": "p", "kind": "one", "inner": None, "from_the_future": 1})
    assert small == Outer(Path("p"), Kind.ONE, None)
    assert Inner.from_dict({"name": "a", "ratio": 1}) == Inner("a", 1.0)


def test_the_keys_may_be_listed_with_properties_among_them():
    record = Computed(object(), Inner("a"), ("x", "y"))
    assert list(record.to_dict().items()) == [
        ("count", 2),
        ("names", ["x", "y"]),
        ("inner", {"name": "a", "ratio": 0.0, "histogram": []}),
    ]


def test_a_plain_dataclass_needs_no_base_class():
    @dataclasses.dataclass(frozen=True)
    class Plain:
        names: tuple[str, ...]

    Plain.__annotations__["names"] = tuple[str, ...]
    assert to_dict(Plain(("a",))) == {"names": ["a"]}
    assert from_dict(Plain, {"names": ["a"]}) == Plain(("a",))


def test_a_nested_record_is_written_by_its_own_method():
    @dataclasses.dataclass(frozen=True)
    class Rounded(Record):
        seconds: float

        def to_dict(self):
            return {"seconds": round(self.seconds, 1)}

    assert to_dict(Computed(None, Rounded(1.234), ())) == {"count": 0, "names": [], "inner": {"seconds": 1.2}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": 3}, "Outer.path must be a path, found 3."),
        ({"path": None}, "Outer.path must be a path, found None."),
        ({"kind": "three"}, "Outer.kind must be one of 'one', 'two', found 'three'."),
        ({"inner": 7}, "Outer.inner must be an object, found 7."),
        ({"inner": {"name": "a", "ratio": "much"}}, "Outer.inner.ratio must be a number, found 'much'."),
        ({"inner": {}}, "Outer.inner.name is missing."),
        ({"items": "abc"}, "Outer.items must be a list, found 'abc'."),
        ({"items": [{"name": True}]}, "Outer.items[0].name must be a string, found True."),
        (
            {"items": [{"name": "a", "histogram": [[1.0, 2], [1.0]]}]},
            "Outer.items[0].histogram[1] must be a list of 2 values, found [1.0].",
        ),
        ({"shape": [1, 2.5]}, "Outer.shape[1] must be an integer or a string, found 2.5."),
        ({"shape": [True]}, "Outer.shape[0] must be an integer or a string, found True."),
        ({"seconds": {"load": "1.0"}}, "Outer.seconds['load'] must be a number, found '1.0'."),
        ({"seconds": {"load": False}}, "Outer.seconds['load'] must be a number, found False."),
        ({"seconds": [1.0]}, "Outer.seconds must be an object, found [1.0]."),
        ({"seconds": {1: 1.0}}, "a key of Outer.seconds must be a string, found 1."),
        ({"passed": 1}, "Outer.passed must be true or false, found 1."),
        ({"severity": "bad"}, "Outer.severity must be one of 'error', 'note', found 'bad'."),
        ({"labels": {"x": 1}}, "Outer.labels must be a list, found {'x': 1}."),
        ({"labels": ["y" * 200, 5]}, "Outer.labels[1] must be a string, found 5."),
        ({"passed": "y" * 200}, f"Outer.passed must be true or false, found '{'y' * 56}...."),
    ],
)
def test_ill_typed_data_names_the_field(change, message):
    with pytest.raises(InputError) as caught:
        Outer.from_dict({**FULL.to_dict(), **change})
    assert caught.value.message == message
    assert caught.value.fix == "pass data that opbridge wrote, unchanged."


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_what_is_not_a_mapping_is_refused(data):
    with pytest.raises(InputError, match="Inner must be an object, found"):
        Inner.from_dict(data)


def test_a_field_that_json_has_no_form_for_is_an_error_of_the_class():
    @dataclasses.dataclass(frozen=True)
    class Odd:
        array: np.ndarray

    Odd.__annotations__["array"] = np.ndarray
    with pytest.raises(TypeError, match=r"Odd.array: .*ndarray.* can't be read from JSON data"):
        from_dict(Odd, {"array": [1]})


def test_arrays_are_written_under_any_name(tmp_path):
    file = tmp_path / "arrays"
    arrays = {"file": np.arange(3), "a/b": np.array(1.5, np.float32), "empty": np.zeros((0, 2))}
    write_npz(file, arrays)
    with np.load(file) as read:
        assert set(read) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array)
            assert read[name].shape == array.shape
            assert read[name].dtype == array.dtype
