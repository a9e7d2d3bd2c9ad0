"""SVG pictures of the documentation, rendered from their sources: ``python -m devtools.docs.diagrams``.

Two kinds of sources. A state diagram is a ```` ```mermaid NAME ```` block of a page in ``docs/explanation``; its
picture is ``docs/diagrams/PAGE-NAME.svg``. A block diagram is a file ``docs/diagrams/NAME.txt``, one element a line:

    size COLUMNS ROWS
    box ID COLUMN ROW WIDTH HEIGHT text | second line
    group COLUMN ROW WIDTH HEIGHT text
    arrow FROM TO text

Positions and sizes are in cells of the grid. Lines that begin with ``#`` are comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent.parent.parent / "docs"
FOLDER = DOCS / "diagrams"
MERMAID = re.compile(r"^```mermaid (\S+)\n(.*?)^```$", re.M | re.S)
_TRANSITION = re.compile(r"\s*(\S+) --> (\S+?)(?:: (.*))?")
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.small { font-size: 11px; fill: #57606a; }
.box { fill: #eef4fb; stroke: #4c6f93; }
.group { fill: none; stroke: #8c959f; stroke-dasharray: 4 3; }
.line { fill: none; stroke: #57606a; }
.dot { fill: #57606a; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .small { fill: #9198a1; }
  .box { fill: #1c2a3a; stroke: #6f93b8; }
  .line, .group { stroke: #9198a1; }
  .dot { fill: #9198a1; }
}
</style>
<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">
<path class="dot" d="M0,0 L8,4 L0,8 z"/></marker></defs>"""
CELL_WIDTH, CELL_HEIGHT, MARGIN = 92, 30, 8
STATE_WIDTH, STATE_HEIGHT, STATE_STEP, STATE_LEFT = 170, 30, 52, 170


def _svg(width: int, height: int, title: str, body: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, *body, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, css: str = "", anchor: str = "middle") -> str:
    mark = f' class="{css}"' if css else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{mark}>{escape(text)}</text>'


# ---------------------------------------------------------------------- block diagrams


class Box(NamedTuple):
    """A rectangle in pixels."""

    x: int
    y: int
    width: int
    height: int

    @property
    def centre(self) -> tuple[float, float]:
        """Point (x, y) in the middle of the box."""
        return self.x + self.width / 2, self.y + self.height / 2

    def border(self, towards: tuple[float, float]) -> tuple[float, float]:
        """Return the point of the border on the line from the centre to a point."""
        x, y = self.centre
        dx, dy = towards[0] - x, towards[1] - y
        scale = min(self.width / 2 / abs(dx) if dx else 9e9, self.height / 2 / abs(dy) if dy else 9e9)
        return x + dx * scale, y + dy * scale


def _box(column: str, row: str, width: str, height: str) -> Box:
    x, y = MARGIN + float(column) * CELL_WIDTH, MARGIN + float(row) * CELL_HEIGHT
    return Box(int(x), int(y), int(float(width) * CELL_WIDTH), int(float(height) * CELL_HEIGHT))


def _arrow(start: Box, end: Box, text: str) -> Iterator[str]:
    """Yield SVG elements of a straight arrow between two boxes, vertical or horizontal where they overlap.

    A text that is not empty is beside the arrow.
    """
    left, right = max(start.x, end.x), min(start.x + start.width, end.x + end.width)
    top, bottom = max(start.y, end.y), min(start.y + start.height, end.y + end.height)
    (x1, y1), (x2, y2) = start.border(end.centre), end.border(start.centre)
    if left < right:
        x1 = x2 = (left + right) / 2
        y1, y2 = (start.y + start.height, end.y) if start.y < end.y else (start.y, end.y + end.height)
    elif top < bottom:
        y1 = y2 = (top + bottom) / 2
        x1, x2 = (start.x + start.width, end.x) if start.x < end.x else (start.x, end.x + end.width)
    yield f'<line class="line" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" marker-end="url(#head)"/>'
    if text:
        vertical = left < right
        x, y = ((x1 + x2) / 2 + 6, (y1 + y2) / 2 + 4) if vertical else ((x1 + x2) / 2, y1 - 5)
        yield _text(x, y, text, "small", "start" if vertical else "middle")


def block_diagram(source: str, title: str) -> str:
    """Return the SVG picture of a block diagram, whose source has one element in each line.

    Raises:
        ValueError: a line has an unknown element.
    """
    boxes: dict[str, Box] = {}
    groups: list[str] = []
    drawn: list[str] = []
    width = height = 0
    for line in source.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match line.split():
            case ["size", columns, rows]:
                width, height = (_box("0", "0", columns, rows)[2] + 2 * MARGIN, int(float(rows) * CELL_HEIGHT) + 16)
            case ["box", name, column, row, wide, high, *words]:
                box = boxes[name] = _box(column, row, wide, high)
                drawn.append(
                    f'<rect class="box" rx="4" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"/>'
                )
                lines = " ".join(words).split(" | ")
                x, y = box.centre
                for number, text in enumerate(lines):
                    offset = (number - (len(lines) - 1) / 2) * 16 + 4
                    drawn.append(_text(x, y + offset, text, "small" if number else ""))
            case ["group", column, row, wide, high, *words]:
                box = _box(column, row, wide, high)
                groups.append(
                    f'<rect class="group" rx="6" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"/>'
                )
                groups.append(_text(box.x + 8, box.y + 17, " ".join(words), "small", "start"))
            case ["arrow", first, second, *words]:
                drawn += _arrow(boxes[first], boxes[second], " ".join(words))
            case _:
                raise ValueError(f"unknown element: {line}")
    return _svg(width, height, title, groups + drawn)


