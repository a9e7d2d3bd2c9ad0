"""Client of a schema registry with Confluent's REST API: schemas by their ids.

Source: ``/schemas/ids/{id}`` and ``/subjects/{subject}/versions/{version}`` of Confluent's API reference; Protobuf
schemas are requested with ``format=serialized``.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple
from urllib.parse import quote

from ottla.client.http_client import HttpFetchError, http_get
from ottla.console.schemas.value_decoder import InvalidSchema
from ottla.env.env import Env

MAX_SCHEMA_BYTES = 256 * 1024
"""Document of the registry, and file with a schema."""
MAX_REFERENCES = 50
"""Schemas that a schema uses, directly and through others."""
MAX_TOTAL_CHARS = 1024 * 1024
"""Characters of the schemas that a schema uses, its own not counted."""
_PATH_CHARS = 100
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"


class RegisteredSchema(NamedTuple):
    """Schema of a registry: its type, its text, and the texts of the schemas that it uses."""

    kind: str
    """``AVRO``, ``PROTOBUF`` or ``JSON``."""
    text: str
    """JSON, or for Protobuf a descriptor in Base64."""
    references: dict[str, str]
    """Texts of the schemas that it uses, by the names by which it uses them; the used ones before the using ones."""

    def files(self) -> list[tuple[str, bytes]]:
        """Return name and encoded descriptor of each file of a Protobuf schema, those that it uses first.

        The last one is that of the schema itself; its name is empty.

        Raises:
            InvalidSchema: a text is not Base64.
        """
        try:
            return [
                (name, base64.b64decode(text, validate=True))
                for name, text in (*self.references.items(), ("", self.text))
            ]
        except (binascii.Error, ValueError):
            raise InvalidSchema("the registry returned no serialized descriptor") from None


class SchemaRegistryClient:
    """Client of a schema registry over HTTP; nothing is cached."""

    def __init__(self, env: Env, url: str) -> None:
        self._env = env
        self._url = url.rstrip("/")

    async def fetch(self, schema_id: int) -> RegisteredSchema:
        """Request the schema with an id, and the schemas that it uses, and return them.

        Raises:
            InvalidSchema: there is none, the registry cannot be read, its response is malformed or of an unknown schema
                type, or a limit of this module is exceeded.
        """
        path = f"/schemas/ids/{schema_id}"
        found = await self._get(path)
        kind = found.get("schemaType", AVRO)
        if kind not in (AVRO, PROTOBUF, JSON):
            raise InvalidSchema(f"schema type {str(kind)[:40]} is not known")
        if kind == PROTOBUF:
            found = {**found, **await self._get(f"{path}?format=serialized")}
        references: dict[str, str] = {}
        await self._add_references(kind, found, references, [MAX_REFERENCES])
        return RegisteredSchema(kind, _schema_text(found), references)

    async def _add_references(self, kind: str, schema: dict[str, Any], out: dict[str, str], left: list[int]) -> None:
        """Request the schemas that a schema uses, directly or through others, and add their texts to ``out``.

        ``left``: list with the number of requests that may still be sent, which is decreased.

        Raises:
            InvalidSchema: a reference is malformed or cannot be read, or there are too many.
        """
        rows = schema.get("references") or []
        if not isinstance(rows, list):
            raise InvalidSchema("malformed references")
        for row in rows:
            try:
                name, version = str(row["name"]), int(row["version"])
                subject = quote(str(row["subject"]), safe="")
            except (LookupError, TypeError, ValueError, OverflowError):
                raise InvalidSchema("malformed references") from None
            if name in out:
                continue
            left[0] -= 1
            if left[0] < 0:
                raise InvalidSchema(f"more than {MAX_REFERENCES} references")
            suffix = "?format=serialized" if kind == PROTOBUF else ""
            found = await self._get(f"/subjects/{subject}/versions/{version}{suffix}")
            await self._add_references(kind, found, out, left)
            out[name] = _schema_text(found)
            if sum(map(len, out.values())) > MAX_TOTAL_CHARS:
                raise InvalidSchema(f"more than {MAX_TOTAL_CHARS:,} characters with its references")

    async def _get(self, path: str) -> dict[str, Any]:
        try:
            raw = await http_get(self._env, self._url + path, max_bytes=MAX_SCHEMA_BYTES)
            found = json.loads(raw)
        except HttpFetchError as error:
            raise InvalidSchema(f"schema registry: {path.partition('?')[0][:_PATH_CHARS]}: {error}") from None
        except (ValueError, RecursionError):
            raise InvalidSchema("schema registry: no JSON") from None
        if not isinstance(found, dict):
            raise InvalidSchema("schema registry: no JSON object")
        return found


def _schema_text(found: dict[str, Any]) -> str:
    text = found.get("schema")
    if not isinstance(text, str):
        raise InvalidSchema("schema registry: the response has no schema")
    return text
