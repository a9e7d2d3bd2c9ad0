"""``ottla decode``: print a frame or a file of a log field by field, beside its bytes; or the decoder of an API."""

from __future__ import annotations

import os
import sys

from ottla.cli.arguments import command_parser, suggestion
from ottla.cli.errors import failure_text
from ottla.log.file_dump import file_spans
from ottla.wire import field_dump
from ottla.wire.api_keys import ApiKey, request_class, response_class
from ottla.wire.codec.compiler import generated_source
from ottla.wire.codec.explain import annotate_source, format_message_layout
from ottla.wire.errors import WireError

TEXT = """Print a frame or a segment file field by field, beside its bytes. A frame is given as hex digits or as a file.
A request contains its API and version. For a response, name them with --response.

examples:
  ottla decode 0000000a0012000000000001ffff         an ApiVersions request
  ottla decode --response API_VERSIONS:3 HEX
  ottla decode ottla-data/events-0/00000000000000000000.log
  ottla decode --source FETCH:12                    the generated decoder of a message version
  ottla decode --explain HEX                        with the meaning of each field
  ottla decode --explain FETCH:12                   the same for all fields of a request and its response
"""


APIS = [key.name for key in ApiKey]


def _bytes(text: str) -> bytes:
    if os.path.exists(text):
        with open(text, "rb") as file:
            return file.read()
    if text == "-":
        text = sys.stdin.read()
    try:
        return bytes.fromhex("".join(text.split()))
    except ValueError:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise WireError(f"neither a file nor hex digits: {shown.strip()}") from None


def _is_text_file(path: str) -> bool:
    """Return True for a file of text lines, such as a checkpoint or ``meta.properties``, which is printed as it is."""
    name = os.path.basename(path)
    texts = ("meta.properties", "partition.metadata", "quorum-state", ".kafka_cleanshutdown")
    return os.path.exists(path) and (name in texts or name.endswith("-checkpoint"))


def _api(text: str) -> tuple[ApiKey, int]:
    name, _, version = text.partition(":")
    try:
        return ApiKey[name.upper()], int(version)
    except (KeyError, ValueError):
        raise WireError(f"API:VERSION expected, such as FETCH:12: {text}{suggestion(name.upper(), APIS)}") from None


def _names_api(text: str) -> bool:
    """Return True if an argument is ``API:VERSION`` and not the path of a file."""
    return ":" in text and not os.path.exists(text)


def _print_source(key: ApiKey, version: int, *, explained: bool) -> None:
    """Print the generated decoder of API ``key``'s request in a version; ``explained``: comment each field."""
    cls = request_class(key)
    source = generated_source(cls, version, "decode")
    print("\n".join(annotate_source(cls, version, source)) if explained else source)


def run(arguments: list[str]) -> int:
    """Print a frame, a file, the fields of an API or its generated decoder, as the arguments select; return the status.

    Returns:
        0, or 1 if the input cannot be read or decoded.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    parser = command_parser("decode", TEXT)
    parser.add_argument("what", nargs="?", help="hex digits, a file, or - for standard input")
    parser.add_argument(
        "--response", metavar="API:VERSION", help="decode the frame as a response of this API and version"
    )
    parser.add_argument("--source", metavar="API:VERSION", help="print the codec that Ottla generates for a request")
    parser.add_argument("--explain", action="store_true", help="explain each field where it first appears")
    options = parser.parse_args(arguments)
    try:
        if options.source:
            _print_source(*_api(options.source), explained=options.explain)
            return 0
        if options.what is None:
            parser.error("the following arguments are required: what")
        if options.explain and _names_api(options.what):
            key, version = _api(options.what)
            for cls in (request_class(key), response_class(key)):
                print("\n".join(format_message_layout(cls, version)))
            return 0
        raw = _bytes(options.what)
        known = file_spans(raw, os.path.splitext(options.what)[1])
        if known is not None:
            spans = list(known)
        elif _is_text_file(options.what):
            print(raw.decode("utf-8", "replace"))
            return 0
        elif options.response:
            spans = field_dump.response_spans(*_api(options.response), raw)
        elif options.what.endswith((".log", ".checkpoint")):
            spans = list(field_dump.batch_spans(raw))
        else:
            spans = field_dump.request_spans(raw)
        explainer = field_dump.Explainer() if options.explain else None
        for line in field_dump.format_spans(spans, raw, explainer=explainer):
            print(line)
    except (WireError, ValueError, OSError) as error:
        print(f"ottla decode: {failure_text(error)}", file=sys.stderr)
        return 1
    return 0
