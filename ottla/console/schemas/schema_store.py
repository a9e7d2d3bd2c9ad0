"""Schemas of a node's console: files of a directory, and schemas of a registry, which are loaded when needed.

A file is named after its subject, ``TOPIC-key`` or ``TOPIC-value``: ``orders-value.avsc`` is an Avro schema,
``orders-value.desc`` and ``orders-value@shop.Order.desc`` are Protobuf descriptor sets, the second one with the message
type. A key or value that begins with a zero byte and the id of a schema (Confluent's wire format) needs no file if a
registry is configured.
"""

from __future__ import annotations

import json
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ottla.broker.config.limits import MAX_CONSOLE_SCHEMA_LOOKUPS, MAX_CONSOLE_SCHEMAS
from ottla.console.schemas.avro_decoder import AvroDecoder
from ottla.console.schemas.protobuf_decoder import ProtobufSchema, read_message_indexes, split_descriptor_set
from ottla.console.schemas.registry_client import (
    AVRO,
    MAX_SCHEMA_BYTES,
    PROTOBUF,
    RegisteredSchema,
    SchemaRegistryClient,
)
from ottla.console.schemas.value_decoder import InvalidSchema, UndecodableValue, ValueDecoder, check_size
from ottla.env.env import Env
from ottla.jobs.job import Job

LOOKUP_TIMEOUT_S = 5.0
"""Time in which the schemas of a page are loaded from the registry."""
RETRY_MS = 10_000.0
"""Time after which a schema that could not be loaded is requested again."""
MAX_FILES = 10_000
_PREFIX_BYTES = 5
"""Zero byte and id of the schema before a value in Confluent's wire format."""
KEY, VALUE = "key", "value"
NOT_INSTALLED = "{} is not installed: pip install 'ottla[schemas]'"


class DecodedValue(NamedTuple):
    """Key or value that a schema applies to."""

    schema: str
    """Schema, such as ``Avro shop.Order, schema 7`` or ``orders-value.avsc``."""
    value: Any
    """Dicts, lists and scalars; None if there is a problem."""
    problem: str
    """Reason for which the bytes were not decoded; empty if they were."""


class SchemaFile(NamedTuple):
    """Content of a file with a schema, and what identifies its version."""

    name: str
    stamp: tuple[int, int]
    raw: bytes


class JsonDecoder:
    """Decoder of JSON values, which JSON schemas describe; the schema itself is not checked."""

    name = "JSON"

    def decode(self, raw: bytes, position: int) -> Job[Any]:
        """Return the JSON value in ``raw[position:]``, as a job.

        Raises:
            UndecodableValue: the bytes are no JSON, or ``raw`` is larger than `MAX_DECODED_BYTES`.
        """
        yield None
        check_size(raw)
        try:
            return json.loads(raw[position:])
        except (ValueError, RecursionError) as error:
            raise UndecodableValue(f"not JSON: {error}") from None


Decoder = ValueDecoder | ProtobufSchema


class Problem(NamedTuple):
    """Reason for which a schema cannot be used, and the time until which it is not loaded again."""

    text: str
    until_ms: float


def _schema_of_file(file: SchemaFile) -> Decoder:
    """Return the decoder of a file.

    Raises:
        InvalidSchema: the file is malformed. ModuleNotFoundError: the library is not installed.
    """
    if len(file.raw) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"more than {MAX_SCHEMA_BYTES:,} bytes")
    if file.name.endswith(".avsc"):
        return AvroDecoder(file.raw.decode("utf-8", "replace"))
    schema = ProtobufSchema(split_descriptor_set(file.raw))
    name = file.name.removesuffix(".desc").partition("@")[2]
    return schema.decoder_by_name(name) if name else schema


def _schema_of_registry(found: RegisteredSchema) -> Decoder:
    """Return the decoder of a schema of the registry.

    Raises:
        InvalidSchema: the schema is malformed. ModuleNotFoundError: the library is not installed.
    """
    if found.kind == AVRO:
        return AvroDecoder(found.text, found.references)
    return ProtobufSchema(found.files()) if found.kind == PROTOBUF else JsonDecoder()


class TopicSchemas:
    """Schemas for the keys and values of a topic, loaded already."""

    def __init__(
        self, files: Mapping[str, tuple[str, Decoder | Problem]], by_id: Mapping[int, Decoder | Problem]
    ) -> None:
        """``files``: file name and schema of ``key`` and ``value``; ``by_id``: schemas of the registry."""
        self._files = files
        self._by_id = by_id

    def decode(self, part: str, raw: bytes | None) -> Job[DecodedValue | None]:
        """Return a key or value decoded, or the reason why it could not be; None if no schema applies to it."""
        if raw is None:
            return None
        schema_id = _schema_id(raw)
        if part in self._files:
            name, decoder = self._files[part]
            if schema_id is not None and not isinstance(decoder, Problem):
                found = yield from _decode(name, decoder, raw, _PREFIX_BYTES)
                if not found.problem:
                    return found
            return (yield from _decode(name, decoder, raw, 0))
        if schema_id is None or schema_id not in self._by_id:
            return None
        return (yield from _decode(f"schema {schema_id}", self._by_id[schema_id], raw, _PREFIX_BYTES))


def _schema_id(raw: bytes) -> int | None:
    """Return the id of the schema before a value in Confluent's wire format; None in any other."""
    return int.from_bytes(raw[1:_PREFIX_BYTES], "big") if len(raw) >= _PREFIX_BYTES and not raw[0] else None


