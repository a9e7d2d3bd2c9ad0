"""Recipe of `docs/how-to/add-an-api.md`, followed: its API is added and called, and every API has all its steps."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from devtools.docs.reference import api_row
from ottla.broker.api_spec import ApiSpec, QuotaKind
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch import api_registry
from ottla.broker.dispatch.api_registry import API_SPECS, BROKER_APIS
from ottla.broker.dispatch.dispatcher import Dispatcher, load_handler
from ottla.broker.network.connection import Connection
from ottla.broker.quotas.client_quotas import QuotaManagers
from ottla.broker.security.authz.authorizer import Authorizer, acl_from_record
from ottla.broker.services import QuotaHolder
from ottla.broker.tests.connection_fixture import ClientStream, ConnectionEnv, frame, in_virtual_time
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.controller.metadata.image import MetadataImage, TopicImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey, request_class, request_spec, response_class, response_header_version
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import metadata_records
from ottla.wire.messages.api_versions import ApiVersionsRequest

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "docs" / "how-to" / "add-an-api.md"
PAGE = ROOT / "docs" / "reference" / "apis.md"
KEY_FILE, ROW_FILE = "wire/api_keys.py", "broker/dispatch/api_registry.py"
MESSAGES, HANDLER = "wire/messages/count_topics.py", "broker/handlers/admin/count_topics.py"
NAME = "count_topics"


def missing_steps(name: str, specs: tuple[ApiSpec, ...], page: str) -> Iterator[str]:
    """Yield the steps of the recipe that an API lacks; ``name`` is that of its message module."""
    key = ApiKey.__members__.get(name.upper())
    if key is None:
        yield f"1. Declare the messages: ApiKey.{name.upper()} in {KEY_FILE}"
        return
    classes = f"{key.api_name}Request", f"{key.api_name}Response"
    try:
        module = import_module(f"ottla.wire.messages.{name}")
        schema = [getattr(module, each).SPEC for each in classes]
    except (ImportError, AttributeError):
        yield f"1. Declare the messages: {' and '.join(classes)} in wire/messages/{name}.py"
        return
    if {spec.key for spec in schema} != {key}:
        yield f"1. Declare the messages: the key of ApiKey.{key.name} in wire/messages/{name}.py"
    spec = next((x for x in specs if x.key == key), None)
    if spec is None:
        yield f"3. Add the row: {key.name} in {ROW_FILE}"
        return
    for endpoint in (spec.broker, spec.controller):
        if endpoint is not None and not has_handler(endpoint.handler_module):
            yield f"2. Write the handler: broker/handlers/{endpoint.handler_module.replace('.', '/')}.py"
    if api_row(spec) not in page.splitlines():
        yield "4. Generate the reference page: python -m devtools.docs.reference"


def has_handler(module: str) -> bool:
    try:
        return callable(load_handler(module))
    except (ImportError, AttributeError):
        return False


def code_blocks() -> dict[str, str]:
    """Return the Python code of the recipe by the file that its first line names."""
    blocks = re.findall(r"```python file=\S+\n# (\S+)\n(.*?)```", RECIPE.read_text(), re.S)
    return dict(blocks)


class AddedApi:
    """API of the recipe, added to the running process step by step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, skipped: str = "") -> None:
        """Add the API; ``skipped`` is the file of the step that is left out."""
        self._monkeypatch = monkeypatch
        self._code = code_blocks()
        self.specs = API_SPECS
        self.page = PAGE.read_text()
        if skipped != KEY_FILE:
            self._add_key()
        for path in (MESSAGES, HANDLER):
            if path != skipped:
                self._add_module(path)
        if skipped not in (KEY_FILE, ROW_FILE):
            names = {**vars(api_registry), "ApiKey": SimpleNamespace(COUNT_TOPICS=self.key)}
            self.spec: ApiSpec = eval(self._code[ROW_FILE], names)
            self.specs = (*API_SPECS, self.spec)
            if skipped not in (str(PAGE), MESSAGES):
                self.page += api_row(self.spec) + "\n"

    def _add_key(self) -> None:
        name, value = self._code[KEY_FILE].strip().split(" = ")
        self.key = int.__new__(ApiKey, int(value))
        self.key._name_, self.key._value_ = name, int(value)
        self._monkeypatch.setitem(ApiKey._member_map_, name, self.key)
        self._monkeypatch.setitem(ApiKey._value2member_map_, int(value), self.key)

    def _add_module(self, path: str) -> None:
        name = f"ottla.{path.removesuffix('.py').replace('/', '.')}"
        module = ModuleType(name)
        self._monkeypatch.setitem(sys.modules, name, module)
        exec(compile(self._code[path], path, "exec"), vars(module))


