"""Measures of the prose of the project: pronouns that open docstrings, and rates of words that the rules replace.

`python -m devtools.prose [PATH...]` prints the measures of each package, `--show NAME` the places of one measure.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_WORDS = (
    "what whatever who whom whose whoever which whichever whether how when where why while one it its "
    "they their them that this these those he she his her we us our you your i there here some somebody "
    "someone something any anybody anything everybody everyone everything nobody nothing another"
)
OPENINGS = frozenset(_WORDS.split())
"""First words of a docstring that name no thing: pronouns, interrogatives and their like."""
COUNTED = {
    "who": re.compile(r"\b(?:who|whom|whose|whoever|whatever)\b", re.IGNORECASE),
    "nobody": re.compile(r"\b(?:no|some|every|any)body\b|\bnothing\b", re.IGNORECASE),
    "tell": re.compile(r"\b(?:tell|tells|told|telling|say|says|said|saying|hear|hears|heard|hearing)\b", re.IGNORECASE),
}
"""Families of words with a limit per 1,000 words."""
REPLACED = re.compile(
    r"\b(?:aside|bells?|chores?|doors?|fates?|floors?|grounds?|houses?|news|noted|peace|rooms?|strangers?|swarms?|twins?"
    r"|wings?|worlds?|walks?|story|stories|tickets?|(?:life|lives)(?! cycle)"
    r"|(?<!in )turns?(?!\s[^.,;]{0,60}?\b(?:into|on|off|out)\b))\b",
    re.IGNORECASE,
)
"""Words of everyday language for technical things, and terms that others have replaced.

Exact are a life cycle, to turn something into something else, on or off, and to do things in turn.
"""
KERBEROS = re.compile(r"kerberos|kdc|keytab|gssapi", re.IGNORECASE)
"""Words of a text in which a ticket is one of Kerberos."""
CODE = re.compile(r"`+[^`]*`+|https?://\S+|\"[^\"]*\"")
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")


@dataclass(frozen=True, slots=True)
class ProseText:
    """A docstring or a comment."""

    path: str
    lineno: int
    kind: str
    """`module`, `class`, `function`, `attribute` or `comment`."""
    text: str


def _attributes(body: list[ast.stmt]) -> Iterator[ast.Constant]:
    """Yield the strings that directly follow an assignment in a module or class, which describe it."""
    for before, node in pairwise(body):
        if (
            isinstance(before, ast.Assign | ast.AnnAssign)
            and isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value


def docstrings(path: str, source: str) -> Iterator[ProseText]:
    """Yield the docstrings of a module, those of attributes among them."""
    kinds = {ast.Module: "module", ast.ClassDef: "class", ast.FunctionDef: "function", ast.AsyncFunctionDef: "function"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                first = node.body[0]
                yield ProseText(path, first.lineno, kinds[type(node)], text)
            if isinstance(node, ast.Module | ast.ClassDef):
                for each in _attributes(node.body):
                    yield ProseText(path, each.lineno, "attribute", str(each.value))


NOTES = re.compile(r"#\s*(?:noqa|type:|pragma|fmt:|ruff:|mypy:|!|nosec)")


def comments(path: str, source: str) -> Iterator[ProseText]:
    """Yield the comments of a module but directives (noqa); comments on lines that follow each other are one text."""
    start, last, words = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or NOTES.match(token.string):
            continue
        if words and token.start[0] != last + 1:
            yield ProseText(path, start, "comment", " ".join(words))
            words = []
        if not words:
            start = token.start[0]
        last = token.start[0]
        words.append(token.string.lstrip("#: ").strip())
    if words:
        yield ProseText(path, start, "comment", " ".join(words))


OTHER_LANGUAGES = (".java", ".go", ".rs", ".mjs", ".cjs", ".js", ".ts", ".scala", ".c", ".sh")
"""Suffixes of source files in other languages than Python."""
_STRINGS = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`[^`]*`"
_C_TOKEN = re.compile(rf"(?P<string>{_STRINGS})|(?P<comment>//[^\n]*|/\*.*?\*/)", re.DOTALL)
_SHELL_TOKEN = re.compile(rf"(?P<string>{_STRINGS})|(?P<comment>(?<!\S)#[^\n]*)")


def source_comments(path: str, source: str) -> tuple[list[ProseText], str]:
    """Return the comments of a source file in one of `OTHER_LANGUAGES`, and its code without them and without strings.

    Each comment is a text of its own. In Java and its like those of classes and methods are comments, too.
    """
    pattern = _SHELL_TOKEN if path.endswith(".sh") else _C_TOKEN
    found = []
    for token in pattern.finditer(source):
        if token["comment"]:
            text = " ".join(part.strip("/*# \t") for part in token["comment"].splitlines())
            found.append(ProseText(path, source.count("\n", 0, token.start()) + 1, "comment", text.strip()))
    return found, pattern.sub(" ", source)


def files(*suffixes: str) -> list[str]:
    """Return the paths of the project's files that end in one of `suffixes`, sorted, relative to its root.

    Files that git ignores are left out.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted({name for name in listed if name.endswith(suffixes) and (ROOT / name).is_file()})


