"""Recipes of `docs/contributing/recipes.md`, followed: each key, metric, record and version has all its steps."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from compat_tests.clients.client_matrix import CLIENTS, MatrixClient
from devtools.docs.config_pages import broker_settings, topic_of, topic_settings
from devtools.docs.config_topics import TOPIC_OF_PREFIX
from devtools.docs.example_messages import example_message
from devtools.docs.record_pages import example_version
from ottla.broker.api_spec import ApiSpec
from ottla.broker.config.key_docs import (
    AUTHORIZER_DOCS,
    BROKER_DOCS,
    NO_EFFECT,
    OTTLA_DOCS,
    QUOTA_DOCS,
    TOPIC_DOCS,
    WITHOUT_EFFECT,
)
from ottla.broker.dispatch.api_registry import API_SPECS
from ottla.broker.groups.records import modern_record_types
from ottla.broker.groups.replay import REPLAYS
from ottla.broker.observability.metric_families import FAMILIES
from ottla.broker.quotas.client_quotas import QuotaManagers
from ottla.broker.tests.connection_fixture import ConnectionEnv
from ottla.controller.config import config_keys
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import (
    AUTHORIZER_KEYS,
    GROUP_KEYS,
    OWN_BROKER_KEYS,
    OWN_TOPIC_KEYS,
    TOPIC_KEYS,
    synonyms_of,
)
from ottla.controller.config.internal_broker_config_keys import QUOTA_KEYS
from ottla.controller.control.client_quotas import CONNECTIONS, CONTROLLER_MUTATION, FETCH, PRODUCE, REQUEST
from ottla.controller.metadata.image import MetadataImage, image_records
from ottla.controller.metadata.image_builder import _REPLAY, ImageBuilder
from ottla.controller.metadata.record_serde import _BY_KEY
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import request_class, response_class
from ottla.wire.codec.schema import Message
from ottla.wire.messages import metadata_records
from sim.faults.fault_plan import BROKEN_DISK, CLUSTER_FAULT_KINDS, FAULT_KINDS, STOP_KINDS, FaultInjector

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
RECIPES = (ROOT / "docs" / "contributing" / "recipes.md").read_text()
GENERATE = "Generate the reference page: python -m devtools.docs.reference"
TABLES = frozenset(
    {
        "broker_config_keys.py",
        "config_keys.py",
        "internal_broker_config_keys.py",
        "key_docs.py",
        "broker_key_docs.py",
        "metric_families.py",
    }
)
"""Modules that define keys and metrics and do not use them."""
MIN_FIXED_CHARS = 8
"""Characters of an f-string that are enough to recognise the names it builds."""


def steps_of(title: str) -> list[str]:
    """Return the names of the steps of a recipe, which are bold on the page."""
    section = RECIPES.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. \*\*(.+?)\*\*", section, re.M)


# ---------------------------------------------------------------- names in the code


class CodeNames(NamedTuple):
    """Strings of product code, patterns of its f-strings, and names that it imports."""

    strings: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    imported: frozenset[str]

    def contains(self, name: str) -> bool:
        """Return True if the code has the string, builds it with an f-string, or joins it of two strings."""
        if name in self.strings or any(pattern.fullmatch(name) for pattern in self.patterns):
            return True
        joints = [match.start() for match in re.finditer(r"[._]", name)]
        return any(
            {name[:at], name[: at + 1]} & self.strings and {name[at:], name[at + 1 :]} & self.strings for at in joints
        )


@cache
def product_names() -> CodeNames:
    """Return the strings of the product's modules, without tests and the tables of keys and metrics."""
    strings, patterns, imported = set[str](), set[str](), set[str]()
    for package in ("broker", "controller", "log", "ottla"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name in TABLES or "tests" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    strings.add(node.value)
                elif isinstance(node, ast.ImportFrom):
                    imported |= {alias.name for alias in node.names}
                elif isinstance(node, ast.JoinedStr):
                    patterns.add(pattern_of(node))
    return CodeNames(frozenset(strings), tuple(re.compile(each) for each in patterns if each), frozenset(imported))


def pattern_of(node: ast.JoinedStr) -> str:
    """Return a pattern of the strings that an f-string builds; empty if it has too few fixed characters."""
    fixed = [str(part.value) if isinstance(part, ast.Constant) else "" for part in node.values]
    if len("".join(fixed)) < MIN_FIXED_CHARS or re.search(r"[^\w.]", "".join(fixed)):
        return ""
    return "".join(re.escape(text) or r"[\w.]+" for text in fixed)


def constant_of(name: str) -> str:
    """Return the name of the constant in the module of own keys that has the value; empty if there is none."""
    return next((key for key, value in vars(config_keys).items() if value == name and key.isupper()), "")


# ---------------------------------------------------------------- configuration keys


def config_key_steps(name: str, docs: Mapping[str, str], pages: Mapping[str, str], names: CodeNames) -> Iterator[str]:
    """Yield the steps that a broker or topic key lacks.

    Args:
        name: The key.
        docs: Descriptions by key.
        pages: Texts of the reference pages by topic.
        names: Names in the code that may read the key.
    """
    of_topic = name in TOPIC_KEYS or name in OWN_TOPIC_KEYS
    known = (*BROKER_KEYS, *OWN_BROKER_KEYS, *AUTHORIZER_KEYS, *QUOTA_KEYS, *TOPIC_KEYS, *OWN_TOPIC_KEYS)
    if name not in known:
        yield "Define the key: controller/config/config_keys.py or broker_config_keys.py"
        return
    text = docs.get(name, "")
    if not text and (of_topic or not any(name.startswith(prefix) for prefix, _ in WITHOUT_EFFECT)):
        yield "Describe its effect: broker/config/key_docs.py or broker_key_docs.py"
    if not of_topic and not any(name.startswith(prefix) for prefix in TOPIC_OF_PREFIX):
        yield "Choose its page: TOPIC_OF_PREFIX in devtools/docs/config_topics.py"
        return
    uses = {name, synonyms_of(name)[0][0], *(key.name for key in TOPIC_KEYS.values() if key.broker_key == name)}
    has_effect = text and not text.startswith(NO_EFFECT)
    if has_effect and not any(map(names.contains, uses)) and constant_of(name) not in names.imported:
        yield "Read the value: broker/config/node_config.py"
    if f"\n### {name}\n" not in (pages["topics"] if of_topic else pages[topic_of(name)]):
        yield GENERATE


ALL_DOCS = {**BROKER_DOCS, **AUTHORIZER_DOCS, **TOPIC_DOCS, **OTTLA_DOCS, **QUOTA_DOCS}
CONFIG_PAGES = {path.stem: path.read_text() for path in (REFERENCE / "config").glob("*.md")}
NOTHING = CodeNames(frozenset(), (), frozenset())


def test_every_configuration_key_has_all_steps_of_the_recipe() -> None:
    names = [setting.name for setting in (*broker_settings(), *topic_settings())]
    found = {name: list(config_key_steps(name, ALL_DOCS, CONFIG_PAGES, product_names())) for name in names}
    assert {name: steps for name, steps in found.items() if steps} == {}


@pytest.mark.parametrize(
    ("name", "docs", "pages", "names", "step"),
    [
        ("ottla.unknown", ALL_DOCS, CONFIG_PAGES, product_names(), "Define the key"),
        ("broker.rack", {}, CONFIG_PAGES, product_names(), "Describe its effect"),
        ("broker.rack", ALL_DOCS, CONFIG_PAGES, NOTHING, "Read the value"),
        ("ottla.audit.log", ALL_DOCS, CONFIG_PAGES, NOTHING, "Read the value"),
        ("broker.rack", ALL_DOCS, {"node": ""}, product_names(), "Generate the reference page"),
    ],
)
def test_missing_step_of_a_configuration_key_is_named(
    name: str, docs: Mapping[str, str], pages: Mapping[str, str], names: CodeNames, step: str
) -> None:
    assert_step("Add a configuration key", config_key_steps(name, docs, pages, names), step)


def test_configuration_key_without_prefix_of_a_page_lacks_that_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TOPIC_OF_PREFIX, "broker.")
    steps = config_key_steps("broker.rack", ALL_DOCS, CONFIG_PAGES, product_names())
    assert_step("Add a configuration key", steps, "Choose its page")