@pytest.fixture(autouse=True)
def clear_api_caches() -> Iterator[None]:
    """Clear the caches of the process for an API that was removed."""
    yield
    for cached in (request_class, response_class, request_spec, response_header_version, load_handler):
        cached.cache_clear()


# ---------------------------------------------------------------- every step has a name


def message_modules() -> list[str]:
    return sorted(
        path.stem for path in (ROOT / "wire" / "messages").glob("*.py") if re.search(r"= request\(", path.read_text())
    )


@pytest.mark.parametrize("name", message_modules())
def test_every_api_has_all_steps_of_the_recipe(name: str) -> None:
    assert list(missing_steps(name, API_SPECS, PAGE.read_text())) == []


def test_api_specs_have_unique_sorted_keys_and_message_modules() -> None:
    keys = [spec.key for spec in API_SPECS]
    assert keys == sorted(set(keys))
    assert {key.name.lower() for key in keys} == set(message_modules())


def test_added_api_lacks_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    api = AddedApi(monkeypatch)
    assert list(missing_steps(NAME, api.specs, api.page)) == []


@pytest.mark.parametrize(
    ("skipped", "step"),
    [
        (KEY_FILE, "1. Declare the messages: ApiKey.COUNT_TOPICS in wire/api_keys.py"),
        (
            MESSAGES,
            "1. Declare the messages: CountTopicsRequest and CountTopicsResponse in wire/messages/count_topics.py",
        ),
        (HANDLER, "2. Write the handler: broker/handlers/admin/count_topics.py"),
        (ROW_FILE, "3. Add the row: COUNT_TOPICS in broker/dispatch/api_registry.py"),
        (str(PAGE), "4. Generate the reference page: python -m devtools.docs.reference"),
    ],
)
def test_missing_step_is_named(monkeypatch: pytest.MonkeyPatch, skipped: str, step: str) -> None:
    if skipped == MESSAGES:  # the handler of the page imports them
        monkeypatch.setattr(AddedApi, "_add_module", lambda self, path: None)
    api = AddedApi(monkeypatch, skipped)
    assert list(missing_steps(NAME, api.specs, api.page)) == [step]
    titles = re.findall(r"^## (.*)$", RECIPE.read_text(), re.M)
    assert step.split(":", maxsplit=1)[0] in titles


# ---------------------------------------------------------------- a client calls the API


