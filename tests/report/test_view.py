"""``opbridge view``: the report and the graph served on localhost, a node of the one opened in the other."""

from __future__ import annotations

import http.client
import importlib.util
import json
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from report_bundles import HOSTILE, OPERATORS, failed, manifest, sources, write_files

from opbridge.bundle.bundle import read_bundle
from opbridge.bundle.write import write_bundle, write_side_file
from opbridge.cli import main
from opbridge.errors import InputError
from opbridge.report import server as served
from opbridge.report.server import ReportServer
from opbridge.report.written import render

pytestmark = pytest.mark.newest

needs_netron = pytest.mark.skipif(importlib.util.find_spec("netron") is None, reason="not run: needs the extra view")


def chain(count: int) -> onnx.ModelProto:
    """Nodes in a row, named as in the made traces; the last one has a name that would be markup."""
    names = [f"node_{OPERATORS[depth % 5].partition('::')[2]}_{depth}" for depth in range(count)] + [HOSTILE]
    nodes = [
        helper.make_node(
            "Identity" if depth else "Add", [f"v{depth}", "w"][: 1 if depth else 2], [f"v{depth + 1}"], name
        )
        for depth, name in enumerate(names)
    ]
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("v0", f"v{count + 1}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    described = {key: value for key, value in manifest().items() if key not in ("opbridge", "files", "sha256")}
    write_bundle(
        tmp_path / "b",
        described,
        lambda folder: write_files(folder, chain(60).SerializeToString()),
        sources=sources(),
        verification=lambda _: failed().to_dict(),
    )
    return tmp_path / "b"


@pytest.fixture
def server(bundle: Path) -> Iterator[ReportServer]:
    with ReportServer([bundle / "model.onnx"], lambda: render(read_bundle(bundle))) as running:
        yield running


@pytest.fixture
def page(chromium: Any, server: ReportServer) -> Iterator[Any]:
    """A page that may reach localhost; a request elsewhere, or an error of a script, fails the test."""
    context = chromium.new_context(viewport={"width": 1200, "height": 800})
    opened, seen = context.new_page(), []
    context.on("request", lambda request: seen.append(request.url))
    context.on("weberror", lambda error: seen.append(f"error: {error.error}"))
    context.on("console", lambda message: seen.append(f"console: {message.text}"))
    yield opened
    context.close()
    assert [item for item in seen if not item.startswith((server.url, "data:", "blob:"))] == []


def request(url: str, path: str, **headers: str) -> tuple[int, bytes, http.client.HTTPResponse]:
    """Ask the server for a path after its token."""
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", place.port or 0, timeout=30)
    token = headers.pop("token", place.path.split("/")[1])
    connection.request(headers.pop("method", "GET"), f"/{token}{path}", headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer


@pytest.mark.slow
@needs_netron
def test_a_node_of_the_report_is_selected_in_the_graph(page: Any, server: ReportServer) -> None:
    page.goto(server.url)
    assert page.locator("nav a").first.inner_text() == "Graph ↗"
    page.locator("#divergences").get_by_role("button", name="node_Softmax_34").click()
    with page.context.expect_page() as opening:
        page.get_by_role("dialog").get_by_role("link", name="Open in the graph").click()
    graph = opening.value
    graph.locator("body[data-opbridge-node=node_Softmax_34]").wait_for(timeout=30_000)
    assert "node_Softmax_34" in graph.locator("#sidebar").inner_text()
    assert graph.locator("#canvas .node.select").count() == 1
    assert not graph.locator("#opbridge-note").is_visible()
    # Another node, in the window that is open already.
    page.keyboard.press("Escape")
    page.locator("#bundle summary").click()
    page.locator("#bundle input").fill("Conv_5")
    page.locator("#bundle").get_by_role("button", name="node_Conv_5", exact=True).click()
    page.get_by_role("dialog").get_by_role("link", name="Open in the graph").click()
    graph.locator("body[data-opbridge-node=node_Conv_5]").wait_for(timeout=30_000)
    assert len(page.context.pages) == 2


@pytest.mark.slow
@needs_netron
def test_a_node_with_a_hostile_name_and_one_that_is_not_there(page: Any, server: ReportServer) -> None:
    page.goto(server.url)
    address = page.evaluate("(name) => `${location.href}graph/0/#node=${encodeURIComponent(name)}`", HOSTILE)
    page.goto(address)
    page.locator("body[data-opbridge-node]").wait_for(timeout=30_000)
    assert page.locator("body").get_attribute("data-opbridge-node") == HOSTILE
    page.goto(server.url + "graph/0/#node=%3Cb%3Enowhere")
    note = page.locator("#opbridge-note")
    note.wait_for(timeout=30_000)
    assert "The graph has no node <b>nowhere" in note.inner_text()


def test_the_report_is_read_anew(server: ReportServer, bundle: Path) -> None:
    status, before, answer = request(server.url, "/")
    assert status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"Does not match PyTorch" in before
    assert b'name="opbridge-graph" content="graph/"' in before
    write_side_file(read_bundle(bundle), "verification.json", {**failed().to_dict(), "verdict": "passed"})
    assert b'<h1 id="verdict">Matches PyTorch' in request(server.url, "/")[1]
    (bundle / "verification.json").write_text('{"verdict": "passed", "comparisons": 3}')
    status, said, _ = request(server.url, "/")
    assert status == 500
    assert b"was not written by opbridge, or was changed" in said


@needs_netron
def test_only_the_models_and_netrons_files_are_served(server: ReportServer, bundle: Path) -> None:
    (bundle.parent / "secret.txt").write_text("secret")
    (bundle / "model.onnx.data").write_bytes(b"weights")
    assert request(server.url, "/graph/0/data/model.onnx")[1] == (bundle / "model.onnx").read_bytes()
    assert request(server.url, "/graph/0/data/model.onnx.data")[1] == b"weights"
    status, nothing, answer = request(server.url, "/graph/0/data/model.onnx", method="HEAD")
    assert (status, nothing) == (200, b"")
    assert int(answer.headers["Content-Length"]) == (bundle / "model.onnx").stat().st_size
    for path in (
        *("/graph/0/data/bundle.json", "/graph/0/data/../../secret.txt", "/graph/0/data/%2e%2e%2f%2e%2e%2fsecret.txt"),
        *("/graph/0/server.py", "/graph/0/../server.py", "/graph/0/..%2fsetup.py", "/graph/1/", "/graph/0/data/"),
        *("/../b/bundle.json", "/bundle.json", "/graph/0/data/model.onnx/../../bundle.json"),
    ):
        assert request(server.url, path)[0] == 404, path
    assert request(server.url, "/graph/0/view.js")[2].headers["Content-Type"] in (
        "text/javascript",
        "application/javascript",
    )
    policy = request(server.url, "/graph/0/")[2].headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy


def test_a_page_of_another_origin_gets_nothing(server: ReportServer) -> None:
    # DNS that makes a foreign name this machine's leaves that name in the request.
    assert request(server.url, "/", Host="evil.example:80")[0] == 403
    assert request(server.url, "/", Host="localhost:1")[0] == 200
    assert request(server.url, "/", Host="localhost")[0] == 200


def test_without_the_token_nothing_is_served(server: ReportServer) -> None:
    for token in ("", "graph", "x" * 22, "é" * 11):
        assert request(server.url, "/", token=urllib.parse.quote(token))[0] == 404
    assert server.url != ReportServer([], lambda: "").url


@needs_netron
def test_only_listed_files_are_served(bundle: Path) -> None:
    (bundle / "model.onnx.data").write_bytes(b"weights")
    with ReportServer([bundle / "model.onnx"], None, listed=["model.onnx"]) as running:
        assert request(running.url, "/graph/0/data/model.onnx")[0] == 200
        assert request(running.url, "/graph/0/data/model.onnx.data")[0] == 404


def test_without_netron_the_graphs_address_says_how_to_install_it(bundle: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(served, "netron_folder", lambda: None)
    with ReportServer([bundle / "model.onnx"], lambda: render(read_bundle(bundle))) as running:
        assert b"Does not match" in request(running.url, "/")[1]
        status, text, _ = request(running.url, "/graph/0/")
        assert status == 200
        assert served.INSTALL.encode() in text
        assert request(running.url, "/graph/0/view.js")[0] == 404
    monkeypatch.setattr("opbridge.cli.view.netron_folder", lambda: None)
    assert main(["view", str(bundle / "model.onnx"), "--no-browser"]) == 1


def test_a_port_that_is_taken(server: ReportServer) -> None:
    port = urllib.parse.urlsplit(server.url).port or 0
    with pytest.raises(InputError, match=f"Port {port} can't be served") as caught:
        ReportServer([], None, port)
    assert "--port" in caught.value.fix


@pytest.mark.parametrize("arguments", [["nowhere"], ["nowhere.onnx"], ["--port", "70000", "nowhere"]])
def test_what_cannot_be_viewed_is_said(arguments: list[str], capsys: Any) -> None:
    assert main(["view", "--no-browser", *arguments]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "fix: " in said


@needs_netron
@pytest.mark.parametrize("what", ["bundle", "model"])
def test_the_command_prints_its_address_and_ends_with_an_interrupt(bundle: Path, what: str) -> None:
    path = bundle if what == "bundle" else bundle / "model.onnx"
    command = [sys.executable, "-m", "opbridge", "view", str(path), "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        found = json.loads(process.stdout.readline())
        assert found["graph"] is True
        assert found["url"].endswith("/" if what == "bundle" else "/graph/0/")
        place = urllib.parse.urlsplit(found["url"]).path.split("/", 2)[2]
        expected = b"Does not match PyTorch" if what == "bundle" else b'content="data/model.onnx"'
        assert expected in request(found["url"], f"/{place}")[1]
        process.send_signal(signal.SIGINT)
        try:
            rest, errors = process.communicate(timeout=30)
        finally:
            process.kill()
        assert (process.returncode, rest, errors) == (0, "", "")