def test_group_keys_follow_a_described_broker_key_or_have_a_text() -> None:
    assert {name for name in GROUP_KEYS if f"\n### {name}\n" not in "".join(CONFIG_PAGES.values())} == set()


# ---------------------------------------------------------------- metrics


def metric_steps(name: str, page: str, names: CodeNames) -> Iterator[str]:
    """Yield the steps that a metric family lacks."""
    if name not in FAMILIES:
        yield "Declare the family: broker/observability/metric_families.py"
        return
    if not names.contains(name):
        yield "Add its samples: broker/observability/"
    if f"| `{name}` |" not in page:
        yield GENERATE


METRICS_PAGE = (REFERENCE / "metrics.md").read_text()


def test_every_metric_has_all_steps_of_the_recipe() -> None:
    found = {name: list(metric_steps(name, METRICS_PAGE, product_names())) for name in FAMILIES}
    assert {name: steps for name, steps in found.items() if steps} == {}


@pytest.mark.parametrize(
    ("name", "page", "names", "step"),
    [
        ("ottla_unknown", METRICS_PAGE, product_names(), "Declare the family"),
        ("ottla_groups", METRICS_PAGE, NOTHING, "Add its samples"),
        ("ottla_groups", "", product_names(), "Generate the reference page"),
    ],
)
def test_missing_step_of_a_metric_is_named(name: str, page: str, names: CodeNames, step: str) -> None:
    assert_step("Add a metric", metric_steps(name, page, names), step)