# ---------------------------------------------------------------------- state diagrams


class Transition(NamedTuple):
    """An edge of a state diagram; ``[*]`` is the start or the end."""

    source: str
    target: str
    label: str


def _transitions(mermaid: str) -> list[Transition]:
    found = [_TRANSITION.fullmatch(line) for line in mermaid.splitlines() if " --> " in line]
    return [Transition(m[1], m[2], m[3] or "") for m in found if m is not None]


def _middle(row: int) -> float:
    return 34 + row * STATE_STEP + STATE_HEIGHT / 2


def _arc(first: int, second: int, number: str) -> Iterator[str]:
    """Yield SVG elements of the arc of a transition from row ``first`` to row ``second``, and its number.

    The arc is on the right if it leads down, on the left if it leads up.
    """
    down = first <= second
    side = STATE_LEFT + STATE_WIDTH if down else STATE_LEFT
    bulge = (22 + 34 * abs(second - first)) * (1 if down else -1)
    shift = 5 if down else -5
    y1, y2 = _middle(first) + shift, _middle(second) - shift
    if first == second:
        y1, y2 = _middle(first) - 9, _middle(first) + 9
    yield (
        f'<path class="line" marker-end="url(#head)" d="M{side},{y1:g} C{side + bulge},{y1:g} {side + bulge},{y2:g} '
        f'{side},{y2:g}"/>'
    )
    if number:
        yield _text(side + bulge * 0.75 + (9 if down else -9), (y1 + y2) / 2 + 4, number, "small")


def state_diagram(mermaid: str, title: str) -> str:
    """Return the SVG picture of a state diagram: states in a column, transitions as arcs, numbered labels below."""
    edges = _transitions(mermaid)
    states = list(dict.fromkeys(name for edge in edges for name in edge[:2] if name != "[*]"))
    body: list[str] = []
    legend: list[str] = []
    numbers: dict[tuple[str, str], list[str]] = {}
    for row, name in enumerate(states):
        y = _middle(row)
        body.append(
            f'<rect class="box" rx="12" x="{STATE_LEFT}" y="{y - STATE_HEIGHT / 2:g}" width="{STATE_WIDTH}" '
            f'height="{STATE_HEIGHT}"/>'
        )
        body.append(_text(STATE_LEFT + STATE_WIDTH / 2, y + 4, name))
    for edge in edges:
        if edge.label:
            numbers.setdefault(edge[:2], []).append(str(len(legend) + 1))
            first, second = ("start" if name == "[*]" else name for name in edge[:2])
            legend.append(f"{len(legend) + 1}: {first} to {second}: {edge.label}")
    for edge in {edge[:2]: edge for edge in edges}.values():
        if edge.source == "[*]":
            x, y = STATE_LEFT + STATE_WIDTH / 2, _middle(states.index(edge.target)) - STATE_HEIGHT / 2
            body.append(f'<circle class="dot" cx="{x:g}" cy="{y - 24:g}" r="5"/>')
            body.append(
                f'<line class="line" x1="{x:g}" y1="{y - 19:g}" x2="{x:g}" y2="{y:g}" marker-end="url(#head)"/>'
            )
        elif edge.target == "[*]":
            x, y = STATE_LEFT + STATE_WIDTH - 16, _middle(states.index(edge.source))
            body.append(
                f'<circle class="line" cx="{x}" cy="{y:g}" r="5"/><circle class="dot" cx="{x}" cy="{y:g}" r="2"/>'
            )
        else:
            body += _arc(states.index(edge.source), states.index(edge.target), ", ".join(numbers.get(edge[:2], [])))
    top = int(_middle(len(states) - 1)) + 44
    body += [_text(8, top + 18 * number, text, "small", "start") for number, text in enumerate(legend)]
    width = max([2 * STATE_LEFT + STATE_WIDTH, *(int(len(text) * 6.2) + 16 for text in legend)])
    return _svg(width, top + 18 * len(legend), title, body)


def pictures() -> dict[Path, str]:
    """Return the SVG text of each picture of the documentation by its file; nothing is written."""
    out = {}
    for source in sorted(FOLDER.glob("*.txt")):
        out[source.with_suffix(".svg")] = block_diagram(source.read_text(), source.stem.replace("-", " "))
    for page in sorted((DOCS / "explanation").glob("*.md")):
        for block in MERMAID.finditer(page.read_text()):
            name = f"{page.stem}-{block[1]}"
            out[FOLDER / f"{name}.svg"] = state_diagram(block[2], f"States: {name.replace('-', ' ')}")
    return out


def main() -> None:
    """Write all pictures of the documentation to ``docs/diagrams``."""
    for path, text in pictures().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
