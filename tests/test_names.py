"""Names: public classes are unique, no name has a word of everyday language or a pronoun, test names are short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "wire",
    "log",
    "controller",
    "broker",
    "ottla",
    "sim",
    "compat_tests",
    "bench",
    "devtools",
    "spark_it",
    "tests",
)
PRODUCT = ("wire/", "log/", "controller/", "broker/", "ottla/", "sim/")
GENERIC = "asked told taken one it rows known found left way begin settle take say tell lay give"
"""Words without a meaning outside the function that uses them."""
GENERIC_PARAMETERS = frozenset(f"{GENERIC} at seen wanted made asking held back instead p".split()) - {"rows"}
"""Words that are not the name of a parameter of a public function, or of a field; rows of a table are exact."""
METAPHORS = (
    "door stranger house room wing floor ground bell twin line chore turn world news life fate peace swarm nobody"
)
FORMS = (
    "doors strangers houses rooms wings floors grounds bells twins lines chores turns worlds lives fates ways "
    "asks tells takes gives says begins settles lays settled laid given said begun"
)
WORDS = frozenset(f"{GENERIC} {METAPHORS} {FORMS}".split())
_SENTENCES = (
    "told tell tells asked asks said say says saying what who whom whose whoever heard hear hears nobody somebody"
)
_PRIVATE = "adjoin spend ticket making settle settles settled laid story stories strangers"
LOCAL_WORDS = (frozenset(METAPHORS.split()) | frozenset(f"{_SENTENCES} {_PRIVATE}".split())) - {"line", "turn"}
"""Words that no name of a parameter, a local variable or an attribute has; a line of text is exact."""
KERBEROS = re.compile(r"kerberos|gssapi|sasl|jaas|kdc")
"""Modules in which a ticket is one of Kerberos."""
EXEMPT = {
    "BeginEpoch": "Kafka's API BeginQuorumEpoch",
    "last_known_elr": "Kafka's lastKnownElr",
    "consumer_beside_strangers": "a key of the golden recording of answers",
    "parse_known_args": "a method of argparse",
    "RemoteResourceNotFoundError": "Kafka's RemoteResourceNotFoundException",
    "one_less": "a heading of the golden recording of tools",
    "LineMessageReader": "a class of Kafka's tools",
    "line_message_reader": "the module of LineMessageReader",
}
"""Names that keep such a word, with the reason. Kafka's API keys and error codes are upper case."""
_PRONOUNS = "who whoever what whatever nobody nobodys somebody anybody everybody"
SENTENCE_WORDS = frozenset(f"{_PRONOUNS} tell tells told say says said hear hears heard ask asks asked".split())
"""Words of sentences that the name of a test does not have: `test_<unit>_<condition>_<result>`."""
MAX_TEST_NAME_CHARS = 85
REPLACED = """
Absences Admin Admission Answered Applier Asked Asks Beaten Bound BrokerWatch Call Changes Chore Contacts Context
Counts Covered Decision Delta Directories Disturber Door Draft EpochChain Exchange FetchRequester Following Gate Gone
Good Ground GuardedConnection Hangups Heads Image IsrChanges Kind Known Lane LeaderEpochs LeaderLine Leading Leases
Ledger Letter Line Lines Listening Lives LookFirst Losses Make Making Markers Metering Mover Moves Mutations Numbers
OfShare OfStreams Overdue Parts Peers Place PointsWriter Preparing ProducerStates Promised Pushed Raft RaftNode
RecordWalk Refusal Refused Rehearsal Remote Replica Replicas Rows Said Seen Services Sessions Settle Settled Shared
Shares Sight Standing StartsFile Steps Stopwatch Storage Strangers Swarm Synced SyncedLog Throttle Ticket Turn Turns
Unpackings Unreachable Unread Verifier VoterHistory Waiting Wanted Whole Wire World Written
"""
"""Former class names, each of which stood for several things or for one that Kafka names otherwise."""