# ---------------------------------------------------------------- stored records

_NOT_IN_IMAGES = re.compile(
    r"(?:Begin|End|Abort)TransactionRecord|(?:Fence|Unfence)BrokerRecord|NoOpRecord|ZkMigrationStateRecord"
)
"""Metadata records that change no image: marks of metadata transactions, and records that KRaft 4 does not write."""
_CHANGE = re.compile(r"Change|^Remove|^Unregister|^Clear|^PartitionRecord$")
"""Names of records that change or remove an object; a PartitionRecord needs the record of its topic."""


def metadata_record_steps(
    cls: type[Message], replays: Iterable[type[Message]], records: Callable[[MetadataImage], Iterable[Message]]
) -> Iterator[str]:
    """Yield the steps that a metadata record lacks.

    Args:
        cls: Class of the record.
        replays: Record classes that the image builder replays.
        records: Function that returns the records of a snapshot.
    """
    if _BY_KEY.get(cls.SPEC.key if hasattr(cls, "SPEC") else -1) is not cls:
        yield "Declare the record: wire/messages/metadata_records.py"
        return
    if cls not in replays and not _NOT_IN_IMAGES.fullmatch(cls.__name__):
        yield "Replay the record: _REPLAY in controller/metadata/image_builder.py"
    elif cls in replays and not _CHANGE.search(cls.__name__):
        builder = ImageBuilder(MetadataImage())
        builder.replay(example_message(cls, example_version(cls)))
        if cls not in map(type, records(run_to_end(builder.image(1, 1)))):
            yield "Write it to snapshots: image_records_yielding in controller/metadata/image.py"
    if f"\n## {cls.__name__}\n" not in (REFERENCE / "records" / "metadata.md").read_text():
        yield GENERATE


def test_every_metadata_record_has_all_steps_of_the_recipe() -> None:
    found = {cls.__name__: list(metadata_record_steps(cls, _REPLAY, image_records)) for cls in _BY_KEY.values()}
    assert {name: steps for name, steps in found.items() if steps} == {}


@pytest.mark.parametrize(
    ("cls", "replays", "records", "step"),
    [
        (Message, _REPLAY, image_records, "Declare the record"),
        (metadata_records.TopicRecord, (), image_records, "Replay the record"),
        (metadata_records.TopicRecord, _REPLAY, lambda image: (), "Write it to snapshots"),
    ],
)
def test_missing_step_of_a_metadata_record_is_named(
    cls: type[Message],
    replays: Iterable[type[Message]],
    records: Callable[[MetadataImage], Iterable[Message]],
    step: str,
) -> None:
    assert_step("Add a metadata record", metadata_record_steps(cls, replays, records), step)


def group_record_steps(
    key: type[Message], types: Mapping[int, tuple[type[Message], type[Message]]], replays: Iterable[type[Message]]
) -> Iterator[str]:
    """Yield the steps that a record of consumer, share or streams groups lacks; ``key`` is the class of its key."""
    kind = key.__module__.rpartition(".")[2].removesuffix("_group_records")
    if types.get(key.SPEC.key, ())[:1] != (key,):
        yield "Register the record type: modern_record_types in broker/groups/records.py"
    if key not in replays:
        yield "Replay the record: REPLAYS in broker/groups/replay.py"
    path = f"broker/groups/{kind}/records.py"
    if key.__name__ not in (ROOT / path).read_text():
        yield f"Build the record: {path}"
    if f"\n## {key.__name__}\n" not in (REFERENCE / "records" / f"{kind}-groups.md").read_text():
        yield GENERATE


