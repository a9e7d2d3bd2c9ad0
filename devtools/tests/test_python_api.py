"""Reference page of the Python API: docstrings are taken apart, and no public name is left out."""

from __future__ import annotations

import inspect

import ottla
from devtools.docs.python_api import api_classes, fixtures, parse_docstring, python_api_page
from ottla import pytest_plugin


def test_parse_docstring_with_sections_returns_entries_and_later_paragraphs() -> None:
    doc = """Do it.

    Args:
        name: a name
            in two lines.

    More
    text.

    Raises:
        ValueError: no name; OSError: no file. TypeError: a number.
    """
    found = parse_docstring(doc)
    assert found.paragraphs == ["Do it.", "More text."]
    assert found.sections["Args"] == ["name: a name in two lines"]
    assert found.sections["Raises"] == ["ValueError: no name", "OSError: no file", "TypeError: a number"]


def test_page_has_a_section_for_each_public_name_and_method() -> None:
    headings = {line.lstrip("# ") for line in python_api_page().splitlines() if line.startswith("##")}
    assert {f"ottla.{name}" for name in ottla.__all__} - headings == {"ottla.__version__", "ottla.ErrorCode"}
    for each in api_classes():
        own = {name for name, value in vars(each.cls).items() if not name.startswith("_") and inspect.isfunction(value)}
        assert {f"{each.cls.__name__}.{name}" for name in own} <= headings
    assert {"Cluster.write_client_files", "BlockingClient.check_connection", "FaultHandle.remove"} <= headings


def test_page_lists_properties_and_documented_attributes() -> None:
    attributes = {each.cls.__name__: each.attributes for each in api_classes()}
    assert {"is_running", "fault_connection", "bootstrap_servers"} <= attributes["Broker"].keys()
    assert attributes["TopicRecord"].keys() == set(ottla.TopicRecord._fields)
    assert attributes["TopicRecord"]["key"] == ("bytes | None", "Key, or None.")


def test_constant_in_a_docstring_is_shown_as_the_value_in_its_module() -> None:
    page = python_api_page()
    assert "or is not ready within 60 s" in page  # of `ottla.cluster`; that of `ottla.embedded` is 30 s
    assert "_S`" not in page


def test_page_has_a_section_for_each_fixture() -> None:
    names = {name for name in vars(pytest_plugin) if name.startswith("kafka_")}
    assert {name for name, _ in fixtures()} == names
    assert all(f"\n### {name}\n" in python_api_page() for name in names)
