"""Compiled codecs: a Python function for each (message class, version, direction), generated on first use.

Adjacent fixed-size fields become one ``struct`` call; presence, nullability and form of lengths are resolved at
compile time, so that the functions do not read the schema. ``generated_source(cls, version, direction)`` returns the
source.

A decoder is ``decode(buf, pos, end) -> (message, pos)``; an encoder is ``encode(message, write)`` where ``write`` is
called with bytes (and, for ``records``, any value with a length: a file range is sent without being read). Messages
with many elements have sliced variants: Python generators with the same result that yield often.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache, partial
from typing import Any, TypeVar

from ottla.wire.codec.codegen import CodecGenerator, compile_element_limit_test
from ottla.wire.codec.codegen_decoder import DecoderGenerator
from ottla.wire.codec.codegen_encoder import EncoderGenerator
from ottla.wire.codec.decode_budget import DecodeBudget
from ottla.wire.codec.interpreter import check_version
from ottla.wire.codec.primitives import Buffer
from ottla.wire.codec.response_array import ResponseArray, join_small_chunks
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError

Chunk = Any
M = TypeVar("M", bound=Message)
_Decoder = Callable[[memoryview, int, int], tuple[Any, int]]
_Encoder = Callable[[Any, Callable[[Chunk], None]], None]

_decoders: dict[tuple[type[Message], int], _Decoder] = {}
_encoders: dict[tuple[type[Message], int], _Encoder] = {}
_decoder_jobs: dict[tuple[type[Message], int], Callable[..., Any]] = {}
_encoder_jobs: dict[tuple[type[Message], int], Callable[..., Any]] = {}
_element_encoders: dict[tuple[type[Message], type[Message], int], _Encoder] = {}
_element_limit_tests: dict[type[Message], Callable[[Any, int], bool]] = {}

_VALUE_ERRORS = (struct.error, TypeError, AttributeError, UnicodeEncodeError, OverflowError)
MAX_ELEMENTS_PER_STEP = 500
"""Maximum number of elements of a message that is encoded without yielding: about a millisecond of work."""
_JOIN_CHUNKS = 2048


def _generator(cls: type[Message], version: int, direction: str, *, sliced: bool = False) -> CodecGenerator:
    spec = check_version(cls, version)
    kind = DecoderGenerator if direction == "decode" else EncoderGenerator
    return kind(version, flexible=version in spec.flexible, sliced=sliced)


def generated_source(cls: type[Message], version: int, direction: str, *, sliced: bool = False) -> str:
    """Return the Python source of a generated codec, for inspection; nothing is compiled.

    Args:
        cls: Top-level message class.
        version: Version of the message.
        direction: ``"decode"`` or ``"encode"``.
        sliced: True for the variant that yields to the event loop.

    Raises:
        WireError: the message has no such version.
    """
    emitter = _generator(cls, version, direction, sliced=sliced)
    emitter.generate_struct(cls)
    return emitter.source()


def decoder(cls: type[Message], version: int) -> _Decoder:
    """Return the compiled decoder of a message version; raises WireError for an unknown version."""
    found = _decoders.get((cls, version))
    if found is None:
        found = _decoders[cls, version] = _generator(cls, version, "decode").compile_struct(cls)
    return found


def encoder(cls: type[Message], version: int) -> _Encoder:
    """Return the compiled encoder of a message version; raises WireError for an unknown version."""
    found = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = _generator(cls, version, "encode").compile_struct(cls)
    return found


def _job_codec(cls: type[Message], version: int, direction: str) -> Callable[..., Any]:
    known = _decoder_jobs if direction == "decode" else _encoder_jobs
    found = known.get((cls, version))
    if found is None:
        emitter = _generator(cls, version, direction, sliced=True)
        found = emitter.compile_struct(cls)
        if not emitter.is_generator(cls):
            found = _as_generator(found)
        known[cls, version] = found
    return found


def _as_generator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` wrapped as a job that never yields, for messages without arrays (encoders: of structs)."""

    def run(*arguments: Any) -> Generator[None, None, Any]:
        return function(*arguments)
        yield

    return run


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> tuple[M, int]:
    """Decode a message at ``pos``; return it and the position after it.

    Raises:
        WireError: the bytes are not a valid message of this class and version.
    """
    view = buf if isinstance(buf, memoryview) else memoryview(buf)
    try:
        return decoder(cls, version)(view, pos, len(view))
    except (struct.error, IndexError) as error:
        raise WireError(f"{cls.__name__} v{version}: {error}") from None


