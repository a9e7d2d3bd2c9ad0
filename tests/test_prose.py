"""Prose: docstrings, comments and pages keep to the project's rules of language, measured by `devtools.prose`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from devtools import prose
from tests.test_names import LOCAL_WORDS, REPLACED, parts, words

ROOT = prose.ROOT
MAX_OPENINGS = 0.005
"""Share of docstrings that may open with a pronoun, in the product and in the tests of each package."""
MAX_COUNTED_PER_THOUSAND = 1.2
MAX_WORDS_PER_SENTENCE = 30.0
PACKAGES = ("wire", "log", "controller", "broker", "ottla", "compat_tests", "tests", "sim", "spark_it", "devtools")
"""Packages with tests and support."""


FORMER_TYPES = set(REPLACED.split()) - {"LeaderEpochs"}
"""Former class names; those of the leader epochs of a log keep their name in Java."""
FLOOR = {"floor"}
"""Java's name of a lookup in a sorted map, such as in ``floorEntry``."""


def replaced_in_source(name: str, source: str) -> list[str]:
    """Return the comments and identifiers with a replaced word in a source file of another language than Python.

    A comment must not open with a pronoun either. Names of files and classes have fewer words to choose from.
    """
    comments, code = prose.source_comments(name, source)
    patterns = (*prose.COUNTED.values(), prose.REPLACED)
    found = [
        f"{x.lineno}: {x.text}"
        for x in comments
        if prose.opens_with_pronoun(x.text) or any(each.search(prose.plain(x.text)) for each in patterns)
    ]
    names = dict.fromkeys(each for each in re.findall(r"[A-Za-z_]\w*", code) if not each.isupper())
    types = [Path(name).stem, *re.findall(r"\b(?:class|record|interface|enum|object|struct|type)\s+(\w+)", code)]
    found += [each for each in names if (LOCAL_WORDS - FLOOR) & set(parts(each))]
    return found + [each for each in types if words(each) or each in FORMER_TYPES]


def modules(*, tests: bool) -> list[str]:
    """Return the modules of the product, or those of tests and their support."""
    return [name for name in prose.files(".py") if prose.is_test(name) == tests]


def texts(*, tests: bool, package: str = "") -> list[prose.ProseText]:
    """Return the docstrings and comments of the product or of the tests, of all packages or of one."""
    return [text for name in modules(tests=tests) if name.startswith(package) for text in prose.texts(name)]


def openings(*, tests: bool, package: str = "") -> tuple[list[str], int]:
    """Return the docstrings that open with a pronoun, and the number of all docstrings."""
    docs = [text for text in texts(tests=tests, package=package) if text.kind != "comment"]
    found = [f"{x.path}:{x.lineno}: {x.text.splitlines()[0]}" for x in docs if prose.opens_with_pronoun(x.text)]
    return found, len(docs)


def test_docstrings_open_with_a_noun_phrase_or_an_imperative() -> None:
    found, count = openings(tests=False)
    assert len(found) <= MAX_OPENINGS * count, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_of_tests_open_with_a_noun_phrase_or_an_imperative(package: str) -> None:
    found, count = openings(tests=True, package=f"{package}/")
    assert len(found) <= MAX_OPENINGS * count, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("family", prose.COUNTED)
def test_counted_words_of_tests_stay_below_their_limit(family: str, package: str) -> None:
    items = texts(tests=True, package=f"{package}/")
    found = [f"{x.path}:{x.lineno}: {x.text}" for x in items if prose.COUNTED[family].search(prose.plain(x.text))]
    assert prose.per_thousand(items, prose.COUNTED[family]) <= MAX_COUNTED_PER_THOUSAND, "\n".join(found)


@pytest.mark.parametrize("family", prose.COUNTED)
def test_counted_words_of_each_package_stay_below_their_limit(family: str) -> None:
    groups: dict[str, list[prose.ProseText]] = {}
    for name in modules(tests=False):
        groups.setdefault(prose.package(name), []).extend(prose.texts(name))
    rates = {group: prose.per_thousand(items, prose.COUNTED[family]) for group, items in groups.items()}
    assert {group: round(rate, 2) for group, rate in rates.items() if rate > MAX_COUNTED_PER_THOUSAND} == {}


@pytest.mark.parametrize("tests", [False, True])
def test_docstrings_and_comments_have_no_replaced_word(*, tests: bool) -> None:
    found = {f"{x.path}:{x.lineno}": prose.replaced_words(x.text, x.path) for x in texts(tests=tests)}
    assert {place: words for place, words in found.items() if words} == {}


