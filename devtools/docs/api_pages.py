"""Reference page of each API, from its messages, its `ApiSpec` and an example frame of the encoder.

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
from ottla.controller.metadata.acl import ResourceType
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
EXAMPLE_CORRELATION_ID = 7
MAX_CODES_OF_A_CONDITION = 2
QUOTAS = {
    QuotaKind.REQUEST: "Time on the event loop counts towards `request_percentage`.",
    QuotaKind.PRODUCE: "Bytes of records count towards `producer_byte_rate`, time towards `request_percentage`.",
    QuotaKind.FETCH: "Bytes of records count towards `consumer_byte_rate`, time towards `request_percentage`. Above "
    "one of them, the response has no records.",
    QuotaKind.SHARE_FETCH: "Bytes of acquired records count towards `consumer_byte_rate`, time towards "
    "`request_percentage`.",
    QuotaKind.EXEMPT: "None: requests between brokers are exempt.",
}


def page_name(key: ApiKey) -> str:
    """Return the name of the page of an API below `docs/reference`."""
    return f"apis/{key.api_name}.md"


def structs_of(cls: type[Message]) -> Iterator[type[Message]]:
    """Yield a message class and the classes of the structs inside it."""
    yield cls
    for spec in fields_of(cls):
        if spec.struct is not None:
            yield from structs_of(spec.struct)


def error_texts(key: ApiKey) -> dict[str, list[str]]:
    """Return the error codes of an API, each with the conditions under which it occurs, as far as they are explained.

    Conditions are those of the section ``Errors`` below `SPEC`, then sentences about the code in explanations of
    fields. A sentence that lists several codes explains none of them, except in a field of the request.
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
    return {code: list(dict.fromkeys(texts)) for code, texts in sorted(out.items())}


def _is_condition(cls: type[Message], sentence: str, code_count: int) -> bool:
    """Return True if a sentence explains when its error codes occur."""
    if sentence.startswith("Else ") or "errors such as" in sentence:
        return False
    in_request = "Response" not in cls.__name__ and "Result" not in cls.__name__
    return code_count == 1 or (code_count == MAX_CODES_OF_A_CONDITION and in_request)


def _condition(sentence: str, code: str) -> str:
    """Return a sentence as one on its own, without the code in front of it."""
    text = sentence.strip().rstrip(";.,")
    text = text.removeprefix(f"0, or {code} ").removeprefix(f"{code}: ").removeprefix(f"{code} ")
    return f"{text[:1].upper()}{text[1:]}."


def _permission(permission: Permission) -> str:
    operation, resource = (
        name.replace("_", " ").title() for name in (permission.operation.name, permission.resource.name)
    )
    return f"{operation} on {resource}"


def _endpoint(name: str, endpoint: Endpoint) -> Iterator[str]:
    permissions = [p for rule in endpoint.authorization for p in rule.permissions]
    names = ", ".join(dict.fromkeys(map(_permission, permissions)))
    if not permissions:
        names = "no permission is checked" if name == "broker" else "no permission is checked there"
    yield from wrap(f"**At {name} listeners**: {names}.", 2, "- ")


def _denials(spec: ApiSpec) -> dict[str, str]:
    """Return the error codes of a principal without permission."""
    out: dict[str, list[str]] = {}
    for permission in spec.permissions:
        out.setdefault(DENIALS[permission.resource].name, []).append(_permission(permission))
    return {c: f"Permission: {' or '.join(dict.fromkeys(names))}." for c, names in out.items()}


def _facts(spec: ApiSpec) -> Iterator[str]:
    """Yield the facts of an `ApiSpec`: listeners, authorization, forwarding, quota."""
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
        yield from _endpoint("broker", spec.broker)
    if spec.controller is not None:
        yield from _endpoint("controller", spec.controller)
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


def _errors(spec: ApiSpec) -> Iterator[str]:
    texts = error_texts(spec.key)
    for code, text in _denials(spec).items():
        texts.setdefault(code, []).insert(0, text)
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
        "(`..`: more bytes follow), field and value. `tags` is the number of tagged fields. The values show the "
        "layout; `ottla decode` prints any captured frame in this form."
    )
    yield from ("", f"Request, {len(request)} bytes:", "")
    yield from annotated_bytes(request_spans(request), request)
    yield from ("", f"Response, {len(response)} bytes:", "")
    yield from annotated_bytes(response_spans(key, version, response), response)


def purpose(key: ApiKey) -> str:
    """Return the purpose of an API: the first line of its message module, without the name."""
    doc = sys.modules[request_class(key).__module__].__doc__ or ""
    text = " ".join(doc.split()).partition("): ")[2]
    return text[:1].upper() + text[1:]


def api_page(spec: ApiSpec) -> str:
    """Return the page of an API."""
    request, response = request_class(spec.key), response_class(spec.key)
    served = Versions(spec.min_version, spec.max_version)
    explanation = explain(request)
    lines = [f"# {spec.key.api_name}", NOTE, "", *wrap(purpose(spec.key)), ""]
    lines += [*wrap(f"Request: {explanation.summary} Response: {explain(response).summary}"), ""]
    lines += [*_facts(spec), ""]
    if explanation.flow:
        lines += ["## Flow", "", *wrap(explanation.flow), ""]
    versions = " ".join(filter(None, (explanation.versions, explain(response).versions)))
    if versions:
        lines += ["## Versions", "", *wrap(versions), ""]
    for title, cls in (("Request fields", request), ("Response fields", response)):
        fields = list(field_list(cls, served)) or ["None."]
        lines += [f"## {title}", "", *fields, ""]
    lines += ["## Error codes", "", *_errors(spec), ""]
    lines += ["## Example", "", *_examples(spec)]
    return "\n".join(lines) + "\n"


def errors_page(specs: tuple[ApiSpec, ...]) -> str:
    """Return the page of all error codes with the APIs that have them on their pages."""
    users: dict[str, list[str]] = {}
    for spec in specs:
        for code in {*error_texts(spec.key), *_denials(spec)}:
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
