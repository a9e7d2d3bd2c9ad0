"""Explanations of every message class and field: complete, of one style, and without memory cost for a node."""

from __future__ import annotations

import ast
import random
import re
import subprocess
import sys
import types
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from ottla.wire import messages
from ottla.wire.api_keys import ApiKey, request_class, request_spec, response_class
from ottla.wire.codec import compiler
from ottla.wire.codec.explain import (
    annotate_source,
    explain,
    format_comment,
    format_layout,
    format_message_layout,
    resolve_path,
)
from ottla.wire.codec.schema import FieldSpec, Message, fields_of
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.field_dump import Explainer, format_spans, message_spans
from ottla.wire.messages import fetch, heartbeat
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.record_batch.batch_header import BatchHeader
from ottla.wire.record_batch.records import NewRecord, build_batch
from ottla.wire.tests.random_messages import random_message

PATHS = sorted(path for path in Path(messages.__path__[0]).glob("*.py") if path.stem not in ("__init__", "catalogue"))
BATCH = bytes(build_batch([NewRecord(b"k", b"v", 1000)]))
MAX_CHARACTERS = 300
MAX_HISTORY_CHARACTERS = 1200
MAX_SUMMARY_CHARACTERS = 100
"""Only the docstring of a class stays in memory: it is short, and the details belong to the fields and to `SPEC`."""
ARTICLES = ("the", "a", "an", "of", "this", "each", "its")
OPENING_PRONOUNS = re.compile(
    r"(what|who|whose|whom|whoever|whether|which|one|how|those|these|this|that|it|its|they|their|he|she|there"
    r"|when|where|somebody|nobody|nothing|everything|something|anybody|anything|all that|such)\b",
    re.I,
)
REPLACED_WORDS = re.compile(
    r"\b(who|whose|whom|whoever|whatever|whichever|somebody|someone|nobody|no one|anybody|anyone|nothing|something"
    r"|tells?|telling|told"
    r"|says?|saying|said|hears?|heard|asks?|asked|wants?|wanted|he|she|his|her|him|doors?|strangers?|houses?|rooms?|wings?"
    r"|floors?|grounds?|bells?|twins?|lines?|chores?|turns?|worlds?|news|life|lives|fates?|peace|shall|so many|anew)\b",
    re.I,
)


def modules() -> list[str]:
    return [path.stem for path in PATHS]


def classes_of(module: str) -> list[type[Message]]:
    """Return the message classes of a module in the order of its source."""
    values = vars(import_module(f"{messages.__name__}.{module}")).values()
    found = [x for x in values if isinstance(x, type) and issubclass(x, Message)]
    return [x for x in found if x.__module__.rpartition(".")[2] == module]


def has_history(cls: type[Message]) -> bool:
    """Return whether the versions of a message need an explanation; a request's covers its response."""
    spec = getattr(cls, "SPEC", None)
    return spec is not None and spec.type != "response" and spec.versions.high > spec.versions.low


def explanations(module: str) -> Iterator[tuple[str, str, str]]:
    """Yield (place, name, text) of all classes, fields and version histories of a module."""
    for cls in classes_of(module):
        explanation = explain(cls)
        yield cls.__name__, cls.__name__, explanation.summary
        if has_history(cls) or explanation.versions:
            yield f"{cls.__name__}.SPEC", "versions", explanation.versions
        for spec in fields_of(cls):
            yield f"{cls.__name__}.{spec.name}", spec.name, explanation.fields.get(spec.name, "")