def decode_job(
    cls: type[M], version: int, buf: Buffer, pos: int, budget: DecodeBudget
) -> Generator[None, None, tuple[M, int]]:
    """Decode a message like `decode`, as a job that charges a memory budget.

    Raises:
        WireError: the bytes are not a valid message of this class and version, or the budget is exceeded.
    """
    view = buf if isinstance(buf, memoryview) else memoryview(buf)
    try:
        result: tuple[M, int] = yield from _job_codec(cls, version, "decode")(view, pos, len(view), budget)
    except (struct.error, IndexError) as error:
        raise WireError(f"{cls.__name__} v{version}: {error}") from None
    return result


def decode_exact(cls: type[M], version: int, buf: Buffer) -> M:
    """Decode a message that must fill the whole buffer; return it.

    Raises:
        WireError: the bytes are not a valid message of this class and version, or bytes remain after it.
    """
    message, pos = decode(cls, version, buf)
    if pos != len(buf):
        raise WireError(f"{cls.__name__} v{version}: {len(buf) - pos} bytes left over")
    return message


def encode_chunks(message: Message, version: int) -> list[Chunk]:
    """Encode a message; return a list of chunks: bytes, and values of records fields (such as file ranges) unchanged.

    Raises:
        WireError: a field has a value that this version does not support, or there is no such version.
    """
    out: list[Chunk] = []
    try:
        encoder(type(message), version)(message, out.append)
    except _VALUE_ERRORS as error:
        raise WireError(f"{type(message).__name__} v{version}: {error}") from None
    return out


def encode_element_chunks(whole: type[Message], version: int, part: Message) -> list[Chunk]:
    """Encode ``part``, an array element of a message of class ``whole`` in ``version``; return its chunks.

    Raises:
        WireError: as `encode_chunks`.
    """
    cls = type(part)
    write = _element_encoders.get((whole, cls, version))
    if write is None:
        write = _element_encoders[whole, cls, version] = _generator(whole, version, "encode").compile_struct(cls)
    out: list[Chunk] = []
    try:
        write(part, out.append)
    except _VALUE_ERRORS as error:
        raise WireError(f"{cls.__name__} v{version}: {error}") from None
    return out


def encode_job(message: Message, version: int) -> Generator[None, None, list[Chunk]]:
    """Encode a message like `encode_chunks`, as a job.

    With more than `MAX_ELEMENTS_PER_STEP` array elements, adjacent small chunks are joined to save memory, and the
    `ResponseArray`s of the message are emptied.

    Raises:
        WireError: a field has a value that this version does not support, or there is no such version.
    """
    if not has_more_elements_than(message, MAX_ELEMENTS_PER_STEP):
        return encode_chunks(message, version)
    out: list[Chunk] = []
    written = 0
    try:
        for _ in _job_codec(type(message), version, "encode")(message, out.append):
            if len(out) - written >= _JOIN_CHUNKS:
                out[written:] = join_small_chunks(out[written:])
                written = len(out)
            yield
    except _VALUE_ERRORS as error:
        raise WireError(f"{type(message).__name__} v{version}: {error}") from None
    return out


def response_array(whole: type[Message], version: int) -> Any:
    """Return an empty `ResponseArray` to use in place of a list field in a response of class ``whole``.

    Its elements are encoded in ``version`` of the response.
    """
    return ResponseArray(_row_encoder(whole, version))


@cache
def _row_encoder(whole: type[Message], version: int) -> Callable[[Message], list[Chunk]]:
    """Return the element encoder shared by all arrays of a response class and version."""
    return partial(encode_element_chunks, whole, version)


def has_more_elements_than(message: Message, most: int) -> bool:
    """Return whether a message's arrays have more than ``most`` elements in all, including nested arrays.

    Arrays of numbers do not count: they are encoded in one call.
    """
    cls = type(message)
    test = _element_limit_tests.get(cls)
    if test is None:
        test = _element_limit_tests[cls] = compile_element_limit_test(cls)
    return test(message, most)


def encode(message: Message, version: int) -> bytes:
    """Encode a message as bytes.

    Raises:
        WireError: a field has a value that this version does not support, or there is no such version.
    """
    return b"".join(encode_chunks(message, version))
