"""Mapping of Kerberos principals to short names by ``sasl.kerberos.principal.to.local.rules``.

Behaviour (S-311): ``DEFAULT`` maps a principal of the default realm to its first component.
``RULE:[n:format](pattern)s/from/to/gL`` applies to principals of n components: the format joins them ($0 is the realm,
$1 the first component), the result must match the whole pattern, ``s/from/to/`` replaces the first match, with ``g``
all matches, ``/L`` and ``/U`` change the case. The first matching rule decides; its result must not contain ``/`` or
``@``. A principal without a realm is its own short name.

Source: ``KerberosName.java``, ``KerberosShortNamer.java``, ``KerberosRule.java`` (apache/kafka 4.3.1).

From KIP-12; upper case from KIP-309.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ottla.broker.security.authn.ssl_principal_mapper import InvalidMappingRule, compile_java_pattern

_PRINCIPAL = re.compile(r"(?P<first>[^/@]*)(?:/(?P<second>[^/@]*))?@(?P<realm>[^/@]*)")
_RULE = re.compile(
    r"DEFAULT|RULE:\[(?P<parts>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<source>[^/]*)/(?P<target>[^/]*)/(?P<every>g)?)?/?(?P<case>[LU])?",
    re.ASCII,
)
_PART = re.compile(r"\$(\d*)", re.ASCII)
_GROUP = re.compile(r"\\(.)|\$(\d)|([\\$])", re.DOTALL | re.ASCII)
_NOT_SIMPLE = re.compile(r"[/@]")


class NoMatchingRule(Exception):
    """Raised when no rule matches a principal, it is malformed, or the first matching rule gives no valid name."""


PrincipalParts = Sequence[str]
"""Realm and components of a principal, in this order."""
KerberosRule = Callable[[PrincipalParts], "str | None"]
KerberosNameMapper = Callable[[str], str]
"""Function that returns the short name of a principal. Raises NoMatchingRule."""


def _format_name(text: str, parts: PrincipalParts) -> str:
    def part(found: re.Match[str]) -> str:
        if not found[1] or int(found[1]) >= len(parts):
            raise NoMatchingRule(f"no such component of the principal in a rule's format: {found[0]!r}")
        return parts[int(found[1])]

    return _PART.sub(part, text)


def _compile_target(text: str, groups: int) -> Callable[[re.Match[str]], str]:
    """Compile a replacement into a function of the match: ``$1`` is the first group, a backslash escapes a character.

    ``groups``: number of groups of the pattern.

    Raises:
        InvalidMappingRule: it refers to a group that does not exist, or has a lone backslash or ``$``.
    """
    for found in _GROUP.finditer(text):
        if found[3] or (found[2] and int(found[2]) > groups):
            raise InvalidMappingRule(f"invalid replacement: {text!r}")
    return lambda match: _GROUP.sub(lambda x: x[1] if x[1] is not None else match[int(x[2])] or "", text)


def _compile_rule(text: str, found: re.Match[str]) -> KerberosRule:
    if not found["parts"]:
        raise InvalidMappingRule(f"{text!r} has no number of components: RULE:[1:$1] expected")
    try:
        match = None if found["match"] is None else compile_java_pattern(found["match"])
        source = None if found["source"] is None else compile_java_pattern(found["source"])
    except re.error as error:
        raise InvalidMappingRule(f"{text!r}: {error}") from None
    target = _compile_target(found["target"], source.groups) if source is not None else None
    count, layout, times = int(found["parts"]), found["format"], 0 if found["every"] else 1
    case: Callable[[str], str] = {"L": str.lower, "U": str.upper}.get(found["case"] or "", str)

    def apply(parts: PrincipalParts) -> str | None:
        if len(parts) - 1 != count:
            return None
        name = _format_name(layout, parts)
        if match is not None and match.fullmatch(name) is None:
            return None
        if source is not None and target is not None:
            name = source.sub(target, name, times)
        return case(_check_simple(name))

    return apply


def _check_simple(name: str) -> str:
    if _NOT_SIMPLE.search(name):
        raise NoMatchingRule(f"invalid short name by a rule: {name!r}")
    return name


def _default_rule(realm: str) -> KerberosRule:
    return lambda parts: _check_simple(parts[1]) if parts[0] == realm else None


def parse_name_rules(rules: str, default_realm: str) -> KerberosNameMapper:
    """Return the function that maps a principal to its short name; ``rules`` are comma-separated, as in the setting.

    The function raises NoMatchingRule; without rules for each principal with a realm. ``default_realm``: the realm to
    which ``DEFAULT`` applies.

    Raises:
        InvalidMappingRule: a rule is malformed.
    """
    made: list[KerberosRule] = []
    for text in (x.strip() for x in rules.split(",") if x.strip()):
        found = _RULE.match(text)
        if found is None or found.end() != len(text):
            raise InvalidMappingRule(
                f"{text!r} is not a rule: DEFAULT or RULE:[n:format](pattern)s/from/to/g/L expected"
            )
        made.append(_default_rule(default_realm) if text == "DEFAULT" else _compile_rule(text, found))

    def short_name(principal: str) -> str:
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            if "@" in principal:
                raise NoMatchingRule(f"{principal!r} has more parts than a name may have")
            return principal
        parts = [found["realm"], found["first"], *([] if found["second"] is None else [found["second"]])]
        name = next((x for x in (rule(parts) for rule in made) if x is not None), None)
        if name is None:
            raise NoMatchingRule(f"no rule fits {principal!r}")
        return name

    return short_name