class ServedApi:
    """A broker listener that serves the added API beside all others."""

    def __init__(self, spec: ApiSpec, *permissions: tuple[AclOperation, ResourceType, str]) -> None:
        self.env = ConnectionEnv()
        self.spec = spec
        image = MetadataImage(topics={name: TopicImage(name, name.encode() * 16) for name in "ab"})
        metadata = SimpleNamespace(image=image, kraft_version=1)
        self.services: Any = SimpleNamespace(
            env=self.env,
            config=NodeConfig(),
            metadata=metadata,
            log_creator=(),
            authorizer=None,
            audit=None,
            quota_holder=QuotaHolder(),
        )
        if permissions:
            self.services.authorizer = Authorizer()
            for number, (operation, resource, name) in enumerate(permissions):
                record = metadata_records.AccessControlEntryRecord(
                    number.to_bytes(16, "big"), resource, name, 3, "User:ANONYMOUS", "*", operation, 3
                )
                self.services.authorizer._acls.add(record.id, acl_from_record(record))

    def limit_time(self) -> None:
        """Set a quota of 1 % of the event loop for every client."""
        quotas = QuotaManagers(self.env)  # type: ignore[arg-type]
        draft = ImageBuilder(MetadataImage())
        entity = metadata_records.EntityData("user", None)
        draft.replay(metadata_records.ClientQuotaRecord([entity], "request_percentage", 1.0))
        image = run_to_end(draft.image(1, 1))
        quotas.publish(image, run_to_end(draft.delta(image)))
        self.services.quota_holder = QuotaHolder(quotas, quotas.times_requests)

    def call(self, key: ApiKey, version: int, request: Any) -> Any:
        """Return the response; None where the connection was closed instead."""
        apis = {**BROKER_APIS, self.spec.key: self.spec}
        client = ClientStream()
        client.send_bytes(frame(key, version, 7, request))
        client.disconnect()

        async def serve() -> None:
            await Connection(Dispatcher(self.services, apis), client).serve()

        in_virtual_time(serve)
        responses = client.responses(key, version)
        assert all(number == 7 for number, _ in responses)
        return responses[0][1] if responses else None

    def count(self, *topics: str, version: int = 1) -> Any:
        return self.call(self.spec.key, version, request_class(self.spec.key)(list(topics)))


SEE_CLUSTER = AclOperation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"
SEE_A = AclOperation.DESCRIBE, ResourceType.TOPIC, "a"


@pytest.mark.parametrize("version", [0, 1])
def test_added_api_is_decoded_handled_and_encoded(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    answer = ServedApi(AddedApi(monkeypatch).spec).count("a", "b", "c", version=version)
    assert (answer.error_code, answer.count, answer.topics) == (0, 2, [])


def test_added_api_is_advertised(monkeypatch: pytest.MonkeyPatch) -> None:
    served = ServedApi(AddedApi(monkeypatch).spec)
    answer = served.call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("ottla", "1"))
    assert (93, 0, 1) in [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys]


def test_added_api_without_permission_gets_its_error_response(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ServedApi(AddedApi(monkeypatch).spec, SEE_A).count("a")
    assert (answer.error_code, answer.count, answer.topics) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0, [])


def test_added_api_leaves_denied_topics_out_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ServedApi(AddedApi(monkeypatch).spec, SEE_CLUSTER, SEE_A).count("a", "b")
    assert (answer.error_code, answer.count) == (0, 1)
    assert [(x.name, x.error_code) for x in answer.topics] == [("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]


@pytest.mark.parametrize(("quota", "is_throttled"), [(QuotaKind.REQUEST, True), (QuotaKind.EXEMPT, False)])
def test_added_api_counts_for_the_quota_of_its_row(
    monkeypatch: pytest.MonkeyPatch, quota: QuotaKind, is_throttled: bool
) -> None:
    api = AddedApi(monkeypatch)
    served = ServedApi(api.spec._replace(quota=quota))
    served.limit_time()
    handle: Callable[[Any, Any], Any] = load_handler("admin.count_topics")
    module = sys.modules["ottla.broker.handlers.admin.count_topics"]

    def slow(context: Any, request: Any) -> Any:
        served.env.work(500)
        return handle(context, request)

    monkeypatch.setattr(module, "handle", slow)
    load_handler.cache_clear()
    assert (served.count("a").throttle_time_ms > 0) == is_throttled


def test_added_api_in_another_version_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    api = AddedApi(monkeypatch)
    assert ServedApi(api.spec._replace(max_version=0)).count("a", version=1) is None


def test_added_api_has_a_row_on_the_reference_page(monkeypatch: pytest.MonkeyPatch) -> None:
    link = "[CountTopics](apis/CountTopics.md)"
    row = f"| 93 | {link} | 0-1 | 0-1 | broker | time | describe cluster, describe topic |"
    assert api_row(AddedApi(monkeypatch).spec) == row
