"""The fast codec: for each (message, version, direction) one flat Python function, written on first use.

Neighbouring fixed-size fields become one ``struct`` call; presence, nullability and length forms are decided while
compiling, so that nothing of the schema is left in what runs. ``source(cls, version, direction)`` gives the text.

A decoder is ``decode(buf, pos, end) -> (message, pos)``; an encoder is ``encode(message, write)`` where ``write``
takes byte strings (and, for ``records``, whatever has a length: a range of a file is sent without being read).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.wire.emit import DecodeEmitter, EncodeEmitter
from ottla.wire.errors import WireError
from ottla.wire.interpreter import check_version
from ottla.wire.primitives import Buffer
from ottla.wire.schema import Message

Chunk = Any
M = TypeVar("M", bound=Message)
_Decoder = Callable[[memoryview, int, int], tuple[Any, int]]
_Encoder = Callable[[Any, Callable[[Chunk], None]], None]

_decoders: dict[tuple[type[Message], int], _Decoder] = {}
_encoders: dict[tuple[type[Message], int], _Encoder] = {}


def source(cls: type[Message], version: int, direction: str) -> str:
    """The text of a generated codec, for readers: ``direction`` is ``"decode"`` or ``"encode"``."""
    spec = check_version(cls, version)
    emitter = (DecodeEmitter if direction == "decode" else EncodeEmitter)(version, flexible=version in spec.flexible)
    emitter.struct(cls)
    return emitter.text()


def decoder(cls: type[Message], version: int) -> _Decoder:
    """The compiled decoder; raises WireError where there is no such version."""
    found = _decoders.get((cls, version))
    if found is None:
        spec = check_version(cls, version)
        emitter = DecodeEmitter(version, flexible=version in spec.flexible)
        found = _decoders[cls, version] = emitter.build(cls)
    return found


def encoder(cls: type[Message], version: int) -> _Encoder:
    """The compiled encoder; raises WireError where there is no such version."""
    found = _encoders.get((cls, version))
    if found is None:
        spec = check_version(cls, version)
        emitter = EncodeEmitter(version, flexible=version in spec.flexible)
        found = _encoders[cls, version] = emitter.build(cls)
    return found


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> tuple[M, int]:
    """Read a message; gives it and the position after it.

    Raises:
        WireError: the bytes are not this message.
    """
    view = buf if isinstance(buf, memoryview) else memoryview(buf)
    try:
        return decoder(cls, version)(view, pos, len(view))
    except (struct.error, IndexError) as error:
        raise WireError(f"{cls.__name__} v{version}: {error}") from None


def decode_whole(cls: type[M], version: int, buf: Buffer) -> M:
    """Read a message that must fill the buffer.

    Raises:
        WireError: the bytes are not this message, or some are left over.
    """
    message, pos = decode(cls, version, buf)
    if pos != len(buf):
        raise WireError(f"{cls.__name__} v{version}: {len(buf) - pos} bytes left over")
    return message


def encode_chunks(message: Message, version: int) -> list[Chunk]:
    """Write a message as a list of chunks, record data left as it was given.

    Raises:
        WireError: the message holds something that this version cannot carry.
    """
    out: list[Chunk] = []
    try:
        encoder(type(message), version)(message, out.append)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError, OverflowError) as error:
        raise WireError(f"{type(message).__name__} v{version}: {error}") from None
    return out


def encode(message: Message, version: int) -> bytes:
    """Write a message as one byte string.

    Raises:
        WireError: the message holds something that this version cannot carry.
    """
    return b"".join(encode_chunks(message, version))
