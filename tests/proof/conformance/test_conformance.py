"""PyTorch's operator database through the product: the command, its results, its page, and how results are judged."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from opbridge.cli import main  # noqa: E402
from opbridge.errors import InputError  # noqa: E402
from opbridge.proof.conformance import applicability, check, database, pool, worker  # noqa: E402
from opbridge.proof.conformance.batches import in_batches, verdicts  # noqa: E402
from opbridge.proof.conformance.calls import Batch, Call  # noqa: E402
from opbridge.proof.conformance.definitions import differs_by_definition  # noqa: E402
from opbridge.proof.conformance.results import Result, Way, latest, read_results  # noqa: E402
from opbridge.proof.conformance.run import result_of, run_conformance  # noqa: E402
from opbridge.proof.conformance.sizes import enlarged, moves_of  # noqa: E402
from opbridge.report.conformance_page import write_page  # noqa: E402

pytestmark = pytest.mark.newest

RESULT = Result("sort", "float32", Way(), "mismatch", {"pass": 1, "mismatch": 1}, "2 < 1 & so on", "(f32[3])")


# What is read of torch.testing._internal.


def test_the_database_has_entries_with_names_types_and_samples() -> None:
    entries = database.entries()
    assert len(entries) > 690
    assert {"add", "linalg.lstsq.grad_oriented", "nn.functional.conv2d", "item"} <= set(entries)
    assert database.dtypes_of("add")[0] == "float32"
    first, again = (database.calls_of("nn.functional.pad.reflect", "float32") for _ in range(2))
    assert [str(call) for call in first] == [str(call) for call in again]
    assert all(
        torch.equal(a, b) for one, two in zip(first, again, strict=True) for a, b in zip(one(), two(), strict=True)
    )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    own = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("torch.testing._internal"):
            raise ModuleNotFoundError("No module named 'expecttest'", name="expecttest")
        return own(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match="operator database can't be imported: No module named 'expecttest'") as raised:
        database.entries.__wrapped__()
    assert raised.value.fix == "pip install expecttest"


def test_what_is_not_applicable_is_a_short_list_of_entries() -> None:
    listed = applicability.NOT_APPLICABLE
    assert len(listed) <= 15
    # Attention on a GPU alone has entries in builds of torch that know of GPUs.
    assert {name for name in listed if "attention" not in name} <= set(database.entries())
    assert all(reason for reason in listed.values())


# Calls.


def test_numbers_among_the_results_are_wrapped() -> None:
    call = Call(lambda x: (x.item(), torch.equal(x, x), 3, None, x), (torch.tensor(1.5),), {})
    assert [(value.dtype, value.tolist()) for value in call()] == [
        *((torch.float32, 1.5), (torch.bool, True), (torch.int64, 3), (torch.float32, 1.5)),
    ]


def test_a_call_is_described() -> None:
    call = Call(torch.add, (torch.zeros(2, 3), [torch.zeros(1, dtype=torch.int64)]), {"alpha": 2})
    assert str(call) == "(f32[2, 3], [i64[1]], alpha=2)"


def test_second_sizes_are_those_that_eager_takes() -> None:
    call = Call(torch.mm, (torch.zeros(2, 3), torch.zeros(3, 4)), {})
    moves = moves_of("mm", call)
    assert sorted(map(sorted, moves)) == [[(0, 0)], [(0, 1), (1, 0)], [(1, 1)]]
    larger = enlarged("mm", call, moves)
    assert larger is not None
    assert [tuple(tensor.shape) for tensor in larger.tensors] == [(4, 6), (6, 8)]
    assert enlarged("mm", call, [frozenset({(0, 1)})]) is None
    unbind = Call(torch.unbind, (torch.zeros(2, 3),), {})
    assert moves_of("unbind", unbind) == [frozenset({(0, 1)})]  # a result for each row


def test_larger_matrices_keep_their_rank() -> None:
    torch.manual_seed(0)
    tall = torch.randn(3, 5, 2)
    definite = tall[:, :2].mT @ tall[:, :2] + torch.eye(2)
    call = Call(torch.linalg.inv, (definite,), {})
    moves = moves_of("linalg.inv", call)
    assert moves == [frozenset({(0, 0)}), frozenset({(0, 1), (0, 2)})]
    larger = enlarged("linalg.inv", call, moves)
    assert larger is not None
    assert torch.linalg.eigvalsh(larger.tensors[0]).amin() > 0.4  # 1/2 of the smallest
    for axis, shape in ((1, (3, 10, 2)), (2, (3, 5, 4))):
        wide = enlarged("linalg.qr", Call(torch.linalg.qr, (tall,), {}), [frozenset({(0, axis)})])
        assert wide is not None
        assert wide.tensors[0].shape == shape
        assert torch.linalg.matrix_rank(wide.tensors[0]).tolist() == [min(shape[1:])] * 3


def test_a_number_of_results_in_a_tensor_is_a_constant() -> None:
    calls = [call for call in database.calls_of("tensor_split", "float32") if call.runs()]
    assert [str(call) for call in calls[:3]] == [
        *("(f32[5, 5, 5], i64[3])", "(f32[5, 5, 5], constant 1)", "(f32[5, 5, 5], i64[3], 1)"),
    ]
    assert [len(call.tensors) for call in calls[:3]] == [2, 1, 2]


def test_sizes_that_pytorch_does_not_check_move_as_far_as_they_have_a_meaning() -> None:
    statistics = [torch.ones(5) for _ in range(4)]
    norm = Call(torch.native_batch_norm, (torch.zeros(2, 5, 3), *statistics, True, 0.1, 1e-5), {})
    channels = frozenset({(0, 1), *((i, 0) for i in range(1, 5))})
    assert set(moves_of("native_batch_norm", norm)) == {frozenset({(0, 0)}), frozenset({(0, 2)}), channels}
    offsets = {"offsets": torch.tensor([0, 3])}
    bags = Call(torch.nn.functional.embedding_bag, (torch.tensor([1, 2, 4, 5]), torch.zeros(10, 3)), offsets)
    entry = "nn.functional.embedding_bag"
    assert {place for move in moves_of(entry, bags) for place in move} == {(0, 0), (1, 0), (1, 1)}
    whole = dataclasses.replace(bags, kwargs={"offsets": torch.tensor([0, 3, 4]), "include_last_offset": True})
    assert {place for move in moves_of(entry, whole) for place in move} == {(1, 0), (1, 1)}


# Results that are not unique.


def by_definition(entry: str, call: Call, results: list[Any]) -> str | None:
    return differs_by_definition(entry, call, [np.asarray(result) for result in results])


def test_singular_vectors_may_have_either_sign_but_not_another_direction() -> None:
    torch.manual_seed(0)
    call = Call(torch.linalg.svd, (torch.randn(4, 3),), {"full_matrices": False})
    left, values, right = (result.numpy() for result in call())
    flipped = np.array([1, -1, 1], np.float32)
    assert by_definition("linalg.svd", call, [left * flipped, values, right * flipped[:, None]]) is None
    assert "quantity 1" in str(by_definition("linalg.svd", call, [left * flipped, values, right]))
    assert "quantity 0" in str(by_definition("linalg.svd", call, [left, values * 1.01, right]))
    assert "float32[3, 3]" in str(by_definition("linalg.svd", call, [left[:3], values, right]))


def test_eigenvalues_may_come_in_any_order() -> None:
    torch.manual_seed(0)
    call = Call(torch.linalg.eigvals, (torch.randn(4, 4),), {})
    pairs = torch.view_as_real(call()[0]).numpy()
    assert by_definition("linalg.eigvals", call, [pairs[::-1].copy()]) is None
    assert by_definition("linalg.eigvals", call, [pairs * 1.01]) is not None


def test_among_equal_elements_any_may_be_named() -> None:
    call = Call(torch.sort, (torch.tensor([2.0, 1.0, 2.0]),), {"dim": 0})
    assert by_definition("sort", call, [np.float32([1, 2, 2]), np.array([1, 2, 0])]) is None
    assert by_definition("sort", call, [np.float32([1, 2, 2]), np.array([1, 1, 0])]) is not None


def test_of_uninitialised_memory_only_the_form_counts() -> None:
    call = Call(torch.empty_like, (torch.zeros(2),), {})
    assert by_definition("empty_like", call, [np.float32([7, 8])]) is None
    assert "float64[2]" in str(by_definition("empty_like", call, [np.zeros(2)]))


# One sample through the stages.


@pytest.mark.quick("opbridge", every=3)
@pytest.mark.parametrize("exporter", ["opbridge", "torch"])
def test_a_sample_passes(exporter: str) -> None:
    checked = check.Checker(Way(exporter)).check("mul", [Call(torch.mul, (torch.ones(2), torch.ones(2)), {})])
    assert (checked.status, checked.error) == ("pass", "")
    assert list(checked.seconds) == ["capture", "translate", "load", "run"]


@pytest.mark.slow
def test_wrong_numbers_are_a_mismatch() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    call = Call(torch.nn.functional.avg_pool2d, (values[None, None], 2), {"divisor_override": 3})
    checked = check.Checker(Way("torch")).check("nn.functional.avg_pool2d", [call])
    assert checked.status == "mismatch"
    assert "output" in checked.error


def test_a_stage_that_fails_is_named() -> None:
    checker = check.Checker(Way())
    assert checker.check("add", [Call(reads, (torch.ones(2),), {})]).status == "capture"
    call = Call(torch.geqrf, (torch.ones(2, 2),), {})
    if not any(spec.target.startswith("aten::geqrf") for spec in checker._catalog.builtin):
        checked = checker.check("geqrf", [call])
        assert checked.status == "translate"
        assert "aten::geqrf" in checked.error


@pytest.mark.slow
def test_dynamic_dimensions_are_verified_at_a_second_size() -> None:
    calls = [Call(torch.mul, (torch.ones(2, 3), torch.ones(3)), {})]
    assert check.Checker(Way(dynamic=True)).check("mul", calls).status == "pass"
    partly_frozen = [
        Call(lambda x: x * x.shape[1].__index__(), (torch.ones(2, 3),), {}),
        Call(torch.cartesian_prod, (torch.ones(1), torch.ones(2)), {}),  # torch guards the first size: it is 1
    ]
    assert check.Checker(Way(dynamic=True)).check("mul", partly_frozen).status == "pass"
    frozen = Call(lambda x: x * len(x.tolist()), (torch.ones(3, dtype=torch.int64),), {})
    assert check.Checker(Way(dynamic=True)).check("mul", [frozen]).status == "capture"


# Many samples through one export.


def reads(x: torch.Tensor) -> torch.Tensor:
    return x + float(f"{x.sum()}")


@pytest.mark.sweep
def test_samples_of_one_export_have_a_verdict_each() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])[None, None]
    pool = torch.nn.functional.avg_pool2d
    calls = [Call(pool, (values, 2), {"divisor_override": divisor}) for divisor in (None, 3, None, None)]
    calls += [Call(reads, (torch.ones(2),), {}), Call(pool, (values, 1), {})]
    checker, sizes = check.Checker(Way("torch")), []

    def one_export(samples: Any) -> check.Checked:
        sizes.append(len(samples))
        return checker.check("nn.functional.avg_pool2d", [call for _, call in samples])

    found = {
        number: (checked.status, len(samples))
        for samples, checked in verdicts(one_export, in_batches(list(enumerate(calls))))
        for number, _ in samples
    }
    assert {number: status for number, (status, _) in found.items()} == {
        **dict.fromkeys((0, 2, 3, 5), "pass"),
        1: "mismatch",
        4: "capture",
    }
    # All; the first half, of which sample 1 alone is wrong; the second half, its halves, and the last of them apart.
    assert sizes == [6, 3, 1, 3, 1, 2, 1, 1]
    assert [checker.check("", [calls[number]]).status for number in (0, 1, 4)] == ["pass", "mismatch", "capture"]


def test_results_that_are_not_unique_are_judged_by_their_own_sample() -> None:
    torch.manual_seed(0)
    calls = [Call(torch.linalg.svd, (torch.randn(3, 2),), {"full_matrices": False}) for _ in range(2)]
    captured = check.Checker(Way())._captured(calls, None)
    right = [np.asarray(result) for call in calls for result in call()]
    wrong = [*right[:3], right[3] * np.float32([-1, 1]), *right[4:]]

    class Given:
        def __init__(self, results: list[Any]) -> None:
            self.last = results

        def run(self, feeds: Any) -> dict[str, Any]:
            return dict(zip(captured.output_names, self.last, strict=True))

    judge = check.Checker(Way())._wrong
    assert judge("linalg.svd", captured, Given(right), calls) == {}
    assert list(judge("linalg.svd", captured, Given(wrong), calls)) == [1]


def test_what_a_worker_ended_on_is_alone() -> None:
    samples = [(number, Call(torch.neg, (torch.ones(1),), {})) for number in range(40)]
    batches = [[number for number, _ in batch] for batch in in_batches(samples, {3, 39})]
    assert batches[:2] == [[3], [39]]
    assert [len(batch) for batch in batches[2:]] == [32, 6]


# Runs.


def run(tmp_path: Path, **options: Any) -> Any:
    return run_conformance(file=tmp_path / "results.jsonl", jobs=1, **options)


@pytest.mark.sweep
def test_a_run_is_resumed_and_counts(tmp_path: Path) -> None:
    found = run(tmp_path, entries=["hypot", "sparse.mm.reduce"], samples=3)
    assert [(result.entry, result.status) for result in found.results] == [
        ("sparse.mm.reduce", "not applicable"),
        ("hypot", "pass"),
    ]
    passed = found.results[1]
    assert passed.counts == {"pass": 3}
    assert passed.rungs == {"aten::hypot": "decompose"}
    assert found.to_dict()["counts"] == {"float32": {"pass": 1, "not applicable": 1}}
    lines = (tmp_path / "results.jsonl").read_text()
    told: list[str] = []
    again = run(tmp_path, entries=["hypot", "sparse.mm.reduce"], samples=3, progress=told.append)
    assert again.results == found.results
    assert told == []
    assert (tmp_path / "results.jsonl").read_text() == lines


@pytest.mark.slow
def test_a_crash_and_a_hang_are_results_of_one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is replaced by one that ends on its second sample, and by one that is silent on it."""
    for ending, cause in ((f"os.kill(os.getpid(), {int(signal.SIGSEGV)})", "SIGSEGV"), ("time.sleep(60)", "5 seconds")):
        source = _FAKE_WORKER.format(ending=ending)
        monkeypatch.setattr(pool.sys, "executable", os.sys.executable)
        own = pool.subprocess.Popen
        monkeypatch.setattr(
            pool.subprocess,
            "Popen",
            lambda command, own=own, source=source, **kw: own([command[0], "-c", source], **kw),
        )
        ((_, tally),) = pool.check_entries([{"entry": "x", "dtype": "float32", "way": {}}], jobs=1, limit=5)
        monkeypatch.undo()
        statuses = [tally.samples[number]["status"] for number in range(4)]
        assert statuses == ["pass", "run", "pass", "pass"]
        assert cause in tally.samples[1]["error"]
        assert tally.deaths == 2