def bare_words(text: str) -> list[str]:
    """Return the words of a name or a text in lower case, without articles and prepositions."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text.replace("_", " "))
    return sorted(w.lower().rstrip("s") for w in words if w.lower() not in ARTICLES)


def faults(name: str, text: str, limit: int = MAX_CHARACTERS) -> list[str]:
    """Return what is wrong with the explanation of a name."""
    if not text:
        return ["no explanation"]
    found = [f"{len(text)} characters, at most {limit}"] if len(text) > limit else []
    if not text.endswith((".", ".)")):
        found.append("no full stop at the end")
    if text[0].islower() and not re.match(r"[a-z]+[._][a-z._]+ ", text):
        found.append("no capital letter at the start")
    if bare_words(text) == bare_words(name):
        found.append("repeats the name")
    if OPENING_PRONOUNS.match(text):
        found.append(f"opens with {text.split(maxsplit=1)[0]!r}")
    prose = re.sub(r"`[^`]*`", "", text)
    found += [f"has the word {match[0]!r}" for match in REPLACED_WORDS.finditer(prose)]
    return found


def faults_of_module(module: str) -> list[str]:
    out = []
    for place, name, text in explanations(module):
        limits = {place: MAX_SUMMARY_CHARACTERS, "versions": MAX_HISTORY_CHARACTERS}
        limit = limits.get(name, MAX_CHARACTERS)
        out += [f"{module}: {place}: {fault}" for fault in faults(name, text, limit)]
    return out


@pytest.mark.parametrize("key", ApiKey)
def test_explain_request_of_api_describes_flow_and_error_codes(key: ApiKey) -> None:
    explanation = explain(request_class(key))
    assert faults("flow", explanation.flow, MAX_HISTORY_CHARACTERS) == []
    for code, text in explanation.errors.items():
        assert code in ErrorCode.__members__
        assert faults("error", text) == []


def test_explain_error_code_describes_each_code() -> None:
    texts = explain(ErrorCode).fields
    assert {code.name: faults(code.name, texts[code.name]) for code in ErrorCode} == {c.name: [] for c in ErrorCode}


@pytest.mark.parametrize("module", modules())
def test_explain_message_module_describes_every_class_and_field(module: str) -> None:
    found = faults_of_module(module)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("group_id", "", "no explanation"),
        ("group_id", "The group id.", "repeats the name"),
        ("group_id", "Id of the group.", "repeats the name"),
        ("FetchTopic", "Fetch topic.", "repeats the name"),
        ("group_id", "Id of the consumer group", "no full stop at the end"),
        ("group_id", "id of the consumer group.", "no capital letter at the start"),
        ("group_id", "Whether the group lives.", "opens with 'Whether'"),
        ("group_id", "Id of the group that somebody is in.", "has the word 'somebody'"),
        ("group_id", "Id of " + 100 * "the " + "consumer group.", "421 characters, at most 300"),
    ],
)
def test_faults_bad_explanation_is_reported(name: str, text: str, fault: str) -> None:
    assert fault in faults(name, text)


def test_faults_good_explanation_is_empty() -> None:
    assert faults("group_id", "Id of the consumer group; the coordinator of `who` owns it.") == []
    assert faults("max_bytes", "fetch.max.bytes of the client: most bytes in the response.") == []


def constants(code: types.CodeType) -> Iterator[str]:
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from constants(value)
        elif isinstance(value, str):
            yield value


@pytest.mark.parametrize("module", modules())
def test_bytecode_message_module_holds_no_field_explanation(module: str) -> None:
    path = next(path for path in PATHS if path.stem == module)
    held = {" ".join(text.split()) for text in constants(compile(path.read_text(), str(path), "exec", optimize=0))}
    texts = {text for place, name, text in explanations(module) if text and place != name}
    assert not texts & held


def test_bytecode_message_module_holds_class_docstrings() -> None:
    held = set(constants(compile(Path(heartbeat.__file__).read_text(), "x", "exec", optimize=0)))
    assert explain(heartbeat.HeartbeatRequest).summary in held


def test_message_class_docstring_is_own_and_on_one_line() -> None:
    for module in modules():
        for cls in classes_of(module):
            assert cls.__doc__ == explain(cls).summary, cls.__name__


def test_serving_modules_do_not_import_explanations() -> None:
    code = "import sys, ottla.cli.node_setup.serve_node; print('ottla.wire.codec.explain' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_explain_returns_texts_of_class_versions_and_fields() -> None:
    explanation = explain(heartbeat.HeartbeatRequest)
    assert explanation.summary.startswith("Heartbeat of a member")
    assert "KIP-345" in explanation.versions
    assert list(explanation.fields) == list(heartbeat.HeartbeatRequest.__struct_fields__)
    assert list(explain(BatchHeader).fields) == list(BatchHeader._fields)


SOURCE = '''
from typing import ClassVar
class A:
    """Summary
    of A.
    """
    SPEC: ClassVar[int] = 1
    """Version 1.

    Flow: A sends
    to B.

    Errors: BAD_FRAME, BAD_SIZE: The frame is
    bad. NO_A: None.
    """
    first: int = 0
    """First
       line."""
    second: int = 0
    third: int = 0
    """Third."""
    "Stray."
'''


@pytest.mark.parametrize("suffix", [".py", ".pyc"])
def test_explain_reads_source_in_zip_archive_and_not_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    archive, name = tmp_path / "a.zip", f"zipped_{suffix[1:]}"
    with zipfile.ZipFile(archive, "w") as file:
        if suffix == ".py":
            file.writestr(f"{name}.py", SOURCE)
        else:
            import py_compile

            (tmp_path / f"{name}.py").write_text(SOURCE)
            py_compile.compile(str(tmp_path / f"{name}.py"), str(tmp_path / "x.pyc"))
            file.write(tmp_path / "x.pyc", f"{name}.pyc")
    monkeypatch.syspath_prepend(str(archive))
    module = import_module(name)
    fields = {"first": "First line.", "second": "", "third": "Third."}
    errors = {"BAD_FRAME": "The frame is bad.", "BAD_SIZE": "The frame is bad.", "NO_A": "None."}
    expected = ("Summary of A.", "Version 1.", fields, "A sends to B.", errors)
    assert explain(module.A) == (expected if suffix == ".py" else ("", "", {}, "", {}))


@pytest.mark.parametrize(
    ("path", "owner", "field"),
    [
        ("max_wait_ms", fetch.FetchRequest, "max_wait_ms"),
        ("topics", fetch.FetchRequest, "topics"),
        ("topics.count", fetch.FetchRequest, "topics"),
        ("topics[3].topic", fetch.FetchTopic, "topic"),
        ("topics[3].tags", fetch.FetchTopic, "tags"),
        ("topics[3].partitions[11].fetch_offset", fetch.FetchPartition, "fetch_offset"),
        ("forgotten_topics_data[0].partitions[1]", fetch.ForgottenTopic, "partitions"),
        ("replica_state.replica_id", fetch.ReplicaState, "replica_id"),
        ("tags", fetch.FetchRequest, "tags"),
    ],
)
def test_resolve_path_returns_class_and_field(path: str, owner: type[Message], field: str) -> None:
    assert resolve_path(fetch.FetchRequest, path) == (owner, field)


def test_resolve_path_of_an_array_count_is_no_field_count_of_its_struct() -> None:
    assert resolve_path(CreatePartitionsRequest, "topics.count") == (CreatePartitionsRequest, "topics")
    assert resolve_path(CreatePartitionsRequest, "topics[0].count") == (CreatePartitionsTopic, "count")


def test_format_comment_wraps_between_words_only() -> None:
    assert format_comment("", 4) == ()
    assert format_comment("Start of a follow-up", 2, 22) == ("  # Start of a", "  # follow-up")


def all_fields(cls: type[Message], version: int) -> Iterator[tuple[type[Message], FieldSpec]]:
    for spec in fields_of(cls):
        if version in spec.versions:
            yield cls, spec
            if spec.struct is not None:
                yield from all_fields(spec.struct, version)


def set_records(message: Message) -> None:
    """Replace random bytes in fields of records by a batch."""
    for spec in fields_of(type(message)):
        value = getattr(message, spec.name)
        if spec.kind == "records" and value:
            setattr(message, spec.name, BATCH)
        for struct in value if isinstance(value, list) else [value]:
            if isinstance(struct, Message):
                set_records(struct)


def api_versions() -> list[tuple[ApiKey, int]]:
    specs = [(key, request_spec(key).versions) for key in ApiKey]
    return [(key, version) for key, versions in specs for version in range(versions.low, versions.high + 1)]


def test_format_message_layout_explains_every_field_of_all_versions() -> None:
    pairs = api_versions()
    assert len(pairs) == 302
    for key, version in pairs:
        for cls in (request_class(key), response_class(key)):
            lines = list(format_message_layout(cls, version))
            plain = [line.split()[0] for line in lines[1:] if not line.lstrip().startswith("#")]
            assert plain == [cls.__name__, *(f"{spec.name}:" for _, spec in all_fields(cls, version))]
            joined = " ".join(line.strip().removeprefix("# ") for line in lines)
            for owner, spec in all_fields(cls, version):
                text = explain(owner).fields[spec.name]
                assert text, (cls, version, spec.name)
                assert text in joined, (cls, version, spec.name)


def test_format_spans_explains_every_field_of_all_versions() -> None:
    rng = random.Random(1)
    for key, version in api_versions():
        for cls in (request_class(key), response_class(key)):
            message = random_message(rng, cls, version)
            set_records(message)
            raw = compiler.encode(message, version)
            spans, _ = message_spans(cls, version, raw)
            for span in spans:
                assert span.owner is not None, span
                assert explain(span.owner).fields[span.field], span
            lines = list(format_spans(spans, raw, explainer=Explainer()))
            fields = {(span.owner, span.field) for span in spans}
            comments = [line for line in lines if line.startswith("        # ")]
            assert len(lines) - len(comments) == len(spans)
            assert len(fields) <= len(comments)


def test_annotate_source_explains_structs_above_their_functions() -> None:
    source = compiler.generated_source(fetch.FetchRequest, 12, "decode")
    lines = list(annotate_source(fetch.FetchRequest, 12, source))
    assert [line for line in lines if not line.startswith("# ")] == source.splitlines()
    above = lines[: lines.index("def decode_ForgottenTopic_v12(buf, pos, end):")]
    assert above[-1].startswith("# partitions: ")
    assert not any(line.startswith("# replica_state:") for line in lines)  # not in version 12


def test_format_message_layout_missing_version_raises_wire_error() -> None:
    with pytest.raises(WireError, match="no version 5"):
        list(format_message_layout(heartbeat.HeartbeatRequest, 5))


def test_format_layout_includes_types_nullability_and_tags() -> None:
    lines = list(format_layout(fetch.FetchRequest, 17))
    assert "cluster_id: string (nullable, tag 0)" in lines
    assert "topics: []FetchTopic" in lines
    assert "        replica_directory_id: uuid (tag 0)" in lines


def test_message_modules_have_unique_class_names() -> None:
    for path in PATHS:
        names = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
        assert len(names) == len(set(names)), path
