"""Random instances of any message, valid for one version: fields that the version lacks stay at their default."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import FieldSpec, Message, fields_of

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
TEXTS = ("", "a", "topic-1", "naïve", "日本", "x" * 130)


def random_scalar(rng: random.Random, kind: str) -> Any:
    if kind in RANGES:
        low, high = RANGES[kind]
        return rng.choice((0, 1, low, high, rng.randint(low, high)))
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.choice((0.0, -1.5, rng.random()))
        case "uuid":
            return rng.randbytes(16)
        case "string":
            return rng.choice(TEXTS)
        case _:
            return rng.randbytes(rng.choice((0, 1, 20, 200)))


def random_value(rng: random.Random, spec: FieldSpec, version: int, *, flexible: bool) -> Any:
    if version in spec.nullable and rng.random() < 0.2:
        return None
    if spec.is_array:
        size = rng.choice((0, 1, 2, 3))
        if spec.element == "struct":
            assert spec.struct is not None
            return [random_struct(rng, spec.struct, version, flexible=flexible) for _ in range(size)]
        return [random_scalar(rng, spec.element) for _ in range(size)]
    if spec.kind == "struct":
        assert spec.struct is not None
        return random_struct(rng, spec.struct, version, flexible=flexible)
    return random_scalar(rng, spec.kind)


def fill_message(
    rng: random.Random, cls: type[Message], version: int, make: Callable[[FieldSpec], Any], *, flexible: bool
) -> Message:
    """Return a message with the fields from ``make`` that the version has; some tagged fields are left out."""
    values = {}
    for spec in fields_of(cls):
        here = version in spec.versions
        if here and flexible and version in spec.tagged and rng.random() < 0.4:
            here = False
        values[spec.name] = make(spec) if here else spec.default_value()
    return cls(**values)


def random_struct(rng: random.Random, cls: type[Message], version: int, *, flexible: bool) -> Message:
    return fill_message(
        rng, cls, version, lambda spec: random_value(rng, spec, version, flexible=flexible), flexible=flexible
    )


def random_message(rng: random.Random, cls: type[Message], version: int) -> Message:
    """Return a random message."""
    return random_struct(rng, cls, version, flexible=version in spec_of(cls).flexible)
