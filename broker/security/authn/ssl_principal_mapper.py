"""Principals of TLS clients: the certificate's subject, mapped by ``ssl.principal.mapping.rules``.

Behaviour (S-310): comma-separated rules, ``DEFAULT`` or ``RULE:pattern/replacement/[LU]``; a backslash escapes a slash.
The first rule whose pattern matches the whole subject applies; without a match authentication fails.

Source: ``SslPrincipalMapper.java`` (apache/kafka 4.3.1).

From KIP-371.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

_RULE = re.compile(r"(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,\s*|$)", re.DOTALL)
_GROUP = re.compile(r"\\(.)|\$(\d)", re.DOTALL | re.ASCII)


class InvalidMappingRule(Exception):
    """Raised for a malformed rule of ``ssl.principal.mapping.rules`` or ``sasl.kerberos.principal.to.local.rules``."""


PrincipalMapper = Callable[[str], "str | None"]
CaseMapping = Callable[[str], str]
_CASES: dict[str, CaseMapping] = {"": str, "L": str.lower, "U": str.upper}


def compile_java_pattern(text: str) -> re.Pattern[str]:
    """Return a Java regular expression compiled for Python, with ASCII character classes.

    Raises:
        re.error: it is invalid, too complex, or has set operations, which Python does not support.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        try:
            return re.compile(re.sub(r"\(\?<([A-Za-z])", r"(?P<\1", text), re.ASCII)
        except (FutureWarning, ValueError, OverflowError, RecursionError) as error:  # such as `(?u)` with re.ASCII
            raise re.error(str(error), text) from None


def _default_rule(subject: str) -> str | None:
    return subject


def _mapping_rule(pattern: re.Pattern[str], replacement: str, case: CaseMapping) -> PrincipalMapper:
    def name_of(subject: str) -> str | None:
        found = pattern.fullmatch(subject)
        if found is None:
            return None
        return case(_GROUP.sub(lambda x: x[1] if x[1] is not None else found[int(x[2])] or "", replacement))

    return name_of


def parse_mapping_rules(rules: str) -> PrincipalMapper:
    """Return the function that maps a certificate's subject to a principal name; it returns None if no rule matches.

    ``rules``: value of the setting; empty for ``DEFAULT``.

    Raises:
        InvalidMappingRule: a rule is malformed.
    """
    text = rules.strip() or "DEFAULT"
    made: list[PrincipalMapper] = []
    pos = 0
    while pos < len(text):
        found = _RULE.match(text, pos)
        if found is None:
            raise InvalidMappingRule(f"{text[pos:]!r} is not a rule: DEFAULT or RULE:pattern/replacement/[LU] expected")
        made.append(_default_rule if found[1] else _compile_rule(found))
        pos = found.end()

    def first(subject: str) -> str | None:
        return next((name for name in (rule(subject) for rule in made) if name is not None), None)

    return first


def _compile_rule(found: re.Match[str]) -> PrincipalMapper:
    try:
        pattern = compile_java_pattern(found[2].replace("\\/", "/"))
        replacement = found[3].replace("\\/", "/")
        if any(int(x[2]) > pattern.groups for x in _GROUP.finditer(replacement) if x[2]):
            raise InvalidMappingRule(f"{found[0]!r} names a group that is not in its pattern")
        return _mapping_rule(pattern, replacement, _CASES[found[4]])
    except re.error as error:
        raise InvalidMappingRule(f"{found[0]!r}: {error}") from None
