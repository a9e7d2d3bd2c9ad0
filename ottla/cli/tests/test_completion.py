"""Shell completion: commands, verbs, options, option values, and names of a cluster and of contexts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.cli.commands.completion import SCRIPTS
from ottla.cli.completion_words import command_options, complete
from ottla.cli.connection_settings import BOOTSTRAP_VARIABLE, CONFIG_VARIABLE, CONTEXT_VARIABLE
from ottla.cli.contexts import FILE_VARIABLE, Contexts, save_contexts
from ottla.cli.main import COMMANDS
from ottla.cli.tests.command_runs import run_command

pytestmark = pytest.mark.xdist_group(__name__)


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with ottla.Broker() as broker:
        for name in ("events", "eve.2", "orders"):
            broker.client.create_topic(name)
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (BOOTSTRAP_VARIABLE, CONFIG_VARIABLE, CONTEXT_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "contexts.toml"))


def words(*given: str) -> list[str]:
    return [each.word for each in complete(given, COMMANDS)]


@pytest.mark.parametrize("name", COMMANDS)
def test_command_options_returns_parser_of_each_command(name: str) -> None:
    assert command_options(name).prog == f"ottla {name}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("to", ["topic", "token", "top"]),
        ("nope x", []),
        ("help con", ["container", "config", "consume", "context"]),
        ("topic de", ["describe", "delete"]),
        ("topic nope ", []),
        ("topic list -o ", ["text", "json", "yaml", "csv"]),
        ("topic list -o json --bo", ["--bootstrap"]),
        ("consume --isolation read_c", ["read_committed"]),
        ("config describe gr", ["group"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("serve --config ", []),
        ("dump ", []),
        ("random-uuid x", []),
    ],
)
def test_complete_returns_commands_verbs_options_and_values(given: str, expected: list[str]) -> None:
    assert words(*given.split(" ")) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("topic describe ev", ["eve.2", "events"]),
        ("consume --partition 0 o", ["orders"]),
        ("group reset g --topic e", ["eve.2", "events"]),
        ("config describe topic o", ["orders"]),
        ("config set broker ", ["1", "default"]),
        ("config describe logger ", ["1"]),
        ("group describe ", []),
    ],
)
def test_complete_returns_names_of_the_cluster(
    node: str, given: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, node)
    assert words(*given.split(" ")) == expected


def test_complete_uses_cluster_of_command_line_and_contexts(node: str) -> None:
    save_contexts(Contexts("dead", {"dead": {"bootstrap.servers": "127.0.0.1:1"}, "live": {"bootstrap.servers": node}}))
    assert words("topic", "describe", "") == []
    assert words("topic", "describe", "--context", "live", "or") == ["orders"]
    assert words("topic", "describe", "-b", node, "or") == ["orders"]
    assert words("topic", "list", "--context", "") == ["dead", "live"]
    assert words("context", "use", "l") == ["live"]


def test_completion_words_prints_words_with_descriptions() -> None:
    done = run_command("completion", "words", "--", "topic", "cr")
    assert (done.status, done.out, done.err) == (0, b"create\tcreate a topic\n", "")


@pytest.mark.parametrize("shell", SCRIPTS)
def test_completion_script_is_valid_shell(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_bytes(run_command("completion", shell).out)
    subprocess.run([shell, "-n", str(script)], check=True)


def test_completion_script_completes_words_in_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "ottla"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    script = f"{SCRIPTS['bash']}\nCOMP_WORDS=(ottla topic 'de') COMP_CWORD=2\n_ottla; echo \"${{COMPREPLY[*]}}\""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "describe delete\n"
