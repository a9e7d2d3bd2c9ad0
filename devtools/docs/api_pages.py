"""Generator of the reference page of each API from its messages, its `ApiSpec` and example frames; page of error codes.

Fields, version history, flow and errors come from the attribute docstrings of the message module
(`ottla.wire.codec.explain`); versions, listeners, quota, forwarding and permissions from `ApiSpec`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from devtools.docs.example_messages import example_message
from devtools.docs.message_layout import annotated_bytes, field_list, wrap
from ottla.broker.api_spec import ApiSpec, Endpoint, MutationQuota, Permission, QuotaKind
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.api_keys import ApiKey, request_class, request_spec, response_class
from ottla.wire.codec.explain import explain
from ottla.wire.codec.schema import Message, Versions, fields_of
from ottla.wire.errors import ErrorCode
from ottla.wire.field_dump import request_spans, response_spans
from ottla.wire.framing import encode_request, encode_response

NOTE = "<!-- written by python -m devtools.docs.reference -->"
CODE = re.compile(r"\b[A-Z][A-Z_]{4,}\b")
SENTENCE_END = re.compile(r"(?<=[.;]) (?=[A-Z0-9`-])")
CODES = frozenset(code.name for code in ErrorCode) - {"NONE"}
DENIALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
WITHOUT_OWN_CODE = {
    (ApiKey.CREATE_TOPICS, AclOperation.CREATE, ResourceType.CLUSTER): "for all topics",
    (ApiKey.DELETE_TOPICS, AclOperation.DELETE, ResourceType.CLUSTER): "for all topics",
    (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        AclOperation.CLUSTER_ACTION,
        ResourceType.CLUSTER,
    ): "from a follower, instead of Describe on Topic",
    (ApiKey.METADATA, AclOperation.CREATE, ResourceType.CLUSTER): "to create any topic",
    (ApiKey.METADATA, AclOperation.DESCRIBE, ResourceType.CLUSTER): "for `cluster_authorized_operations`",
    (ApiKey.DESCRIBE_CLUSTER, AclOperation.DESCRIBE, ResourceType.CLUSTER): "for `cluster_authorized_operations`",
    (ApiKey.FETCH, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER): "from a follower, instead of the others",
    (ApiKey.INIT_PRODUCER_ID, AclOperation.WRITE, ResourceType.TOPIC): "on any topic, instead of Idempotent Write",
    (ApiKey.LIST_GROUPS, AclOperation.DESCRIBE, ResourceType.CLUSTER): "for all groups",
    (ApiKey.LIST_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP): "else the group is left out",
    (ApiKey.LIST_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID): "else the id is left out",
    (ApiKey.DESCRIBE_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TOPIC): "else the topic is left out",
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN): "else the token is "
    "left out, unless it is the principal's own",
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, AclOperation.DESCRIBE_TOKENS, ResourceType.USER): "for all tokens of the user",
    (ApiKey.STREAMS_GROUP_HEARTBEAT, AclOperation.CREATE, ResourceType.CLUSTER): "to create internal topics",
    (ApiKey.STREAMS_GROUP_HEARTBEAT, AclOperation.CREATE, ResourceType.TOPIC): "instead of Create on Cluster; without "
    "both, the status is MISSING_INTERNAL_TOPICS",
}
"""Permissions without which a request gets no error code of its own for their resource, each with what it is for."""
GROUP_READS = frozenset(
    {ApiKey.OFFSET_FETCH, ApiKey.HEARTBEAT, ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE}
    | {ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.STREAMS_GROUP_DESCRIBE, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS}
)
GROUP_WRITES = frozenset(
    {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_COMMIT}
    | {ApiKey.OFFSET_DELETE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.CONSUMER_GROUP_HEARTBEAT}
    | {ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.ALTER_SHARE_GROUP_OFFSETS}
    | {ApiKey.DELETE_SHARE_GROUP_OFFSETS}
)
TRANSACTION_READS = frozenset({ApiKey.DESCRIBE_TRANSACTIONS})
TRANSACTION_WRITES = frozenset(
    {ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN}
)
EXAMPLE_CORRELATION_ID = 7
AUDIENCE = (
    "This page lists versions, fields, error codes and an example frame, for developers who write or debug a client, a "
    "broker or a protocol tool."
)
MAX_CODES_OF_A_CONDITION = 2
QUOTAS = {
    QuotaKind.REQUEST: "The time that the broker works on the request counts towards `request_percentage`.",
    QuotaKind.PRODUCE: "Bytes of records count towards `producer_byte_rate`, time towards `request_percentage`.",
    QuotaKind.FETCH: "Bytes of records count towards `consumer_byte_rate`, time towards `request_percentage`. Above "
    "one of them, the response has no records.",
    QuotaKind.SHARE_FETCH: "Bytes of acquired records count towards `consumer_byte_rate`, time towards "
    "`request_percentage`.",
    QuotaKind.EXEMPT: "None: requests between brokers are exempt.",
}


def page_name(key: ApiKey) -> str:
    """Return the path of the page of an API below `docs/reference`, such as ``apis/Fetch.md``."""
    return f"apis/{key.api_name}.md"


def structs_of(cls: type[Message]) -> Iterator[type[Message]]:
    """Yield a message class, then the classes of the structs inside it, at any depth, once for each field."""
    yield cls
    for spec in fields_of(cls):
        if spec.struct is not None:
            yield from structs_of(spec.struct)


def error_texts(key: ApiKey) -> dict[str, list[str]]:
    """Return the error codes of an API, each with the conditions under which it occurs, as far as they are explained.

    Those of authorization, forwarding and quotas are not among them. Conditions are those of the section ``Errors``
    below `SPEC`, then sentences about the code in explanations of fields, then those of the coordinators' runtime. A
    sentence that lists several codes explains none of them, except two in a field of the request.
    """
    request, response = request_class(key), response_class(key)
    out = {code: [text] for code, text in explain(request).errors.items()}
    for cls in dict.fromkeys((*structs_of(request), *structs_of(response))):
        for name, text in explain(cls).fields.items():
            for sentence in SENTENCE_END.split(text):
                codes = CODES.intersection(CODE.findall(sentence))
                for code in codes:
                    texts = out.setdefault(code, [])
                    if code not in explain(request).errors and _is_condition(cls, sentence, len(codes)):
                        texts.append(f"`{name}`: {_condition(sentence, code)}")
    for code, text in _coordinator_errors(key):
        out.setdefault(code, []).append(text)
    return {code: list(dict.fromkeys(texts)) for code, texts in sorted(out.items())}


def _coordinator_errors(key: ApiKey) -> Iterator[tuple[str, str]]:
    """Yield the error codes that the runtime of the coordinators returns for an API, each with its condition."""
    if key in GROUP_READS | GROUP_WRITES:
        topic, subject = "__consumer_offsets", "group"
    elif key in TRANSACTION_READS | TRANSACTION_WRITES:
        topic, subject = "__transaction_state", "transactional id"
    else:
        return
    yield "NOT_COORDINATOR", f"The broker does not lead the partition of `{topic}` that stores the {subject}."
    if key is not ApiKey.HEARTBEAT:  # a loading coordinator accepts it
        text = f"The broker has become the coordinator and is reading the partition of `{topic}`."
        yield "COORDINATOR_LOAD_IN_PROGRESS", text
    if key in GROUP_WRITES | TRANSACTION_WRITES:
        text = f"Too few replicas of the partition of `{topic}` are in sync, or they did not get the record in time."
        yield "COORDINATOR_NOT_AVAILABLE", text


def _is_condition(cls: type[Message], sentence: str, code_count: int) -> bool:
    """Return True if a sentence explains when its error codes occur."""
    if sentence.startswith("Else ") or "errors such as" in sentence:
        return False
    in_request = "Response" not in cls.__name__ and "Result" not in cls.__name__
    return code_count == 1 or (code_count == MAX_CODES_OF_A_CONDITION and in_request)


def _condition(sentence: str, code: str) -> str:
    """Return a condition as a sentence of its own, without the error code at its beginning."""
    text = sentence.strip().rstrip(";.,")
    text = text.removeprefix(f"0, or {code} ").removeprefix(f"{code}: ").removeprefix(f"{code} ")
    return f"{text[:1].upper()}{text[1:]}."


def _permission(permission: Permission) -> str:
    operation, resource = (
        name.replace("_", " ").title() for name in (permission.operation.name, permission.resource.name)
    )
    return f"{operation} on {resource}"


def _endpoint(name: str, endpoint: Endpoint, spec: ApiSpec) -> Iterator[str]:
    permissions = [p for rule in endpoint.authorization for p in rule.permissions]
    parts: dict[str, None] = {}
    for permission in permissions:
        note = WITHOUT_OWN_CODE.get((spec.key, permission.operation, permission.resource), "")
        parts[f"{_permission(permission)} ({note})" if note else _permission(permission)] = None
    names = ", ".join(parts)
    if not permissions and name == "broker" and spec.forwarding is not None:
        names = "the broker checks no permission; the controller does, after the request is forwarded"
    elif not permissions:
        names = "no permission is checked" if name == "broker" else "no permission is checked there"
    yield from wrap(f"**At {name} listeners**: {names}.", 2, "- ")


def _denials(spec: ApiSpec) -> dict[str, str]:
    """Return the error codes that a principal without permission gets, each with a text that names the permissions."""
    out: dict[str, list[str]] = {}
    for permission in spec.permissions:
        if (spec.key, permission.operation, permission.resource) in WITHOUT_OWN_CODE:
            continue
        out.setdefault(DENIALS[permission.resource].name, []).append(_permission(permission))
    return {c: f"Permission: {' or '.join(dict.fromkeys(names))}." for c, names in out.items()}


def _facts(spec: ApiSpec) -> Iterator[str]:
    """Yield Markdown lines with the facts of an `ApiSpec`: key, versions, listeners, permissions, forwarding, quota."""
    schema = request_spec(spec.key)
    newest = schema.versions.high - (1 if schema.latest_unstable else 0)
    yield f"- **API key**: {int(spec.key)}"
    supported = spec.min_version if spec.oldest_supported is None else spec.oldest_supported
    note = "" if supported == spec.min_version else f"; versions below {supported} close the connection"
    text = f"**Versions**: {spec.min_version} to {spec.max_version}{note}. Schema of Kafka 4.3.1: "
    flexible = schema.flexible
    first = f"flexible (KIP-482) from version {flexible.low}" if flexible.low <= spec.max_version else "not flexible"
    yield from wrap(f"{text}{schema.versions.low} to {newest}, {first}.", 2, "- ")
    if spec.broker is not None:
        yield from _endpoint("broker", spec.broker, spec)
    if spec.controller is not None:
        yield from _endpoint("controller", spec.controller, spec)
    if spec.forwarding is not None and spec.broker is not None:
        text = f"a broker forwards the request in an Envelope (KIP-590) to {spec.forwarding.target.value}"
        yield from wrap(f"**Forwarding**: {text}.", 2, "- ")
    else:
        yield "- **Forwarding**: none."
    if isinstance(spec.quota, MutationQuota):
        text = (
            "Time counts towards `request_percentage`, partitions towards `controller_mutation_rate` (KIP-599). From "
        )
        text += f"version {spec.quota.strict_since} on, a request above the latter is rejected."
    else:
        text = QUOTAS[spec.quota]
    yield from wrap(f"**Quota**: {text}", 2, "- ")
    if spec.required_config is not None:
        yield from wrap(f"**Advertised** only if `{spec.required_config}` is set.", 2, "- ")


def _forwarding_errors(spec: ApiSpec) -> dict[str, str]:
    """Return the error codes of forwarding to the active controller, with conditions; empty if it is not forwarded."""
    if spec.forwarding is None:
        return {}
    moved = "A broker does not return this error: it finds the active controller and sends the request again."
    return {
        spec.forwarding.moved_error.name: moved,
        "REQUEST_TIMED_OUT": "The broker did not find the active controller, or got no response from it in time.",
    }


def _errors(spec: ApiSpec) -> Iterator[str]:
    texts = error_texts(spec.key)
    for code, text in _denials(spec).items():
        texts.setdefault(code, []).insert(0, text)
    for code, text in _forwarding_errors(spec).items():
        texts.setdefault(code, []).append(text)
    if isinstance(spec.quota, MutationQuota):
        texts.setdefault("THROTTLING_QUOTA_EXCEEDED", []).append(f"From version {spec.quota.strict_since} on.")
    if not texts:
        yield "The response has no error codes of its own."
    for code in sorted(texts):
        number = int(ErrorCode[code])
        link = f"[{code}](../errors.md#{code.lower()})"
        yield from wrap(f"{link} ({number}): {explain(ErrorCode).fields[code]}", 2, "- ")
        for text in texts[code]:
            yield from wrap(text, 4, "  - ")


def example_frames(spec: ApiSpec) -> tuple[bytes, bytes]:
    """Return an example request and response of the newest version, with their sizes and headers."""
    key, version = spec.key, spec.max_version
    request = example_message(request_class(key), version)
    response = example_message(response_class(key), version)
    frame = encode_request(key, version, EXAMPLE_CORRELATION_ID, "app-1", request)
    chunks = encode_response(key, version, EXAMPLE_CORRELATION_ID, response)
    return bytes(frame), b"".join(bytes(chunk) for chunk in chunks)


def _examples(spec: ApiSpec) -> Iterator[str]:
    key, version = spec.key, spec.max_version
    request, response = example_frames(spec)
    yield from wrap(
        f"Frames of version {version}, written by the encoder of `ottla.wire`. Columns: position, bytes in hexadecimal "
        "(`..`: more bytes follow), field and value; a line that is too long ends with `…`. `tags` is the number of "
        "tagged fields. The values are examples for the layout, with one element in most arrays; `ottla decode` prints "
        "any captured frame in this form."
    )
    yield from ("", f"Request, {len(request)} bytes:", "")
    yield from annotated_bytes(request_spans(request), request)
    yield from ("", f"Response, {len(response)} bytes:", "")
    yield from annotated_bytes(response_spans(key, version, response), response)


def purpose(key: ApiKey) -> str:
    """Return the purpose of an API as one line: the docstring of its message module, without the name of the API.

    Empty if the docstring has not the form ``NAME (API N): ...``.
    """
    doc = sys.modules[request_class(key).__module__].__doc__ or ""
    text = " ".join(doc.split()).partition("): ")[2]
    return text[:1].upper() + text[1:]


def api_page(spec: ApiSpec) -> str:
    """Return the Markdown text of the page of an API."""
    request, response = request_class(spec.key), response_class(spec.key)
    served = Versions(spec.min_version, spec.max_version)
    explanation = explain(request)
    lines = [f"# {spec.key.api_name}", NOTE, "", *wrap(purpose(spec.key)), ""]
    lines += [*wrap(AUDIENCE), ""]
    lines += [*_facts(spec), ""]
    if explanation.flow:
        lines += ["## Flow", "", *wrap(explanation.flow), ""]
    versions = " ".join(filter(None, (explanation.versions, explain(response).versions)))
    if versions:
        lines += ["## Versions", "", *wrap(versions), ""]
    for title, cls in (("Request fields", request), ("Response fields", response)):
        fields = list(field_list(cls, served)) or ["None."]
        lines += [f"## {title}", "", *wrap(explain(cls).summary), "", *fields, ""]
    lines += ["## Error codes", "", *_errors(spec), ""]
    lines += ["## Example", "", *_examples(spec)]
    return "\n".join(lines) + "\n"


def errors_page(specs: tuple[ApiSpec, ...]) -> str:
    """Return the Markdown text of the page of all error codes, with links to the APIs that have them on their pages."""
    users: dict[str, list[str]] = {}
    for spec in specs:
        for code in {*error_texts(spec.key), *_denials(spec), *_forwarding_errors(spec)}:
            users.setdefault(code, []).append(f"[{spec.key.api_name}]({page_name(spec.key)}#error-codes)")
    lines = ["# Error codes", NOTE, ""]
    lines += wrap(
        "This page explains the error codes of the Kafka protocol, for a reader who finds one in a log or a response. "
        "Each lists the APIs that document it. *Retriable* means that the same request may succeed later. Any API may "
        "also return UNKNOWN_SERVER_ERROR. An unknown API or version closes the connection, except for ApiVersions."
    )
    for code in ErrorCode:
        note = " (retriable)" if code.retriable else ""
        lines += ["", f"## {code.name}", "", *wrap(f"{int(code)}{note}: {explain(ErrorCode).fields[code.name]}")]
        if code.name in users:
            lines += ["", *wrap(f"APIs: {', '.join(users[code.name])}.")]
    return "\n".join(lines) + "\n"