def test_pages_have_no_replaced_word() -> None:
    found: dict[str, list[str]] = {}
    for name in prose.files(".md"):
        for block in prose.paragraphs((ROOT / name).read_text()):
            words = [*prose.replaced_words(block, name), *prose.COUNTED["tell"].findall(block)]
            if words:
                found.setdefault(name, []).append(f"{words}: {block[:80]!r}")
    assert found == {}


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("A ticket waits in the room.", "log/a.py", ["ticket", "room"]),
        ("A Kerberos ticket.", "log/a.py", []),
        ("A ticket.", "ottla/client/gssapi_client.py", []),
        ("The life of a node, and its life cycle.", "log/a.py", ["life"]),
        ("Three nodes in turn; a turn; turns events into records.", "log/a.py", ["turn"]),
        ("`room` and ``news``.", "log/a.py", []),
    ],
)
def test_replaced_words_leaves_out_exact_terms_and_code(text: str, path: str, words: list[str]) -> None:
    assert prose.replaced_words(text, path) == words


def test_paragraphs_leaves_out_code_and_targets_of_links() -> None:
    page = "# A\n\n[a b](c.md#door) and `news`\n\n```sh\nroom\n```\n"
    assert [block.split() for block in prose.paragraphs(page)] == [["#", "A"], ["[a", "b", "and"], []]


def test_sources_in_other_languages_have_no_replaced_word() -> None:
    names = prose.files(*prose.OTHER_LANGUAGES)
    found = {name: replaced_in_source(name, (ROOT / name).read_text()) for name in names}
    assert names
    assert {name: flagged for name, flagged in found.items() if flagged} == {}


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("A.java", "/** Who ends a transaction. */\nclass A { }", ["1: Who ends a transaction."]),
        ("A.java", "class A {\n  /** Sent twice:\n   * nobody reads. */\n}", ["2: Sent twice: nobody reads."]),
        ("A.java", "class Door { int told; }", ["Door", "told", "Door"]),
        ("Shared.java", "class A { }", ["Shared"]),
        ("Said.java", "class A { }", ["Said"]),
        ("a.go", 'x := "// who" // door', ["1: door"]),
        ("a.rs", "let who_it_is = 1;", ["who_it_is"]),
        ("a.sh", "echo ${x#who}  # asked by nobody", ["who", "1: asked by nobody"]),
        ("a.mjs", "const s = 'who said' // a record", []),
    ],
)
def test_replaced_in_source_returns_comments_and_identifiers(name: str, source: str, found: list[str]) -> None:
    assert sorted(replaced_in_source(name, source)) == sorted(found)


def test_pages_have_short_sentences() -> None:
    long = {}
    for name in prose.files(".md"):
        lengths = prose.sentence_lengths((ROOT / name).read_text())
        if lengths and (average := sum(lengths) / len(lengths)) > MAX_WORDS_PER_SENTENCE:
            long[name] = round(average, 1)
    assert long == {}


def test_spelling_is_right() -> None:
    names = [name for name in prose.files(".py", ".md", *prose.OTHER_LANGUAGES) if "equivalent" not in name]
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words", str(Path(__file__).with_name("spelling.txt"))]
    done = subprocess.run([*command, *names], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "opens"),
    [("What a node keeps.", True), ("One connection.", True), ("Connection of a client.", False), ("``a``: b.", False)],
)
def test_opens_with_pronoun_returns_true_for_pronouns_only(text: str, opens: bool) -> None:
    assert prose.opens_with_pronoun(text) is opens


def test_docstrings_include_those_of_attributes() -> None:
    found = list(
        prose.docstrings("m.py", '"""M."""\nA = 1\n"""B."""\nclass C:\n    """D."""\n    x: int\n    """E."""\n')
    )
    assert sorted((x.kind, x.text) for x in found) == [
        ("attribute", "B."),
        ("attribute", "E."),
        ("class", "D."),
        ("module", "M."),
    ]


def test_comments_join_lines_that_follow_each_other() -> None:
    found = list(prose.comments("m.py", "# one\n# text\nx = 1  # noqa: E501\n\n# other\n"))
    assert [x.text for x in found] == ["one text", "other"]


def test_sentence_lengths_ignore_code_tables_and_headings() -> None:
    page = "# A heading of words\n\nTwo words. And three words.\n\n```\nmany words of code here\n```\n\n| a | b |\n"
    assert prose.sentence_lengths(page) == [2, 3]