def _decode(name: str, decoder: Decoder | Problem, raw: bytes, position: int) -> Job[DecodedValue]:
    if isinstance(decoder, Problem):
        return DecodedValue(name, None, decoder.text)
    try:
        if isinstance(decoder, ProtobufSchema):
            indexes: tuple[int, ...] = (0,)
            if position:
                indexes, position = read_message_indexes(raw, position)
            decoder = decoder.decoder_by_indexes(indexes)
        elif position and decoder.name.startswith("Protobuf"):
            _, position = read_message_indexes(raw, position)
        value = yield from decoder.decode(raw, position)
    except UndecodableValue as error:
        return DecodedValue(name, None, str(error))
    return DecodedValue(f"{decoder.name}, {name}", value, "")


class SchemaStore:
    """Schemas of a directory and of a registry, with those that were used last."""

    def __init__(self, env: Env, directory: str | None, registry_url: str | None) -> None:
        self._env = env
        self._directory = directory
        self._registry = SchemaRegistryClient(env, registry_url) if registry_url else None
        self._by_id: OrderedDict[int, Decoder | Problem] = OrderedDict()
        self._by_file: OrderedDict[str, tuple[tuple[int, int], Decoder | Problem]] = OrderedDict()

    async def load(self, topic: str, values: Iterable[bytes | None]) -> TopicSchemas:
        """Return the schemas for keys and values of a topic; missing ones are loaded, which takes a limited time."""
        files = {} if self._directory is None else await self._load_files(self._directory, topic)
        by_id: dict[int, Decoder | Problem] = {}
        if self._registry is not None:
            ids = {_schema_id(raw) for raw in values if raw is not None}
            with self._env.timeout(LOOKUP_TIMEOUT_S):
                await self._load_ids(self._registry, sorted(x for x in ids if x is not None), by_id)
            for schema_id in ids:
                if schema_id is not None and schema_id not in by_id:
                    by_id[schema_id] = Problem("the schema was not loaded in time: load the page again", 0.0)
        return TopicSchemas(files, by_id)

    async def _load_ids(
        self, registry: SchemaRegistryClient, ids: list[int], out: dict[int, Decoder | Problem]
    ) -> None:
        """Add the schemas with the given ids to ``out``."""
        left = MAX_CONSOLE_SCHEMA_LOOKUPS
        for schema_id in ids:
            found = self._by_id.pop(schema_id, None)
            if found is None or (isinstance(found, Problem) and found.until_ms <= self._env.monotonic_ms()):
                left -= 1
                if left < 0:
                    out[schema_id] = Problem(f"a page loads at most {MAX_CONSOLE_SCHEMA_LOOKUPS} schemas", 0.0)
                    continue
                try:
                    found = _schema_of_registry(await registry.fetch(schema_id))
                except (InvalidSchema, UndecodableValue) as error:
                    found = Problem(str(error), self._env.monotonic_ms() + RETRY_MS)
                except ModuleNotFoundError as error:
                    found = Problem(NOT_INSTALLED.format(error.name), self._env.monotonic_ms() + RETRY_MS)
            out[schema_id] = self._by_id[schema_id] = found
            while len(self._by_id) > MAX_CONSOLE_SCHEMAS:
                self._by_id.popitem(last=False)

    async def _load_files(self, directory: str, topic: str) -> dict[str, tuple[str, Decoder | Problem]]:
        """Return file name and schema for keys and for values of a topic, where the directory has one."""
        known = {name: stamp for name, (stamp, _) in self._by_file.items()}
        subjects = {f"{topic}-{part}": part for part in (KEY, VALUE)}
        try:
            found = await self._env.in_thread(partial(_read_files, directory, subjects, known))
        except OSError as error:
            problem = Problem(f"{directory}: {os.strerror(error.errno or 0)}", 0.0)
            return dict.fromkeys((KEY, VALUE), ("schema directory", problem))
        out: dict[str, tuple[str, Decoder | Problem]] = {}
        for part, file in found.items():
            schema = self._by_file.pop(file.name)[1] if known.get(file.name) == file.stamp else _load_file(file)
            self._by_file[file.name] = file.stamp, schema
            out[part] = file.name, schema
        while len(self._by_file) > MAX_CONSOLE_SCHEMAS:
            self._by_file.popitem(last=False)
        return out


def _load_file(file: SchemaFile) -> Decoder | Problem:
    try:
        return _schema_of_file(file)
    except (InvalidSchema, UndecodableValue) as error:
        return Problem(str(error), 0.0)
    except ModuleNotFoundError as error:
        return Problem(NOT_INSTALLED.format(error.name), 0.0)


def _read_files(
    directory: str, subjects: Mapping[str, str], known: Mapping[str, tuple[int, int]]
) -> dict[str, SchemaFile]:
    """Return the first file of each subject by ``subjects[subject]``; a file with a known stamp has no content.

    Raises:
        OSError: the directory or a file cannot be read.
    """
    out: dict[str, SchemaFile] = {}
    with os.scandir(directory) as entries:
        names = sorted(entry.name for _, entry in zip(range(MAX_FILES), entries, strict=False))
    for name in names:
        stem, _, kind = name.rpartition(".")
        subject = stem.partition("@")[0] if kind == "desc" else stem
        part = subjects.get(subject) if kind in ("avsc", "desc") else None
        if part is None or part in out:
            continue
        path = Path(directory, name)
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            continue
        stamp = status.st_mtime_ns, status.st_size
        with path.open("rb") as file:
            raw = b"" if known.get(name) == stamp else file.read(MAX_SCHEMA_BYTES + 1)
        out[part] = SchemaFile(name, stamp, raw)
    return out
