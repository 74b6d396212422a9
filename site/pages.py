"""A hook of mkdocs: the pages of the site that are not in docs/, and links that lead out of docs/.

The Markdown files of the repository's root become pages, and so does each file that a page links to. The reference of
the commands, the operators, the findings and the Python functions is generated from the code.
"""

from __future__ import annotations

import argparse
import ast
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import opbridge
from opbridge.catalog.declare.lookup import list_mappings
from opbridge.cli import build_parser
from opbridge.cli._options import GROUPS

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "README.zh.md": "readme.zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
STYLE = """\
.md-grid { max-width: 78rem }
.md-typeset pre > code { font-size: 0.68rem }
.md-typeset td img { min-width: 20rem }
@media (min-width: 60em) { .md-typeset td code { word-break: normal } }
"""
"""The output of commands is wide, pictures stay readable, and names stay in one line."""
GENERATED = ("commands.md", "operators.md", "findings.md", "api.md")
LANGUAGES = {".py": "python", ".h": "cpp", ".cc": "cpp", ".cpp": "cpp"}
LINK = re.compile(r"\[(?P<text>[^]]*)\]\((?!https?:|#)(?P<file>[^)#\s]+)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, the root's, and one for each other file that is linked."""
    pages = {page: (ROOT / name).read_text(encoding="utf-8") for name, page in ROOT_PAGES.items()}
    documents = {**{f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}}
    documents.update({name: pages[page] for name, page in ROOT_PAGES.items()})
    for origin, text in documents.items():
        for target in _targets(origin, text):
            if _page_of(target).startswith("files/") and (ROOT / target).is_file():
                pages[_page_of(target)] = _source(target)
    pages.update(zip(GENERATED, (_commands(), _operators(), _findings(), _api()), strict=True))
    for name, text in {**pages, "style.css": STYLE}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links of the repository to the site's pages; a link to a folder becomes its text."""
    here = page.file.src_uri
    origin = next((name for name, uri in ROOT_PAGES.items() if uri == here), f"docs/{here}")

    def to_page(match: re.Match[str]) -> str:
        target = _target(origin, match)
        if (ROOT / target).is_dir():
            return match["text"]
        return (
            f"[{match['text']}]({posixpath.relpath(_page_of(target), posixpath.dirname(here))}{match['anchor'] or ''})"
        )

    if here.startswith("files/") or here in GENERATED:
        return markdown
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(to_page, part) for part in parts)


def _targets(origin: str, text: str) -> Iterator[str]:
    for match in LINK.finditer(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)):
        yield _target(origin, match)


def _target(origin: str, link: re.Match[str]) -> str:
    """The path in the repository that a link of a document leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link["file"]))


def _page_of(target: str) -> str:
    """The site's page of a file of the repository."""
    if target in ROOT_PAGES:
        return ROOT_PAGES[target]
    return target.removeprefix("docs/") if target.startswith("docs/") else f"files/{target}.md"


def _source(target: str) -> str:
    """A page that shows a file."""
    text = (ROOT / target).read_text(encoding="utf-8")
    if target.endswith(".ipynb"):
        cells = [("".join(cell["source"]), cell["cell_type"]) for cell in json.loads(text)["cells"]]
        return "\n\n".join(f"```python\n{cell}\n```" if kind == "code" else cell for cell, kind in cells)
    return f"# {target}\n\n````{LANGUAGES.get(Path(target).suffix, 'text')}\n{text.rstrip()}\n````\n"


def _commands() -> str:
    """Every command with its options, in the groups of the help."""
    parser = build_parser()
    (subparsers,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    lines = [
        "# Commands",
        "",
        "Exit codes: 0 for success, 1 for a problem in the model or the input, 2 for wrong usage.",
    ]
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in subparsers.choices:
        module = __import__(f"opbridge.cli.{name.replace('-', '_')}", fromlist=["GROUP"])
        groups[module.GROUP].append(name)
    for group, names in groups.items():
        lines += ["", f"## {group}"]
        for name in names:
            lines += ["", f"### opbridge {name}", "", "```text", subparsers.choices[name].format_help().rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _operators() -> str:
    """Every mapping of the catalog."""
    lines = [
        "# Operators",
        "",
        "The mappings of opbridge. All other operators use those of torch.onnx. `opbridge ops NAME` shows one in full.",
        "",
        "| operator | rung | opset | what it computes |",
        "|---|---|---|---|",
    ]
    for mapping in list_mappings(()):
        data = mapping.to_dict()
        summary = " ".join(str(data.get("summary", "")).split()).replace("|", "\\|")
        lines.append(f"| `{data['target']}` | {data['rung']} | {data.get('opset') or ''} | {summary} |")
    return "\n".join(lines) + "\n"


def _findings() -> str:
    """Every finding: its meaning, why it is a problem, an example and the fix."""
    lines = ["# Findings", "", "What `diagnose` and `export` report about a model."]
    files = (ROOT / "src" / "opbridge").glob("**/findings/[a-z]*.py")
    for file in sorted(files, key=lambda file: file.name):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        codes = [node.value.value for node in tree.body if _is_code(node)]
        text = ast.get_docstring(tree)
        if codes and text:
            lines += ["", f"## {codes[0]}", "", re.sub(r"::$", ":", text, flags=re.MULTILINE).replace("``", "`")]
    return "\n".join(lines) + "\n"


def _is_code(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(getattr(name, "id", "") == "CODE" for name in node.targets)


def _api() -> str:
    """The public functions and classes."""
    lines = ["# Python", "", "The public names of `opbridge`."]
    for name in opbridge.__all__:
        if name != "__version__":
            lines += ["", f"::: opbridge.{opbridge._HOMES.get(name, 'errors')}.{name}"]
    return "\n".join([*lines, "", "::: opbridge.testing.assert_equal"]) + "\n"