def test_a_run_that_is_stopped_ends_what_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    own = pool.subprocess.Popen

    def start(command: list[str], **kw: Any) -> Any:
        started.append(own([command[0], "-c", _SLOW_WORKER], **kw))
        return started[-1]

    monkeypatch.setattr(pool.subprocess, "Popen", start)
    requests = [{"entry": name, "dtype": "float32", "way": {}} for name in ("quick", "slow")]
    found = pool.check_entries(requests, jobs=1, limit=600)
    assert next(found)[0]["entry"] == "quick"
    found.close()  # type: ignore[attr-defined]
    assert [process.wait(timeout=5) for process in started] == [-signal.SIGKILL]


_SLOW_WORKER = """
import json, sys, time
for line in sys.stdin:
    if json.loads(line)["entry"] == "slow":
        time.sleep(600)
    print(json.dumps({"end": True}), flush=True)
"""

_FAKE_WORKER = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    left = [n for n in range(4) if n not in request["done"]]
    print(json.dumps({{"samples": len(left)}}), flush=True)
    for group in ([[n] for n in left] if request["alone"] else [left]):
        print(json.dumps({{"stage": "run", "samples": group}}), flush=True)
        if 1 in group:
            {ending}
        print(json.dumps({{"done": group, "status": "pass"}}), flush=True)
    print(json.dumps({{"end": True}}), flush=True)
