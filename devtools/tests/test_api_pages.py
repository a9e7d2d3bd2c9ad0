"""Reference pages of APIs and stored records: complete, with examples that the codec reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devtools.docs.api_pages import api_page, error_texts, errors_page, example_frames, page_name
from devtools.docs.example_messages import example_message
from devtools.docs.message_layout import field_list
from devtools.docs.record_pages import PAGES as RECORD_PAGES
from devtools.docs.record_pages import RecordPage, example_record, example_version, records_of
from devtools.docs.reference import PAGES, WHERE
from ottla.broker.api_spec import ApiSpec
from ottla.broker.dispatch.api_registry import API_SPECS
from ottla.wire.api_keys import ApiKey, request_class, response_class
from ottla.wire.codec import compiler
from ottla.wire.codec.explain import explain
from ottla.wire.codec.schema import Message, Versions, fields_of
from ottla.wire.errors import ErrorCode
from ottla.wire.field_dump import FieldSpan, request_spans, response_spans
from ottla.wire.framing import parse_request
from ottla.wire.messages.catalogue import all_messages


def assert_covered(spans: list[FieldSpan], raw: bytes) -> None:
    """Assert that each byte belongs to a field, in order; record data lies inside the field before it."""
    position = 0
    for span in spans:
        assert span.start == position, span
        position = span.stop
    assert position == len(raw)


def test_each_served_api_has_a_page() -> None:
    assert {page_name(spec.key) for spec in API_SPECS} == {name for name in PAGES if name.startswith("apis/")}
    assert {spec.key for spec in API_SPECS} == set(ApiKey)


@pytest.mark.parametrize("folder", ["apis", "records"])
def test_folder_of_generated_pages_has_no_outdated_page(folder: str) -> None:
    assert {f"{folder}/{path.name}" for path in (WHERE / folder).iterdir()} == {
        name for name in PAGES if name.startswith(f"{folder}/")
    }


def test_each_stored_record_has_a_section() -> None:
    documented = {cls for page in RECORD_PAGES.values() for cls in records_of(page)}
    others = {cls for cls in all_messages().values() if not cls.__name__.endswith(("Request", "Response"))}
    assert {cls.__name__ for cls in others - documented} == {"RequestHeader", "ResponseHeader"}


@pytest.mark.parametrize("spec", API_SPECS, ids=lambda spec: spec.key.api_name)
def test_example_frames_are_read_back(spec: ApiSpec) -> None:
    request, response = example_frames(spec)
    parsed = parse_request(memoryview(request)[4:])
    assert (parsed.key, parsed.version) == (spec.key, spec.max_version)
    assert_covered(request_spans(request), request)
    assert_covered(response_spans(spec.key, spec.max_version, response), response)
    for cls in (request_class(spec.key), response_class(spec.key)):
        message = example_message(cls, spec.max_version)
        raw = compiler.encode(message, spec.max_version)
        assert compiler.encode(compiler.decode_exact(cls, spec.max_version, raw), spec.max_version) == raw


@pytest.mark.parametrize("page", [page for page in RECORD_PAGES.values() if page.framing != "json"])
def test_example_records_are_read_back(page: RecordPage) -> None:
    for cls in records_of(page):
        raw, spans = example_record(cls, page.framing)
        assert_covered(spans, raw)
        version = example_version(cls)
        body = compiler.encode(example_message(cls, version), version)
        assert len(raw) - len(body) in (0, 2, 3)


def test_field_list_has_the_fields_of_the_versions_served() -> None:
    fields = "\n".join(field_list(request_class(ApiKey.FETCH), Versions(13, 18)))
    assert "- `replica_id` (*int32*, versions 13 to 14): Broker id" in fields
    assert "- `replica_state` (*ReplicaState*, version 15 and later, tag 1): Identity" in fields
    assert "- `topic` " not in fields
    assert "- `topic_id` (*uuid*): UUID" in fields


def values_of(message: Message, version: int) -> Iterator[tuple[str, object, str]]:
    """Yield class and name, value, and explanation of each field of a message and of the structs in it."""
    for spec in fields_of(type(message)):
        if version in spec.versions:
            value = getattr(message, spec.name)
            yield f"{type(message).__name__}.{spec.name}", value, explain(type(message)).fields.get(spec.name, "")
            for row in value if isinstance(value, list) else [value]:
                if isinstance(row, Message):
                    yield from values_of(row, version)


@pytest.mark.parametrize("spec", API_SPECS, ids=lambda spec: spec.key.api_name)
def test_example_frames_keep_the_rules_of_their_fields(spec: ApiSpec) -> None:
    rules = {"Must be null": None, "Must be empty": [], "Always null": None, "Always empty": [], "Always 0": 0}
    rules |= {"Always true": True, "Always false": False, "else empty": []}
    for cls in (request_class(spec.key), response_class(spec.key)):
        for name, value, text in values_of(example_message(cls, spec.max_version), spec.max_version):
            for rule, valid in rules.items():
                assert (f"{rule}:" not in text and f"{rule}." not in text) or value == valid, (name, rule)


def test_pages_list_the_errors_of_the_coordinator() -> None:
    for key in (ApiKey.OFFSET_COMMIT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN):
        codes = {"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"}
        assert codes <= error_texts(key).keys()
    assert "COORDINATOR_NOT_AVAILABLE" not in error_texts(ApiKey.OFFSET_FETCH)
    assert "COORDINATOR_LOAD_IN_PROGRESS" not in error_texts(ApiKey.HEARTBEAT)


def test_page_of_a_forwarded_api_lists_the_errors_of_forwarding() -> None:
    [create_topics] = [spec for spec in API_SPECS if spec.key is ApiKey.CREATE_TOPICS]
    page = api_page(create_topics)
    assert "[NOT_CONTROLLER]" in page
    assert "[REQUEST_TIMED_OUT]" in page


def test_pages_list_no_error_for_a_permission_that_only_limits_the_response() -> None:
    [list_groups] = [spec for spec in API_SPECS if spec.key is ApiKey.LIST_GROUPS]
    page = api_page(list_groups)
    assert "Describe on Cluster (for all groups)" in page
    assert "AUTHORIZATION_FAILED" not in page


def test_error_texts_are_the_sentences_about_a_code() -> None:
    texts = error_texts(ApiKey.HEARTBEAT)
    assert texts["REBALANCE_IN_PROGRESS"] == ["`error_code`: Send JoinGroup again."]
    assert texts["INVALID_GROUP_ID"] == ["`group_id`: An empty one is rejected with INVALID_GROUP_ID."]
    assert error_texts(ApiKey.FETCH)["KAFKA_STORAGE_ERROR"] == []
    assert error_texts(ApiKey.LIST_OFFSETS)["KAFKA_STORAGE_ERROR"] == ["Reading the log or its index failed."]


def test_errors_page_lists_each_code_with_its_apis() -> None:
    sections = errors_page(API_SPECS).split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == [code.name for code in ErrorCode]
    [section] = [section for section in sections if section.startswith("MEMBER_ID_REQUIRED\n")]
    assert "[JoinGroup](apis/JoinGroup.md#error-codes)" in section
