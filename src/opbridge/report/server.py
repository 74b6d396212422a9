"""Serves a bundle's report and its graphs to a browser on this machine.

The address contains a random token, so that other users of the machine can't read them.

The graph viewer is Netron, from the installed package. Its files are served unchanged, except that the first page gets
the model's address and a script that selects a node. Nothing leaves the machine: Netron's network requests are switched
off, and the content security policy makes the browser block them.
"""

from __future__ import annotations

import html
import importlib.util
import mimetypes
import re
import secrets
import threading
import urllib.parse
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opbridge.errors import InputError

__all__ = ["INSTALL", "Answer", "ReportServer", "netron_folder"]

INSTALL = 'pip install "netron>=9.3.3"'
_HOSTS = ("localhost", "127.0.0.1")
_SELECT = "opbridge-select.js"
_GRAPH_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "frame-src 'none'; form-action 'none'"
)
_CHUNK = 1 << 20


def netron_folder() -> Path | None:
    """The folder of Netron's files; None if Netron is not installed."""
    found = importlib.util.find_spec("netron")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    return Path(places[0]) if places and (Path(places[0]) / "index.html").is_file() else None


class Answer:
    """The response for one address: text, or a file that is streamed."""

    def __init__(self, content: bytes | Path, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.content = content
        self.kind = kind
        self.headers = dict(headers or {})


class ReportServer:
    """A server on localhost, used as a context manager.

    Args:
        models: The models whose graphs can be opened.
        page: Renders the report, once per request; None to serve only the graphs.
        port: The port; 0 for any free port.
        listed: The names of the files that may be served, as a bundle's manifest lists them; None for the models and
            the files of their weights, by their names.

    Raises:
        InputError: The port is taken.
    """

    def __init__(
        self,
        models: list[Path],
        page: Callable[[], str] | None,
        port: int = 0,
        *,
        listed: Collection[str] | None = None,
    ) -> None:
        self._models = models
        self._listed = listed
        self._root = f"/{secrets.token_urlsafe(16)}"
        self._page = page
        self._netron = netron_folder()
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"Port {port} can't be served: {reason}.", fix="choose another with --port.") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        """The address of the report, or of the graph if there is no report."""
        place = f"http://localhost:{self._server.server_address[1]}{self._root}/"
        return place if self._page is not None else f"{place}graph/0/"

    def __enter__(self) -> ReportServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self) -> None:
        """Wait until this process is interrupted."""
        self._thread.join()

    def answer(self, path: str) -> Answer | None:
        """The response for a path; None if there is none, or if it does not begin with the token."""
        root, path = path[: len(self._root)], path[len(self._root) :]
        if not secrets.compare_digest(root.encode(), self._root.encode()):
            return None
        if path in ("/", "/report.html") and self._page is not None:
            text = self._page().replace("<head>", '<head>\n<meta name="opbridge-graph" content="graph/">', 1)
            return Answer(text.encode("utf-8", "replace"), "text/html; charset=utf-8")
        found = re.fullmatch(r"/graph/(\d{1,4})/(.*)", path)
        if found is None or int(found.group(1)) >= len(self._models):
            return None
        return self._graph(self._models[int(found.group(1))], found.group(2) or "index.html")

    def _graph(self, model: Path, name: str) -> Answer | None:
        if self._netron is None:
            return Answer(_without_netron(model).encode(), "text/html; charset=utf-8") if name == "index.html" else None
        if name == "index.html":
            content = _netron_page((self._netron / name).read_text(encoding="utf-8"), model)
            # With this cookie Netron does not look up the user's country.
            headers = {"Content-Security-Policy": _GRAPH_POLICY, "Set-Cookie": "consent=local; Path=/; SameSite=Strict"}
            return Answer(content.encode(), "text/html; charset=utf-8", headers)
        if name == _SELECT:
            return Answer(Path(__file__).with_name("graph_select.js").read_bytes(), "text/javascript")
        if name.startswith("data/"):
            return self._model_file(model, name.removeprefix("data/"))
        file = self._netron / name
        if "/" in name or "\\" in name or file.suffix == ".py" or not file.is_file():
            return None
        return Answer(file, mimetypes.guess_type(name)[0] or "application/octet-stream")

    def _model_file(self, model: Path, name: str) -> Answer | None:
        """The model, or a file of its weights: a file in the same folder whose name begins with the model's name."""
        file = model.parent / name
        if Path(name).name != name or not name.startswith(model.stem) or not file.is_file():
            return None
        if self._listed is not None and name not in self._listed:
            return None
        return Answer(file, "application/octet-stream")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(with_content=True)

            def do_HEAD(self) -> None:
                self._send(with_content=False)

            def log_message(self, format: str, *args: object) -> None:
                pass

            def _send(self, *, with_content: bool) -> None:
                # Protects against DNS rebinding: a page from another host name must not read the responses.
                if (self.headers.get("Host") or "").partition(":")[0] not in _HOSTS:
                    self._refuse(HTTPStatus.FORBIDDEN, "Only requests to localhost are answered.")
                    return
                try:
                    found = server.answer(urllib.parse.unquote(urllib.parse.urlsplit(self.path).path))
                except (InputError, OSError) as error:
                    self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
                    return
                if found is None:
                    self._refuse(HTTPStatus.NOT_FOUND, "Not found.")
                    return
                self._deliver(found, with_content)

            def _deliver(self, found: Answer, with_content: bool) -> None:
                content = found.content
                size = len(content) if isinstance(content, bytes) else content.stat().st_size
                self.send_response(HTTPStatus.OK)
                headers = {"Content-Type": found.kind, "Content-Length": str(size), "Cache-Control": "no-store"}
                for name, value in {**headers, **found.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if not with_content:
                    return
                if isinstance(content, bytes):
                    self.wfile.write(content)
                    return
                with content.open("rb") as stream:
                    while chunk := stream.read(_CHUNK):
                        self.wfile.write(chunk)

            def _refuse(self, status: HTTPStatus, why: str) -> None:
                text = f"{why}\n".encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

        return Handler


def _netron_page(page: str, model: Path) -> str:
    """Netron's first page with the model's address. Netron sends no usage data for version 0.0.0."""
    name = html.escape(model.name)
    tags = "\n".join(
        (
            '<meta name="type" content="Python">',
            '<meta name="version" content="0.0.0">',
            f'<meta name="file" content="data/{html.escape(urllib.parse.quote(model.name))}">',
            f'<meta name="name" content="{name}">',
            f'<meta name="identifier" content="{name}">',
            f'<script src="{_SELECT}"></script>',
        )
    )
    page = re.sub(r'<meta name="date"[^>]*>\n?', "", page, count=1)
    return re.sub(r'<meta name="version"[^>]*>', lambda _: tags, page, count=1)


def _without_netron(model: Path) -> str:
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Netron is not installed</title>"
        "<body style='font: 16px/1.6 system-ui, sans-serif; max-width: 40em; margin: 15vh auto; padding: 0 20px'>"
        f"<h1 style='font-size: 1.4em'>The graph of {html.escape(model.name)} needs Netron</h1>"
        f"<p>It is not installed. Install it, then start <code>opbridge view</code> again:</p><pre>{INSTALL}</pre>"
    )
