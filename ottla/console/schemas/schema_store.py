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
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.broker.config.limits import MAX_CONSOLE_SCHEMA_BYTES, MAX_CONSOLE_SCHEMA_LOOKUPS
from ottla.console.record_text import shorten
from ottla.console.schemas.avro_decoder import build_avro_decoder
from ottla.console.schemas.protobuf_decoder import (
    ProtobufSchema,
    build_protobuf_schema,
    read_message_indexes,
    split_descriptor_set,
)
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
from ottla.jobs.time_slice import run_in_background

LOOKUP_TIMEOUT_S = 5.0
"""Time in which the schemas of a page are loaded from the registry."""
RETRY_MS = 10_000.0
"""Time after which a schema that could not be loaded is requested again."""
MAX_FILES = 10_000
_PREFIX_BYTES = 5
"""Zero byte and id of the schema before a value in Confluent's wire format."""
KEY, VALUE = "key", "value"
MAX_NOTE_CHARS = 300
"""Characters of a reason, or of a type name, that are shown: names in a schema may be long."""
LEAST_SCHEMA_BYTES = 4096
"""Bytes as which a smaller schema counts in a cache."""
K = TypeVar("K")
V = TypeVar("V")
NOT_INSTALLED = "{} is not installed: pip install 'ottla[schemas]'"


class DecodedValue(NamedTuple):
    """Result of decoding a key or value by the schema that applies to it: name of the schema, value or problem."""

    schema: str
    """Schema, such as ``Avro shop.Order, schema 7`` or ``orders-value.avsc``."""
    value: Any
    """Dicts, lists and scalars; None if there is a problem."""
    problem: str
    """Reason for which the bytes were not decoded; empty if they were."""


class SchemaFile(NamedTuple):
    """Name of a file with a schema, and its time and size, by which a change of the file is noticed."""

    name: str
    mtime_and_size: tuple[int, int]
    """Time of the last change (ns since 1970) and size in bytes: a file with other ones is read again."""


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
    """Reason for which a schema cannot be used, and the monotonic time in ms until which it is not loaded again."""

    text: str
    until_ms: float


class SchemaCache(Generic[K, V]):
    """LRU cache of schemas, limited to `MAX_CONSOLE_SCHEMA_BYTES` bytes of their sources."""

    def __init__(self) -> None:
        self._rows: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._total_bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: K) -> V | None:
        """Return the schema of a key, which becomes the last one used; None if it is not cached."""
        if key not in self._rows:
            return None
        self._rows.move_to_end(key)
        return self._rows[key][0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """Set the schema of a key with the size of its source, and remove the least recently used ones above the limit.

        A source counts with `LEAST_SCHEMA_BYTES` at least.
        """
        size_bytes = max(size_bytes, LEAST_SCHEMA_BYTES)
        self._total_bytes += size_bytes - self._rows.pop(key, (None, 0))[1]
        self._rows[key] = value, size_bytes
        while self._total_bytes > MAX_CONSOLE_SCHEMA_BYTES:
            self._total_bytes -= self._rows.popitem(last=False)[1][1]


def _schema_of_file(file_name: str, raw: bytes) -> Job[Decoder]:
    """Return the decoder for the content of a file, as a job.

    Raises:
        InvalidSchema: the file is malformed or too large. UndecodableValue: it has no message type of its name.
        ModuleNotFoundError: the library is not installed.
    """
    if len(raw) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"more than {MAX_SCHEMA_BYTES:,} bytes")
    if file_name.endswith(".avsc"):
        return (yield from build_avro_decoder(raw.decode("utf-8", "replace")))
    files = split_descriptor_set(raw)
    yield None
    schema = yield from build_protobuf_schema(files)
    name = file_name.removesuffix(".desc").partition("@")[2]
    return schema.decoder_by_name(name) if name else schema


def _schema_of_registry(found: RegisteredSchema) -> Job[Decoder]:
    """Return the decoder of a schema of the registry, as a job.

    Raises:
        InvalidSchema: the schema is malformed. ModuleNotFoundError: the library is not installed.
    """
    if found.kind == AVRO:
        return (yield from build_avro_decoder(found.text, found.references))
    if found.kind == PROTOBUF:
        return (yield from build_protobuf_schema(found.files()))
    return JsonDecoder()


class TopicSchemas:
    """Schemas for the keys and values of a topic, loaded already."""

    def __init__(
        self, files: Mapping[str, tuple[str, Decoder | Problem]], by_id: Mapping[int, Decoder | Problem]
    ) -> None:
        """``files``: file name and schema of ``key`` and ``value``; ``by_id``: schemas of the registry."""
        self._files = files
        self._by_id = by_id

    def decode(self, part: str, raw: bytes | None) -> Job[DecodedValue | None]:
        """Return a key or value decoded, or the reason why it could not be, as a job; None if it has no schema.

        ``part``: `KEY` or `VALUE`. A schema of a file precedes that of the registry; None is also returned for null.
        """
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
        return DecodedValue(name, None, shorten(decoder.text, MAX_NOTE_CHARS))
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
        return DecodedValue(name, None, shorten(str(error), MAX_NOTE_CHARS))
    return DecodedValue(f"{shorten(decoder.name, MAX_NOTE_CHARS)}, {name}", value, "")


