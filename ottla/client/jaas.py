"""Parser of JAAS configurations (``sasl.jaas.config``): one login module with its options.

Source: ``JaasConfig.java``, ``JaasContext.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""", re.DOTALL)
_ESCAPED = re.compile(r"\\([0-3][0-7]{1,2}|[0-7]{1,2}|.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class InvalidJaasConfig(Exception):
    """Raised for a malformed JAAS configuration. The message never contains its text, which has passwords."""


class JaasLoginModule(NamedTuple):
    """Login module's class name and options. No class is loaded, and no decision depends on the name.

    The SASL mechanism determines how the options are interpreted.
    """

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name})"


def _unescape(found: re.Match[str]) -> str:
    """Return the character of an escape sequence in a quoted string, as Java's ``StreamTokenizer`` decodes it."""
    escaped = found[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _CONTROLS.get(escaped, escaped)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return the tokens of a JAAS configuration as (text, whether it was quoted).

    Raises:
        InvalidJaasConfig: a quoted string is not closed.
    """
    out, pos = [], 0
    while pos < len(text.rstrip()):
        found = _TOKEN.match(text, pos)
        if found is None:
            raise InvalidJaasConfig("a quotation mark is not closed")
        quoted = found[1] if found[1] is not None else found[2]
        out.append((_ESCAPED.sub(_unescape, quoted), True) if quoted is not None else (found[3] or found[4], False))
        pos = found.end()
    return out


def parse_jaas(text: str) -> JaasLoginModule:
    """Parse the value of ``sasl.jaas.config``: ``MODULE required option="value" ...;``, or another control flag.

    Raises:
        InvalidJaasConfig: it is malformed, or has more than one module.
    """
    tokens = _tokens(text)
    ends = [i for i, token in enumerate(tokens) if token == (";", False)]
    if not ends:
        raise InvalidJaasConfig("a login module ends with a semicolon")
    if ends[0] != len(tokens) - 1:
        raise InvalidJaasConfig("only one login module may be named")
    module_tokens = tokens[: ends[0]]
    if len(module_tokens) < 2 or module_tokens[1][0].lower() not in _FLAGS:
        raise InvalidJaasConfig('MODULE required name="value" ...; expected')
    rest = module_tokens[2:]
    options = {}
    for i in range(0, len(rest), 3):
        part = rest[i : i + 3]
        if len(part) < 3 or part[1] != ("=", False) or part[0] == ("=", False):
            raise InvalidJaasConfig('option name="value" expected')
        options[part[0][0]] = part[2][0]
    return JaasLoginModule(module_tokens[0][0], options)