"""


def test_after_many_failures_the_rest_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(worker, "_MOST_FAILURES", 2)
    monkeypatch.setattr(worker, "_samples", lambda *_: enumerate(["a", "b", "c", "d"]))

    class Failing:
        def __init__(self, way: Way, begin: Any) -> None:
            pass

        def check(self, entry: str, calls: Any) -> check.Checked:
            return check.Checked("mismatch", "wrong")

    monkeypatch.setattr(worker, "Checker", Failing)
    request = {"entry": "x", "dtype": "float32", "way": dataclasses.asdict(Way()), "done": [], "failures": 0}
    worker.check_entry({**request, "alone": []}, said.append)
    tally = pool.Tally()
    for message in said:
        tally.note(message)
    assert [tally.samples[number]["status"] for number in range(4)] == ["mismatch", "mismatch", "not run", "not run"]
    assert tally.failures == 2
    result = result_of({"entry": "x", "dtype": "float32"}, tally, Way(), {})
    assert result.counts == {"mismatch": 2, "not run": 2}
    assert result.failed == (
        {"status": "mismatch", "error": "wrong", "sample": "a"},
        {"status": "mismatch", "error": "wrong", "sample": "b"},
    )
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"entries": ["hypott"]}, "no entry 'hypott'"),
        ({"dtypes": ["float31"]}, "no dtype 'float31'"),
        ({"exporter": "tvm"}, "no exporter 'tvm'"),
        ({"limit": -1.0}, "limit=-1"),
        ({"engine": "tvmm"}, "tvmm"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path, **options)
    assert not (tmp_path / "results.jsonl").exists()


# Files of results, and the page.


def test_results_are_read_back_and_the_latest_counts(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    better = dataclasses.replace(RESULT, status="pass")
    other = dataclasses.replace(RESULT, way=Way("torch"))
    lines = [json.dumps(result.to_dict()) for result in (RESULT, other, better)]
    file.write_text("\n".join([*lines, '{"entry": "cut o']))
    assert latest(read_results(file)) == [better, other]
    file.write_text('{"entry": "x"}\n')
    with pytest.raises(InputError, match=r"Line 1 of .* is not a result"):
        read_results(file)
    with pytest.raises(InputError, match="no file"):
        read_results(tmp_path / "none")


def test_the_page_holds_every_cell_and_loads_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results.jsonl"
    hostile = dataclasses.replace(RESULT, entry="</script><b>", way=Way("torch"))
    file.write_text("\n".join(json.dumps(result.to_dict()) for result in (RESULT, hostile)))
    assert main(["conformance", "report", str(file), "-o", str(tmp_path / "site"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "page": str(tmp_path / "site/index.html"),
        "entries": 2,
        "columns": 2,
    }
    text = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "http" not in text
    assert "src=" not in text
    assert text.count("</script>") == 2
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert [column["name"] for column in data["columns"]] == [
        "opbridge · onnxruntime · float32",
        "torch.onnx · onnxruntime · float32",
    ]
    assert data["pairs"] == [[0, 1]]
    (row,) = [row for row in data["rows"] if row["entry"] == "sort"]
    assert row["cells"][0]["error"] == "2 < 1 & so on"
    assert row["cells"][1] is None


def test_a_page_without_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text("")
    with pytest.raises(InputError, match=r"There are no results in .*results\.jsonl"):
        write_page([tmp_path / "results.jsonl"], tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_a_batch_gives_what_its_calls_give() -> None:
    calls = [Call(torch.add, (torch.ones(2), 1), {}), Call(torch.sort, (torch.tensor([2.0, 1.0]),), {})]
    results = Batch(calls)(*(tensor for call in calls for tensor in call.tensors))
    assert [result.tolist() for result in results] == [[2, 2], [1, 2], [1, 0]]
