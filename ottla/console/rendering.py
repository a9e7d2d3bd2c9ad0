"""Rendering of the console's HTML: Jinja templates that escape all values, and formats of numbers and times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STATIC_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
UNKNOWN = "–"  # noqa: RUF001 - an en dash stands for a missing number


def format_count(value: float | None) -> str:
    """Return a number without decimals, with thousands separators; a dash for None or a negative number."""
    return UNKNOWN if value is None or value < 0 else f"{value:,.0f}"


def format_rate(value: float | None) -> str:
    """Return a rate per second, with one decimal place between 0 and 10, and thousands separators; a dash for None."""
    return f"{value:.1f}" if value is not None and 0 < value < 10 else format_count(value)


def format_size(value: float | None) -> str:
    """Return a number of bytes in the largest suitable unit, such as ``1.5 MiB``; a dash for None or below 0."""
    if value is None or value < 0:
        return UNKNOWN
    unit = 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:,.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"


def format_time(timestamp_ms: int | None) -> str:
    """Return a timestamp in milliseconds since 1970 as UTC time; a dash for None or a negative one."""
    if timestamp_ms is None or timestamp_ms < 0:
        return UNKNOWN
    try:
        at = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{at:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def url(path: str, /, **fields: object) -> str:
    """Return the URL of a path with a query of the given fields."""
    return f"{path}?{urlencode({k: str(v) for k, v in fields.items()})}" if fields else path


class Templates:
    """Jinja templates of the pages, loaded at their first use."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("ottla.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(count=format_count, rate=format_rate, size=format_size, time=format_time)
        self._environment.globals.update(url=url)

    def render(self, template: str, values: Mapping[str, Any]) -> bytes:
        """Render a template and return the page's bytes in UTF-8."""
        return self._environment.get_template(template).render(values).encode("utf-8", "replace")

    def render_block(self, template: str, block: str, values: Mapping[str, Any]) -> str:
        """Render one block of a template and return its HTML, for live updates."""
        found = self._environment.get_template(template)
        return "".join(found.blocks[block](found.new_context(dict(values))))


def load_static_files() -> dict[str, tuple[bytes, str]]:
    """Read the static files and return content and media type of each by its path in URLs, ``/static/NAME``."""
    folder = files("ottla.console").joinpath("static")
    return {
        f"/static/{file.name}": (file.read_bytes(), _STATIC_TYPES[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
    }
