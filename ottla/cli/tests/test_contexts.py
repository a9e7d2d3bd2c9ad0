"""Contexts: storage, precedence of connection settings, and lists as YAML and CSV."""

from __future__ import annotations

import argparse
import csv
import io
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.cli.connection_settings import (
    BOOTSTRAP_VARIABLE,
    CONFIG_VARIABLE,
    CONTEXT_VARIABLE,
    find_settings,
    resolve_bootstrap,
)
from ottla.cli.contexts import FILE_VARIABLE, Contexts, load_contexts, save_contexts
from ottla.cli.output_formats import csv_text, yaml_text
from ottla.cli.tests.command_runs import run_command

pytestmark = pytest.mark.xdist_group(__name__)


@pytest.fixture(autouse=True)
def contexts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (BOOTSTRAP_VARIABLE, CONFIG_VARIABLE, CONTEXT_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "new" / "contexts.toml"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    return path


@pytest.fixture(scope="module")
def secured() -> Iterator[ottla.Broker]:
    with ottla.Broker(tls=True, sasl="SCRAM-SHA-512") as broker:
        yield broker


def ok(*words: str) -> str:
    done = run_command(*words)
    assert (done.status, done.err) == (0, ""), done
    return done.out.decode()


def fails(*words: str) -> str:
    done = run_command(*words)
    assert done.status == 1, done
    (text,) = done.err.splitlines()
    return text


def test_contexts_survive_round_trip_in_private_file(contexts_file: Path) -> None:
    assert load_contexts() == Contexts(None, {})
    odd = Contexts('a.b "c"', {'a.b "c"': {"x.y": 'a="\\\n\x7f\u00e9\U0001f600'}, "plain": {}})
    save_contexts(odd)
    assert load_contexts() == odd
    assert stat.S_IMODE(contexts_file.stat().st_mode) == 0o600


def test_commands_use_current_context_with_its_credentials(secured: ottla.Broker, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in secured.client_config("java").items()))
    ok("context", "set", "safe", "--command-config", str(settings), "--use")
    ok("context", "set", "dead", "--bootstrap", "127.0.0.1:1", "--set", "client.id=x")
    ok("topic", "create", "here")
    assert "here" in ok("topic", "list")
    assert "cannot connect to 127.0.0.1:1" in fails("topic", "list", "--context", "dead")
    rows = json.loads(ok("context", "list", "-o", "json"))
    assert [(row["context"], row["current"]) for row in rows] == [("dead", False), ("safe", True)]
    shown = ok("context", "show")
    assert "[hidden]" in shown
    assert "SCRAM-SHA-512" in shown
    assert secured.client_config()["sasl.password"] not in shown
    ok("context", "use", "dead")
    assert "cannot connect to 127.0.0.1:1" in fails("topic", "list")
    ok("context", "delete", "dead")
    assert load_contexts().current is None
    assert "cannot connect to 127.0.0.1:9092" in fails("topic", "list") or "here" not in ok("topic", "list")


@pytest.mark.parametrize(
    ("options", "variables", "bootstrap"),
    [
        ({}, {}, "current:1"),
        ({"context": "other"}, {}, "other:1"),
        ({}, {CONTEXT_VARIABLE: "other"}, "other:1"),
        ({}, {BOOTSTRAP_VARIABLE: "variable:1"}, "variable:1"),
        ({"context": "other"}, {BOOTSTRAP_VARIABLE: "variable:1"}, "other:1"),
        ({"bootstrap": "option:1"}, {BOOTSTRAP_VARIABLE: "variable:1"}, "option:1"),
        ({"bootstrap": "option:1", "context": "other"}, {}, "option:1"),
        ({"command_config": "FILE"}, {CONTEXT_VARIABLE: "other"}, "file:1"),
        ({}, {CONFIG_VARIABLE: "FILE"}, "file:1"),
        ({}, {CONFIG_VARIABLE: "FILE", BOOTSTRAP_VARIABLE: "variable:1"}, "variable:1"),
        ({}, {CONFIG_VARIABLE: "FILE", CONTEXT_VARIABLE: "other"}, "other:1"),
    ],
)
def test_resolve_bootstrap_uses_first_source_with_bootstrap_servers(
    options: dict[str, str],
    variables: dict[str, str],
    bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_contexts(Contexts("current", {n: {"bootstrap.servers": f"{n}:1"} for n in ("current", "other")}))
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("FILE", str(file)))
    given = {"bootstrap": None, "command_config": None, "context": None} | options
    given = {name: value and value.replace("FILE", str(file)) for name, value in given.items()}
    named = argparse.Namespace(**given)
    assert resolve_bootstrap(named, find_settings(named)) == bootstrap


def test_find_settings_with_other_bootstrap_ignores_current_context() -> None:
    save_contexts(Contexts("safe", {"safe": {"security.protocol": "SSL"}}))
    other = argparse.Namespace(bootstrap="b:1", command_config=None, context=None)
    assert find_settings(other).values == {}
    other.context = "safe"
    assert find_settings(other).values == {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("context use nope", "context nope does not exist"),
        ("context use stagin", "did you mean staging?"),
        ("context delete nope", "context nope does not exist"),
        ("context show", "no current context"),
        ("context set a", "--bootstrap, --command-config or --set expected"),
        ("context set a --set bootstrap.servers=x", "bootstrap.servers: HOST:PORT expected: x"),
        ("context set a --set security.protocol=TLS", "TLS"),
        ("context set a --command-config /nope", "/nope"),
        ("context set a --set novalue", "KEY=VALUE expected: novalue"),
        ("topic list --context nope", "context nope does not exist"),
    ],
)
def test_context_error_names_the_context(words: str, cause: str) -> None:
    save_contexts(Contexts(None, {"staging": {}}))
    assert cause in fails(*words.split())


@pytest.mark.parametrize("text", ["current = 3", "[[contexts]]", "contexts = 3", "x = ", "[contexts]\na = 3", "\xff"])
def test_contexts_malformed_file_error_names_the_file(text: str, contexts_file: Path) -> None:
    contexts_file.parent.mkdir()
    contexts_file.write_text(text, encoding="latin-1")
    assert str(contexts_file) in fails("context", "list")
    assert str(contexts_file) in fails("topic", "list")


def test_yaml_text_and_csv_text_format_rows() -> None:
    rows = [{"topic": "a,b", "count": 1, "isr": [1, 2], "ok": True, "none": None}, {"topic": "yes", "count": 2}]
    assert yaml_text(rows).splitlines() == [
        '- topic: "a,b"', "  count: 1", "  isr: [1, 2]", "  ok: true", "  none: null", '- topic: "yes"', "  count: 2",
    ]  # fmt: skip
    assert list(csv.reader(io.StringIO(csv_text(rows)))) == [
        ["topic", "count", "isr", "ok", "none"],
        ["a,b", "1", "[1, 2]", "true", ""],
        ["yes", "2", "", "", ""],
    ]
    assert (yaml_text([]), csv_text([])) == ("[]", "")


def test_list_commands_print_yaml_and_csv(secured: ottla.Broker, tmp_path: Path) -> None:
    settings = [f"--set={key}={value}" for key, value in secured.client_config("java").items()]
    ok("context", "set", "safe", "--use", *settings)
    ok("topic", "create", "listed", "--partitions", "2")
    assert "listed,2,1," in ok("topic", "list", "-o", "csv")
    assert "- topic: listed\n  partitions: 2\n" in ok("topic", "list", "-o", "yaml")
    assert ok("group", "list", "-o", "yaml") == "[]\n"
    assert ok("group", "list", "-o", "csv") == ""