class SchemaStore:
    """Loader of schemas from a directory and a registry, either of which may be None, with caches."""

    def __init__(self, env: Env, directory: str | None, registry_url: str | None) -> None:
        self._env = env
        self._directory = directory
        self._registry = SchemaRegistryClient(env, registry_url) if registry_url else None
        self._by_id = SchemaCache[int, Decoder | Problem]()
        self._by_file = SchemaCache[str, tuple[tuple[int, int], Decoder | Problem]]()

    async def load(self, topic: str, values: Iterable[bytes | None]) -> TopicSchemas:
        """Return the schemas for keys and values of a topic; those that are not cached are loaded.

        ``values``: keys and values whose ids are looked up in the registry: at most `MAX_CONSOLE_SCHEMA_LOOKUPS` that
        are not cached, for at most `LOOKUP_TIMEOUT_S`. A schema
        that cannot be loaded or used is no error: `TopicSchemas.decode` returns the reason.
        """
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
        """Add the schemas with the given ids, or the problem of each, to ``out``.

        At most `MAX_CONSOLE_SCHEMA_LOOKUPS` are requested from the registry; the others must be cached.
        """
        left = MAX_CONSOLE_SCHEMA_LOOKUPS
        for schema_id in ids:
            found = self._by_id.get(schema_id)
            if found is None or (isinstance(found, Problem) and found.until_ms <= self._env.monotonic_ms()):
                left -= 1
                if left < 0:
                    out[schema_id] = Problem(f"a page loads at most {MAX_CONSOLE_SCHEMA_LOOKUPS} schemas", 0.0)
                    continue
                found = await self._load_id(registry, schema_id)
            out[schema_id] = found

    async def _load_id(self, registry: SchemaRegistryClient, schema_id: int) -> Decoder | Problem:
        """Load the schema with an id from the registry; put it, or the reason why it cannot be used, in the cache."""
        found: Decoder | Problem
        size_bytes = 0
        try:
            schema = await registry.fetch(schema_id)
            size_bytes = sum(map(len, (schema.text, *schema.references.values())))
            found = await run_in_background(self._env, _schema_of_registry(schema))
        except (InvalidSchema, UndecodableValue) as error:
            found = Problem(str(error), self._env.monotonic_ms() + RETRY_MS)
        except ModuleNotFoundError as error:
            found = Problem(NOT_INSTALLED.format(error.name), self._env.monotonic_ms() + RETRY_MS)
        self._by_id.put(schema_id, found, 0 if isinstance(found, Problem) else size_bytes)
        return found

    async def _load_files(self, directory: str, topic: str) -> dict[str, tuple[str, Decoder | Problem]]:
        """Return file name and schema of a topic by `KEY` and `VALUE`, for those that have a file.

        If the directory cannot be read, both have a problem.
        """
        subjects = {f"{topic}-{part}": part for part in (KEY, VALUE)}
        try:
            found = await self._env.in_thread(partial(_find_files, directory, subjects))
            out: dict[str, tuple[str, Decoder | Problem]] = {}
            for part, file in found.items():
                cached = self._by_file.get(file.name)
                if cached is None or cached[0] != file.mtime_and_size:
                    raw = await self._env.in_thread(partial(_read_file, Path(directory, file.name)))
                    cached = file.mtime_and_size, await run_in_background(self._env, _load_file(file.name, raw))
                    self._by_file.put(file.name, cached, len(raw))
                out[part] = file.name, cached[1]
        except OSError as error:
            problem = Problem(f"{directory}: {os.strerror(error.errno or 0)}", 0.0)
            return dict.fromkeys((KEY, VALUE), ("schema directory", problem))
        return out


def _load_file(name: str, raw: bytes) -> Job[Decoder | Problem]:
    try:
        return (yield from _schema_of_file(name, raw))
    except (InvalidSchema, UndecodableValue) as error:
        return Problem(str(error), 0.0)
    except ModuleNotFoundError as error:
        return Problem(NOT_INSTALLED.format(error.name), 0.0)


def _find_files(directory: str, subjects: Mapping[str, str]) -> dict[str, SchemaFile]:
    """Return the file of each subject that has one, the first by name, with ``subjects[subject]`` as its key.

    Raises:
        OSError: the directory cannot be read.
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
        status = Path(directory, name).stat()
        if stat.S_ISREG(status.st_mode):
            out[part] = SchemaFile(name, (status.st_mtime_ns, status.st_size))
    return out


def _read_file(path: Path) -> bytes:
    """Return the content of a file, or its first `MAX_SCHEMA_BYTES` + 1 bytes."""
    with path.open("rb") as file:
        return file.read(MAX_SCHEMA_BYTES + 1)
