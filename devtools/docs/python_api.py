"""Generator of the reference page of the Python API from docstrings: public classes of ``ottla``, pytest fixtures."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import ottla
from devtools.docs.message_layout import wrap
from ottla import cluster, pytest_plugin
from ottla.client import cluster_client
from ottla.tools import blocking_client, fault_client
from ottla.tools.fault_controls import FaultControls

MODULES = (blocking_client, fault_client, cluster_client)
"""Modules of constants that docstrings of other modules name."""
REACHABLE = (cluster.ClusterNode, fault_client.Faults, fault_client.NodeClock, fault_client.FaultConnection)
"""Classes without a public name whose objects public members return."""
SIGNATURE_WIDTH = 100
_SECTION = re.compile(r"(Args|Returns|Raises):")
_SEVERAL = re.compile(r"[;.] (?=[A-Z]\w+(?:Error|Disabled|Rejected|Failed|Exception|File): )")
_CONSTANT = re.compile(r"`([A-Z][A-Z_]+_(?:S|MS))`")
_REFERENCE = re.compile(r"(?<!`)`([A-Za-z_.]+)`(?!`)")
_LITERAL = re.compile(r"``([^`]+)``")
_TITLES = {"Args": "Arguments", "Returns": "Returns", "Raises": "Raises"}

INTRODUCTION = """\
This page is the reference of the Python API, for developers who start Kafka from a program or a test: the public names
of the package `ottla`, the classes of their results, and the pytest fixtures. The page [Embedded broker and
cluster](embedded.md) explains them with examples. Everything else in the package is internal.
"""
FIXTURES = """\
pytest finds the fixtures once Ottla is installed. [In tests](embedded.md#in-tests) explains the cluster under test. The
scope of the embedded broker is that of the option `ottla_scope`.
"""


class Documented(NamedTuple):
    """Docstring in parts: paragraphs, and the entries of the sections ``Args``, ``Returns`` and ``Raises``."""

    paragraphs: list[str]
    sections: dict[str, list[str]]


def parse_docstring(text: str) -> Documented:
    """Return the parts of a docstring in Google style, each paragraph and entry as one line."""
    paragraphs: list[str] = []
    sections: dict[str, list[str]] = {}
    title = ""
    starts_paragraph = True
    for line in inspect.cleandoc(text).splitlines():
        if _SECTION.fullmatch(line):
            title = line[:-1]
            sections[title] = []
        elif title and line.startswith("     "):
            sections[title][-1] += f" {line.strip()}"
        elif title and line.startswith("    "):
            sections[title].append(line.strip())
        elif line and starts_paragraph:
            title = ""
            paragraphs.append(line)
        elif line:
            paragraphs[-1] += f" {line}"
        starts_paragraph = not line
    return Documented(paragraphs, {name: _entries(lines) for name, lines in sections.items()})


def _entries(lines: list[str]) -> list[str]:
    """Return the entries of a section; a line may have several exceptions: ``ValueError: ...; OSError: ...``."""
    return [entry for line in lines for entry in _SEVERAL.split(line.removesuffix("."))]


def _constant(name: str, owner: type | None) -> str:
    """Return the value and the unit of a constant that a docstring of ``owner`` names, such as ``30 s``."""
    modules = [sys.modules[cls.__module__] for cls in getattr(owner, "__mro__", ())] + [*MODULES]
    value = next(vars(module)[name] for module in modules if name in vars(module))
    return f"{value:g} {name.rpartition('_')[2].lower()}"


class ApiClass:
    """Section of the page for a class.

    Args:
        cls: the class.
        title: its heading, such as ``ottla.Broker``.
    """

    def __init__(self, cls: type, title: str) -> None:
        self.cls, self.title = cls, title

    @cached_property
    def attributes(self) -> dict[str, tuple[str, str]]:
        """Annotations and docstrings of public attributes with a docstring and of properties, by their names."""
        out: dict[str, tuple[str, str]] = {}
        for cls in self._bases():
            (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
            assert isinstance(node, ast.ClassDef)
            bodies = [node.body]
            bodies += [each.body for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            for body in bodies:
                for field, text in pairwise(body):
                    if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                        out |= _attribute(field, " ".join(str(text.value.value).split()))
        for name, value in self._public().items():
            if _is_plain(value):
                out[name] = (_kind(value), " ".join(parse_docstring(value.__doc__).paragraphs))
        return out

    @cached_property
    def members(self) -> dict[str, Any]:
        """Public methods, and properties that raise errors, also of base classes, in the order of their definition."""
        return {name: each for name, each in self._public().items() if not _is_plain(each)}

    def _public(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for cls in self._bases():
            for name, value in vars(cls).items():
                if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    found.setdefault(name, value)
        return found

    def _bases(self) -> list[type]:
        return [cls for cls in self.cls.__mro__ if cls.__module__.startswith("ottla.")]

    def render(self, resolve: Callable[[str, str], str]) -> Iterator[str]:
        """Yield the lines of the section; ``resolve`` makes Markdown of a text within the class of a name."""
        name = self.cls.__name__
        yield from ("", f"## {self.title}", "")
        if "Args" in parse_docstring(self.cls.__doc__ or "").sections:
            yield from (*_code(_signature(vars(self.cls)["__init__"], name)), "")
        yield from _describe(self.cls.__doc__ or "", lambda text: resolve(text, name))
        if self.attributes:
            yield from ("", "Attributes:", "")
            for attribute, (kind, text) in self.attributes.items():
                declared = f"`{attribute}: {kind}`" if kind else f"`{attribute}`"
                yield from wrap(f"{declared}. {resolve(text, name)}", 2, "- ")
        for member, value in self.members.items():
            yield from ("", f"### {name}.{member}", "")
            if isinstance(value, property):
                yield from _code(f"{member}: {_kind(value)}")
            else:
                start = "async " if inspect.iscoroutinefunction(value) else ""
                yield from _code(start + _signature(value, member))
            yield ""
            yield from _describe(value.__doc__ or "", lambda text: resolve(text, name))


def _is_plain(member: object) -> bool:
    """Return True for a property whose docstring has no sections: it is listed among the attributes."""
    return isinstance(member, property) and not parse_docstring(member.__doc__ or "").sections


def _kind(member: property) -> str:
    """Return the annotation of a property."""
    return str(inspect.signature(member.fget or len).return_annotation)


def _attribute(field: ast.stmt, text: str) -> dict[str, tuple[str, str]]:
    """Return name, annotation and docstring of the attribute that a statement declares or assigns; {} for another."""
    target: ast.expr | None = None
    kind = ""
    if isinstance(field, ast.AnnAssign):
        target, kind = field.target, ast.unparse(field.annotation)
    elif isinstance(field, ast.Assign):
        target = field.targets[0]
    name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else "_"
    return {} if name.startswith("_") else {name: (kind, text)}


def _code(text: str) -> list[str]:
    return ["```text", *text.splitlines(), "```"]


def _default(value: object) -> str:
    """Return the text of a default value: that of a literal, or the name of a constant such as ``NO_SECURITY``."""
    if value is None or isinstance(value, str | int | float | bool):
        return repr(value)
    return next(name for module in MODULES for name, each in vars(module).items() if each is value)


def _signature(function: Callable[..., Any], name: str) -> str:
    """Return the signature of a method without ``self``; one parameter on each line if it is wide."""
    parts: list[str] = []
    signature = inspect.signature(function)
    for parameter in list(signature.parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
        parts.append(f"{stars}{parameter.name}: {parameter.annotation}{default}")
    end = "" if name[0].isupper() else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(parts)}){end}"
    if len(line) <= SIGNATURE_WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){end}"])


def _describe(doc: str, resolve: Callable[[str], str]) -> Iterator[str]:
    """Yield the lines of Markdown for a docstring: its paragraphs, then a list for each section."""
    documented = parse_docstring(doc)
    for number, paragraph in enumerate(documented.paragraphs):
        yield from ([""] if number else [])
        yield from wrap(resolve(paragraph))
    for title, entries in documented.sections.items():
        yield from ("", f"{_TITLES[title]}:", "")
        for entry in entries:
            name, colon, text = entry.partition(": ")
            item = f"`{name}`: {resolve(text)}." if colon and name.isidentifier() else f"{resolve(entry)}."
            yield from wrap(item, 2, "- ")


def api_classes() -> list[ApiClass]:
    """Return the sections of the page: the public names of ``ottla`` but `ErrorCode`, then other classes of results."""
    public = [getattr(ottla, name) for name in ottla.__all__ if name not in ("__version__", "ErrorCode")]
    classes = [cls for cls in public if not issubclass(cls, Exception)]
    errors = [cls for cls in public if issubclass(cls, Exception)]
    first = {"Broker": 0, "AsyncBroker": 1, "Cluster": 2, "BlockingClient": 3, "TopicRecord": 4}
    classes.sort(key=lambda cls: first.get(cls.__name__, len(first)))
    return [
        *(ApiClass(cls, f"ottla.{cls.__name__}") for cls in classes),
        *(ApiClass(cls, cls.__name__) for cls in REACHABLE),
        *(ApiClass(cls, f"ottla.{cls.__name__}") for cls in errors),
    ]


def _resolver(classes: list[ApiClass]) -> Callable[[str, str], str]:
    """Return a function that links the classes and members that a docstring of a class names."""
    anchors = {each.cls.__name__: each.title for each in classes}
    anchors |= {f"ottla.{name}": title for name, title in anchors.items()}
    anchors |= {f"{x.cls.__name__}.{name}": f"{x.cls.__name__}.{name}" for x in classes for name in x.members}
    anchors |= {f"FaultControls.{x}": f"Broker.{x}" for x in vars(FaultControls) if f"Broker.{x}" in anchors}
    anchors |= {name: name for name, _ in fixtures()}
    owners: dict[str, type] = {each.cls.__name__: each.cls for each in classes}

    def resolve(text: str, owner: str) -> str:
        def link(match: re.Match[str]) -> str:
            anchor = anchors.get(f"{owner}.{match[1]}") or anchors.get(match[1])
            target = None if anchor is None or anchor == owner else anchor.lower().replace(".", "")
            return match[0] if target is None else f"[`{match[1]}`](#{target})"

        valued = _CONSTANT.sub(lambda match: _constant(match[1], owners.get(owner)), text)
        return _LITERAL.sub(r"`\1`", _REFERENCE.sub(link, valued))

    return resolve


def fixtures() -> list[tuple[str, ast.FunctionDef]]:
    """Return names and definitions of the fixtures of the pytest plugin, in the order of their definition."""
    body = ast.parse(inspect.getsource(pytest_plugin)).body
    return [
        (node.name, node)
        for node in body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(each).startswith("pytest.fixture") for each in node.decorator_list)
    ]


def _fixture_lines(node: ast.FunctionDef, resolve: Callable[[str, str], str]) -> Iterator[str]:
    """Yield the lines of the section of a fixture: type of its value, scope, and docstring."""
    decorator = ast.unparse(node.decorator_list[0])
    names = {"scope=_scope": "that of the embedded broker", "scope='session'": "session"}
    scope = next((name for argument, name in names.items() if argument in decorator), "function")
    kind = ast.unparse(node.returns) if node.returns is not None else "None"
    value = re.sub(r"^Iterator\[(.*)\]$", r"\1", kind)
    yield from ("", f"### {node.name}", "", f"Value: `{value}`. Scope: {scope}.", "")
    yield from _describe(ast.get_docstring(node) or "", lambda text: resolve(text, ""))


def _options(plugin: ModuleType) -> Iterator[str]:
    """Yield the lines of the table of the plugin's options in ``pytest.ini``."""
    yield from ("| option | default | meaning |", "|---|---|---|")
    for name, _, default, text in plugin._OPTIONS:
        shown = str(default).lower() if isinstance(default, bool) else default or ""
        yield f"| `{name}` | {f'`{shown}`' if shown else ''} | {text} |"


def python_api_page() -> str:
    """Return the Markdown text of ``docs/reference/python-api.md``."""
    classes = api_classes()
    resolve = _resolver(classes)
    lines = ["# Python API", "", "<!-- written by python -m devtools.docs.reference -->", "", INTRODUCTION.rstrip()]
    lines += ["", "`ottla.ErrorCode` is an enumeration of Kafka's [error codes](errors.md).", ""]
    lines += [f"- [{each.title}](#{each.title.lower().replace('.', '')})" for each in classes]
    lines += ["- [Fixtures](#fixtures) and [options](#options) of pytest"]
    for each in classes:
        lines += each.render(resolve)
    lines += ["", "## Fixtures", "", FIXTURES.rstrip()]
    for _, node in fixtures():
        lines += _fixture_lines(node, resolve)
    lines += ["", "## Options", "", "Options in `pytest.ini` or `[tool.pytest.ini_options]`:", ""]
    lines += _options(pytest_plugin)
    return "\n".join(lines) + "\n"
