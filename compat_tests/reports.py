"""Reports of the client matrix: JUnit XML for CI systems, an HTML page, Markdown."""

from __future__ import annotations

import html
from collections.abc import Mapping
from xml.etree import ElementTree

from compat_tests.clients.client_matrix import CLIENTS, MATRIX_CELLS, NO, YES, format_table

Rows = Mapping[str, dict[str, str] | str]
_VERSIONS = {client.name: client.version for client in CLIENTS}
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
table { border-collapse: collapse; }
th, td { border: 1px solid #8888; padding: .3rem .6rem; text-align: left; }
.yes { background: #2a82; } .no { background: #c22a; font-weight: bold; } .none { opacity: .6; }
"""


def junit_report(rows: Rows, bootstrap: str, seconds: float) -> str:
    """Return a test suite for each client, with a test case for each cell; features without support are skipped."""
    root = ElementTree.Element("testsuites", name="ottla-compat", time=f"{seconds:.3f}")
    for name, cells in rows.items():
        suite = ElementTree.SubElement(root, "testsuite", name=f"{name} {_VERSIONS[name]}", hostname=bootstrap)
        failed = skipped = 0
        for cell in MATRIX_CELLS:
            case = ElementTree.SubElement(suite, "testcase", classname=f"compat.{name}", name=cell)
            outcome = cells if isinstance(cells, str) else cells[cell]
            if outcome == NO:
                failed += 1
                ElementTree.SubElement(case, "failure", message=f"{cell} does not work with {name}")
            elif outcome != YES:
                skipped += 1
                reason = f"left out: {cells}" if isinstance(cells, str) else "not offered by the client"
                ElementTree.SubElement(case, "skipped", message=reason)
        for key, count in (("tests", len(MATRIX_CELLS)), ("failures", failed), ("errors", 0), ("skipped", skipped)):
            suite.set(key, str(count))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def html_report(rows: Rows, bootstrap: str, seconds: float) -> str:
    """Return a page with the matrix; it needs no other file."""
    head = "".join(f'<th scope="col">{html.escape(title)}</th>' for title in ("client", "version", *MATRIX_CELLS))
    body = []
    for name, cells in rows.items():
        row = f'<th scope="row">{html.escape(name)}</th><td>{html.escape(_VERSIONS[name])}</td>'
        if isinstance(cells, str):
            row += f'<td class="none" colspan="{len(MATRIX_CELLS)}">left out: {html.escape(cells)}</td>'
        else:
            row += "".join(_cell(cells[cell]) for cell in MATRIX_CELLS)
        body.append(f"<tr>{row}</tr>")
    title = f"Kafka clients with {html.escape(bootstrap)}"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head><body>',
            f"<h1>{title}</h1>",
            f"<p>Unmodified clients, {seconds:.0f} s. A dash: the client does not offer it.</p>",
            f"<table><thead><tr>{head}</tr></thead><tbody>",
            *body,
            "</tbody></table></body></html>",
            "",
        ]
    )


def _cell(outcome: str) -> str:
    kind = {YES: "yes", NO: "no"}.get(outcome, "none")
    return f'<td class="{kind}">{html.escape(outcome)}</td>'


def markdown_report(rows: Rows, bootstrap: str) -> str:
    """Return a page with the matrix in Markdown."""
    return f"# Kafka clients with {bootstrap}\n\n{format_table(dict(rows))}\n"