_FORMER_NAMES = """
admission areas aside asked asks beside brings by_time chance checkup complaints doomed doors doubt doubtful_end
ends_with_peer fate first_look give grown hand_in hangups hasten healing in_words is_alone is_leaving isr_changes lay
lay_open leader_line learning leases lies_in life lives look_first looked losses making many_names marking move_turns
names_made newborn news note_compaction noted noting on_doomed overdue own_voice paced patience planted promised
reckon record_walk refusals refusing rehearsal reign renewal say says scenes set_one_aside settle settled short_names
slowly sowing speaking spend stamp stopwatch story strangers survivor syncing take take_mark take_up taken takes tell
telling telling_bytes tells told twin_epoch twins unpacking unpackings weigh while_there widening wire_form
"""
REPLACED_NAMES = frozenset(_FORMER_NAMES.split())
"""Former names of modules, functions, methods, fields and constants, without leading underscores and in lower case."""


def parts(name: str) -> list[str]:
    """Return the words that a name in camel case or with underscores consists of, in lower case."""
    return [each.lower() for each in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+", name)]


def words(name: str) -> list[str]:
    """Return the words of a name that no name may have."""
    return [each for each in parts(name) if each in WORDS]


@cache
def sources() -> dict[str, ast.Module]:
    """Return the trees of all modules by path; message classes have Kafka's names and are left out."""
    out = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(("wire/messages/", *(f"ottla/{each}/" for each in PACKAGES[:4]))):
                out[name] = ast.parse(path.read_text())
    return out


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module or class, also those under a condition."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from statements([*node.body, *node.orelse])


def classes(tree: ast.Module) -> list[ast.ClassDef]:
    """Return the public classes of a module."""
    return [each for each in statements(tree.body) if isinstance(each, ast.ClassDef) and not each.name.startswith("_")]


def visible(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module shows: classes, functions, methods, fields."""
    for node in statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            for member in statements(node.body):
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield member.name
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    yield member.target.id


def flagged(tree: ast.Module) -> list[str]:
    """Return the public names of a module that have such a word, or are a former class name."""
    shown = [name for name in visible(tree) if not name.startswith("_") and not name.isupper() and name not in EXEMPT]
    return [name for name in shown if words(name) or name in REPLACED.split()]


def defined_names(path: str, tree: ast.Module) -> Iterator[str]:
    """Yield the names of a module, its functions wherever they are defined, its constants and the fields of classes."""
    yield Path(path).stem
    bodies: list[list[ast.stmt]] = [tree.body]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            bodies.append(node.body)
    for node in [node for body in bodies for node in statements(body)]:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


def generic_parameters(tree: ast.Module) -> list[str]:
    """Return the parameters of public functions, of methods and of constructors, and the fields, with generic names."""
    found = []
    for node in [
        *statements(tree.body),
        *(x for each in ast.walk(tree) if isinstance(each, ast.ClassDef) for x in each.body),
    ]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            both = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            if not node.name.startswith("_") or node.name == "__init__":
                found += [f"{node.name}({each.arg})" for each in both if each.arg in GENERIC_PARAMETERS]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found += [node.target.id] * (node.target.id in GENERIC_PARAMETERS)
    return found


def former_names(path: str, tree: ast.Module) -> list[str]:
    """Return the names of `defined_names` that are one of `REPLACED_NAMES`, in any case, leading underscores apart."""
    return [name for name in defined_names(path, tree) if name.strip("_").lower() in REPLACED_NAMES]


def local_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of parameters, variables, captured values and assigned attributes, wherever they are defined."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name


def flagged_locals(path: str, tree: ast.Module) -> list[str]:
    """Return the names of `local_names` that have a word of `LOCAL_WORDS`. Constants are left out."""
    allowed = {"ticket"} if KERBEROS.search(path) else set()
    names = dict.fromkeys(name for name in local_names(tree) if not name.isupper())
    return [name for name in names if LOCAL_WORDS & set(name.lower().split("_")) - allowed]


def names_of_tests(tree: ast.Module) -> list[str]:
    """Return the names of the tests of a module."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name for node in functions if node.name.startswith("test_")]


def is_sentence(name: str) -> bool:
    """Return True for a name of a test that has a pronoun, or is longer than the limit."""
    return bool(SENTENCE_WORDS & set(name.split("_"))) or len(name) > MAX_TEST_NAME_CHARS


def test_public_class_names_are_defined_once() -> None:
    places: dict[str, list[str]] = {}
    for path, tree in sources().items():
        for each in classes(tree):
            places.setdefault(each.name, []).append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_module_names_have_no_replaced_word() -> None:
    inner = {path: Path(path).with_suffix("").parts[1:] for path in sources()}  # spark_it: Spark's integration tests
    assert [path for path, parts in inner.items() if any(words(each) for each in parts if each not in EXEMPT)] == []


def test_public_names_have_no_replaced_word() -> None:
    found = {path: flagged(tree) for path, tree in sources().items() if not Path(path).stem.startswith("test_")}
    assert {path: names for path, names in found.items() if names} == {}


def test_local_names_have_no_replaced_word() -> None:
    found = {path: flagged_locals(path, tree) for path, tree in sources().items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_no_name_is_one_that_was_replaced() -> None:
    found = {path: former_names(path, tree) for path, tree in sources().items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_public_parameters_and_fields_of_the_product_have_no_generic_name() -> None:
    paths = [path for path in sources() if path.startswith(PRODUCT) and "/tests/" not in path]
    found = {path: generic_parameters(sources()[path]) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}


def test_generic_parameters_returns_whole_names_of_public_functions() -> None:
    source = "def f(at, *, held_ms): ...\nclass A:\n    seen: int\n    def __init__(self, made): ...\ndef _f(at): ..."
    assert generic_parameters(ast.parse(source)) == ["f(at)", "seen", "__init__(made)"]


@pytest.mark.parametrize(
    ("path", "source", "names"),
    [
        ("log/doors.py", "", ["doors"]),
        ("log/test_log.py", "def test_it():\n    def slowly(): ...", ["slowly"]),
        (
            "log/log.py",
            "class Log:\n    chance: float\n    def _settle(self): ...\n_LIVES = 3",
            ["_settle", "_LIVES", "chance"],
        ),
        ("log/log.py", "def f():\n    complaints = 1\nTAKEN_BYTES = 1", []),
    ],
)
def test_former_names_returns_replaced_names(path: str, source: str, names: list[str]) -> None:
    assert sorted(former_names(path, ast.parse(source))) == sorted(names)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def connect(who, port, *, door=None): ...", ["who", "door"]),
        ("async def send(_told, at): ...", ["_told"]),
        ("told = asked_at = whole = 1", ["told", "asked_at"]),
        ("self.said, tolerance = 1, 2", ["said"]),
        ("for what, line in rows: ...", ["what"]),
        ("match x:\n    case [one, *story]: ...", ["story"]),
        ("lambda ticket: ticket", ["ticket"]),
        ("WHO = said_of(x, told=3)", []),
    ],
)
def test_flagged_locals_returns_names_with_a_replaced_word(source: str, names: list[str]) -> None:
    assert flagged_locals("x.py", ast.parse(source)) == names


def test_flagged_locals_allows_tickets_of_kerberos() -> None:
    assert flagged_locals("ottla/env/kerberos.py", ast.parse("ticket = 1")) == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class Ground: ...", ["Ground"]),
        ("class Session:\n    def rows_of(self): ...", ["rows_of"]),
        ("class Session:\n    told: int = 0", ["told"]),
        ("def take_up(): ...", ["take_up"]),
        ("if True:\n    def by_way(): ...", ["by_way"]),
        ("class Replicas: ...", ["Replicas"]),
        ("class BeginEpoch: ...\nclass Outline: ...\ndef _take(): ...\nGROUP_ID_NOT_FOUND = 1", []),
    ],
)
def test_flagged_returns_names_with_a_replaced_word(source: str, names: list[str]) -> None:
    assert flagged(ast.parse(source)) == names


def test_names_of_tests_are_short_and_have_no_pronoun() -> None:
    found = {path: [name for name in names_of_tests(tree) if is_sentence(name)] for path, tree in sources().items()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_fetch_of_deleted_topic_returns_error", False),
        ("test_who_fetches_a_deleted_topic_is_told", True),
        ("test_" + "x" * 80, False),
        ("test_" + "x" * 81, True),
    ],
)
def test_is_sentence_returns_true_for_pronouns_and_long_names(name: str, expected: bool) -> None:
    assert is_sentence(name) is expected