@cache
def texts(name: str) -> tuple[ProseText, ...]:
    """Return the docstrings and comments of the module at path `name`, relative to the root; cached."""
    source = (ROOT / name).read_text()
    return (*docstrings(name, source), *comments(name, source))


def is_test(name: str) -> bool:
    """Return True for a module of tests or their support, such as all of ``spark_it``."""
    return "/tests/" in name or name.startswith(("tests/", "compat_tests/", "spark_it/", "conftest"))


def opens_with_pronoun(text: str) -> bool:
    """Return True if the first word of a docstring is one of `OPENINGS`, in any case."""
    words = WORD.findall(text[:200])
    return bool(words) and text[:1].isalpha() and words[0].lower() in OPENINGS


@cache
def plain(text: str) -> str:
    """Return a text without quoted code, addresses and quotations."""
    return CODE.sub(" ", text)


def replaced_words(text: str, path: str = "") -> list[str]:
    """Return the words of `REPLACED` in a text of the file ``path``; a ticket of Kerberos is exact."""
    found = REPLACED.findall(plain(text))
    if KERBEROS.search(text) or KERBEROS.search(path):
        found = [word for word in found if not word.lower().startswith("ticket")]
    return found


def paragraphs(page: str) -> Iterator[str]:
    """Yield the blocks of a Markdown page without code, comments and the targets of links."""
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", page, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n", text):
        yield re.sub(r"`[^`]*`|\]\([^)]*\)|<[^>]*>", " ", block)


def per_thousand(items: Iterable[ProseText], pattern: re.Pattern[str]) -> float:
    """Return the matches of a pattern per 1,000 words of prose."""
    words = found = 0
    for each in items:
        prose = plain(each.text)
        words += len(WORD.findall(prose))
        found += len(pattern.findall(prose))
    return 1000 * found / max(words, 1)


def sentence_lengths(page: str) -> list[int]:
    """Return the number of words of each sentence of a Markdown page, without code, tables and headings.

    A colon or semicolon ends a sentence, too.
    """
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", page, flags=re.DOTALL | re.MULTILINE)
    lengths = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+>|#]|\d+\.) ?)", text):
        if block.lstrip().startswith(("#", "|")):
            continue
        prose = re.sub(r"\]\([^)]*\)|[`*_\[\]]", "", block)
        lengths += [len(words) for words in map(WORD.findall, re.split(r"[.!?:;](?:\s|$)", prose)) if words]
    return lengths


def package(name: str) -> str:
    """Return the group in which the module at a path is counted, such as ``broker``, ``ottla/cli`` or ``tests``."""
    if is_test(name):
        return "compat_tests" if name.startswith("compat_tests") else "tests"
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "ottla" else parts[0]


def _counts(family: str, text: ProseText) -> bool:
    return COUNTED[family].search(plain(text.text)) is not None


def main() -> None:
    """Print the measures of each package, or the places of one measure with ``--show``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="*", default=[""])
    parser.add_argument("--show", choices=["pronoun", "replaced", *COUNTED])
    options = parser.parse_args()
    names = [name for name in files(".py") if name.startswith(tuple(options.paths))]
    if options.show:
        for name in names:
            for each in texts(name):
                if options.show == "pronoun":
                    if each.kind != "comment" and opens_with_pronoun(each.text):
                        print(f"{name}:{each.lineno}: {each.text.splitlines()[0]}")
                elif replaced_words(each.text, name) if options.show == "replaced" else _counts(options.show, each):
                    print(f"{name}:{each.lineno}: {each.text}")
        return
    groups: dict[str, list[ProseText]] = {}
    for name in names:
        groups.setdefault(package(name), []).extend(texts(name))
    print(f"{'package':28}{'docs':>7}{'pronoun':>9}{'words':>9}" + "".join(f"{key:>9}" for key in COUNTED))
    for key, items in sorted(groups.items()):
        docs = [each for each in items if each.kind != "comment"]
        openings = sum(opens_with_pronoun(each.text) for each in docs)
        words = sum(len(WORD.findall(plain(each.text))) for each in items)
        rates = "".join(f"{per_thousand(items, pattern):9.2f}" for pattern in COUNTED.values())
        print(f"{key:28}{len(docs):7}{openings:9}{words:9}{rates}")


if __name__ == "__main__":
    main()
