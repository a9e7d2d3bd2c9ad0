"""Names from Kerberos principals. `compat_tests` compare every pair of these rules and names with Kafka's own class."""

from __future__ import annotations

import pytest

from ottla.broker.security.authn.kerberos_name_rules import NoMatchingRule, parse_name_rules
from ottla.broker.security.authn.ssl_principal_mapper import InvalidMappingRule, parse_mapping_rules

REALM = "HERE.ORG"
NAMES = [
    "alice@HERE.ORG",
    "alice/admin@HERE.ORG",
    "alice@THERE.ORG",
    "kafka/host.there.org@THERE.ORG",
    "Alice-Smith@HERE.ORG",
    "alice",
    "alice/admin",
    "a/b/c@HERE.ORG",
    "alice@",
    "@HERE.ORG",
    "/x@HERE.ORG",
    "aXbXc@HERE.ORG",
]
RULES = [
    "DEFAULT",
    "",
    "RULE:[1:$1]",
    "RULE:[2:$1]",
    "RULE:[1:$1@$0](.*@THERE.ORG)s/@.*//, DEFAULT",
    "RULE:[1:$1](alice)",
    "RULE:[1:$1](ali)",
    "RULE:[1:$1@$0]",
    "RULE:[2:$2/$1]",
    "RULE:[2:$1.$2]",
    "RULE:[1:$1]/L",
    "RULE:[1:$1]/U",
    "RULE:[1:$1]L",
    "RULE:[1:$1]s/X/-/",
    "RULE:[1:$1]s/X/-/g",
    "RULE:[1:$1]s/X/-/g/L",
    "RULE:[1:$1]s/(a)(.*)/$2$1/",
    "RULE:[1:$1]s/a/\\$/",
    "RULE:[1:$1]s/a/$0$0/",
    "RULE:[1:$3]",
    "RULE:[1:$]",
    "RULE:[1:x$1y]",
    "RULE:[0:x]",
    "RULE:[1:$1](.*x.*),RULE:[1:$1](.*)s/^.*$/other/",
    "RULE:[:$1]",
    "RULE:[1:$1",
    "RULE:[1:$1]x",
    "RULE:[1:$1](*)",
    "RULE:[1:$1]s/(//",
    "default",
    "DEFAULTS",
    "DEFAULT/L",
]
CLASSES = [
    ("RULE:[1:$1](\\w+)s/.*/fits/", "müller@HERE.ORG", "no name"),
    ("RULE:[1:$1](\\W+)s/.*/fits/", "ü@HERE.ORG", "= fits"),
    ("RULE:[1:$1]s/\\W/-/g", "müller@HERE.ORG", "= m-ller"),
    ("RULE:[1:$1](\\d+)s/.*/fits/", "\u0661\u0662@HERE.ORG", "no name"),
    ("RULE:[1:$1](\\S+)s/.*/fits/", "a\u2003b@HERE.ORG", "= fits"),
    ("RULE:[1:$1]s/(?i)^[^k]$/fits/", "\u212a@HERE.ORG", "= fits"),
    ("RULE:[1:$\u0661]", "alice@HERE.ORG", "no name"),
    ("RULE:[\u0661:$1]", "alice@HERE.ORG", "no rule"),
]
"""Characters of a regular expression class: in Java those of ASCII only."""


def made(rules: str, name: str) -> str:
    """Return the result of the rules, as the program that runs Kafka's class prints it."""
    try:
        names = parse_name_rules(rules, REALM)
    except InvalidMappingRule:
        return "no rule"
    try:
        return f"= {names(name)}"
    except NoMatchingRule:
        return "no name"


@pytest.mark.behaviour("S-311")
@pytest.mark.parametrize(
    ("rules", "name", "wanted"),
    [
        ("DEFAULT", "alice@HERE.ORG", "= alice"),
        ("DEFAULT", "alice/admin@HERE.ORG", "= alice"),
        ("DEFAULT", "alice@THERE.ORG", "no name"),
        ("DEFAULT", "alice", "= alice"),
        ("DEFAULT", "alice/admin", "= alice/admin"),
        ("DEFAULT", "a/b/c@HERE.ORG", "no name"),
        ("RULE:[1:$1@$0](.*@THERE.ORG)s/@.*//, DEFAULT", "alice@THERE.ORG", "= alice"),
        ("RULE:[1:$1@$0](.*@THERE.ORG)s/@.*//, DEFAULT", "bob@HERE.ORG", "= bob"),
        ("RULE:[1:$1](ali)", "alice@HERE.ORG", "no name"),
        ("RULE:[1:$1@$0]", "alice@HERE.ORG", "no name"),
        ("RULE:[1:$1]/L", "Alice@HERE.ORG", "= alice"),
        ("RULE:[1:$1]/U", "Alice@HERE.ORG", "= ALICE"),
        ("RULE:[1:$1]s/X/-/", "aXbXc@HERE.ORG", "= a-bXc"),
        ("RULE:[1:$1]s/X/-/g", "aXbXc@HERE.ORG", "= a-b-c"),
        ("RULE:[1:$1]s/(a)(.*)/$2$1/", "alice@HERE.ORG", "= licea"),
        ("RULE:[1:$3]", "alice@HERE.ORG", "no name"),
        ("RULE:[2:$1.$2]", "kafka/host@THERE.ORG", "= kafka.host"),
        ("RULE:[:$1]", "alice@HERE.ORG", "no rule"),
        ("RULE:[1:$1](*)", "alice@HERE.ORG", "no rule"),
        ("RULE:[1:$1]s/a/$1/", "alice@HERE.ORG", "no rule"),
        ("DEFAULT/L", "alice@HERE.ORG", "no rule"),
        ("", "alice@HERE.ORG", "no name"),
    ],
)
def test_name_rules_map_principals_as_kafka(rules, name, wanted):
    assert made(rules, name) == wanted


@pytest.mark.behaviour("S-311")
def test_name_rules_default_without_realm_maps_principal_without_realm():
    assert parse_name_rules("DEFAULT", "")("alice@") == "alice"


@pytest.mark.behaviour("S-311")
@pytest.mark.parametrize(("rules", "name", "wanted"), CLASSES)
def test_name_rules_character_classes_are_ascii_as_in_java(rules, name, wanted):
    assert made(rules, name) == wanted


@pytest.mark.behaviour("S-311")
@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "x{1,4294967295}", "(?:" * 5000])
def test_name_rules_pattern_invalid_in_python_is_refused(pattern):
    """Invalid both in a rule for principals and in one for certificate subjects."""
    assert made(f"RULE:[1:$1]s/{pattern}/x/", "alice@HERE.ORG") == "no rule"
    with pytest.raises(InvalidMappingRule):
        parse_mapping_rules(f"RULE:{pattern}/x/")


@pytest.mark.behaviour("S-311")
@pytest.mark.parametrize("pattern", ["[a-z&&[^b]]", "[[a]b]", "[a||b]", "(?u)a"])
def test_name_rules_pattern_with_other_meaning_in_java_is_refused(pattern):
    assert made(f"RULE:[1:$1]s/{pattern}/x/", "alice@HERE.ORG") == "no rule"