GROUP_RECORD_KEYS = [key for key, _ in modern_record_types().values()]


def test_every_group_record_has_all_steps_of_the_recipe() -> None:
    found = {key.__name__: list(group_record_steps(key, modern_record_types(), REPLAYS)) for key in GROUP_RECORD_KEYS}
    assert {name: steps for name, steps in found.items() if steps} == {}


@pytest.mark.parametrize(
    ("types", "replays", "step"),
    [({}, REPLAYS, "Register the record type"), (modern_record_types(), (), "Replay the record")],
)
def test_missing_step_of_a_group_record_is_named(
    types: Mapping[int, tuple[type[Message], type[Message]]], replays: Iterable[type[Message]], step: str
) -> None:
    assert_step("Add a group record", group_record_steps(GROUP_RECORD_KEYS[0], types, replays), step)


# ---------------------------------------------------------------- versions, quotas, faults, clients


def version_steps(spec: ApiSpec) -> Iterator[str]:
    """Yield the steps that the newest version in the row of an API lacks."""
    version, name = spec.max_version, spec.key.name.lower()
    if not all(cls(spec.key).SPEC.versions.high >= version for cls in (request_class, response_class)):
        yield f"Declare the version: wire/messages/{name}.py"
    page = (REFERENCE / "apis" / f"{spec.key.api_name}.md").read_text()
    if not re.search(rf"^- \*\*Versions\*\*: (?:\d+ to )?{version}\b", page, re.M):
        yield GENERATE


BROKER_SPECS = [spec for spec in API_SPECS if spec.broker is not None]


def test_every_newest_version_has_all_steps_of_the_recipe() -> None:
    found = {spec.key.name: list(version_steps(spec)) for spec in BROKER_SPECS}
    assert {name: steps for name, steps in found.items() if steps} == {}


def test_missing_step_of_a_version_is_named() -> None:
    spec = BROKER_SPECS[0]
    steps = list(version_steps(spec._replace(max_version=spec.max_version + 50)))
    assert [step.partition(":")[0] for step in steps] == ["Declare the version", "Generate the reference page"]
    assert set(steps_of("Add a version of an API")) > {step.partition(":")[0] for step in steps}


QUOTA_TYPES = (PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION, CONNECTIONS)


@pytest.mark.parametrize("key", QUOTA_TYPES)
def test_quota_is_described_to_operators(key: str) -> None:
    assert key in (REFERENCE / "cli.md").read_text()
    assert f"`{key}`" in CONFIG_PAGES["quotas"]
    assert f"`{key}`" in (REFERENCE / "apis" / "DescribeClientQuotas.md").read_text()


def test_quotas_of_clients_have_a_manager() -> None:
    managers = QuotaManagers(ConnectionEnv())  # type: ignore[arg-type]
    assert {*managers._managers_by_key, CONTROLLER_MUTATION, CONNECTIONS} == set(QUOTA_TYPES)


@pytest.mark.parametrize("kind", [*FAULT_KINDS, *CLUSTER_FAULT_KINDS])
def test_fault_of_the_simulator_is_injected(kind: str) -> None:
    assert callable(getattr(FaultInjector, f"_{kind}", None)), steps_of("Add a fault to the simulator")[1]
    assert set(BROKEN_DISK) < set(STOP_KINDS)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_client_of_the_matrix_has_a_row_in_the_documentation(client: MatrixClient) -> None:
    assert f"| {client.name} | {client.version} |" in (REFERENCE / "clients.md").read_text()


def test_pipeline_has_a_module_and_a_page() -> None:
    folder, page = ROOT / "spark_it" / "pipelines", (ROOT / "docs" / "how-to" / "pipelines.md").read_text()
    names = re.findall(r'"([\w-]+)"', (folder / "pipeline.py").read_text().partition("NAMES = (")[2].partition(")")[0])
    assert names
    modules = {path.stem.replace("_", "-") for path in folder.glob("*.py")}
    assert [x for x in names if x not in modules or f"(pipelines/{x}.md)" not in page] == []


# ---------------------------------------------------------------- the page


def assert_step(recipe: str, steps: Iterable[str], step: str) -> None:
    """Check that exactly one step is missing, and that the recipe has it."""
    assert [each.partition(":")[0] for each in steps] == [step]
    assert step in steps_of(recipe)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:[\w-]+/)+[\w.-]*)`", RECIPES))))
def test_path_in_a_recipe_exists(path: str) -> None:
    assert (ROOT / path).exists()
