"""Wrong arguments of every command: status 1 or 2, and one line with the cause."""

from __future__ import annotations

import errno
import io
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.cli.connection_settings import BOOTSTRAP_VARIABLE, CONFIG_VARIABLE, CONTEXT_VARIABLE
from ottla.cli.contexts import FILE_VARIABLE
from ottla.cli.main import COMMANDS
from ottla.cli.tests.command_runs import CommandRun, run_command

pytestmark = pytest.mark.xdist_group(__name__)
DEAD = "127.0.0.1:1"
NOT_UTF8 = os.fsdecode(b"\xff\xfe")
PYTHON_TEXT = re.compile(r"\[Errno|Traceback|\bNone\b|Error\b|invalid literal|codec can|<class|object at|\{'|\['| b'")
_VERBS = """topic list, topic describe T, topic create T, topic partitions T --partitions 3, topic delete T,
topic config T, acl list, acl add --allow User:a --operation read --topic T, acl remove --topic T,
quota list, quota set --user a producer_byte_rate=1, quota remove --user a, user list, user remove a,
token create, token list, token renew i, token expire i, group list, group describe g,
group reset g --topic T --to-earliest, group delete g, group delete-offsets g --topic T, txn list,
txn describe i, txn hanging, txn abort T 0 0, cluster status, cluster elect, cluster reassign,
cluster drain 9, cluster rebalance, cluster remove 9, produce T, consume T, config describe topic T,
config describe broker 1, config set topic T retention.ms=1, config unset group g x,
lag g, topic export T,
topic import T"""
VERBS = [words.strip() for words in _VERBS.split(",")]
"""Each verb that sends requests to a cluster, with valid arguments."""
UNKNOWN = [
    ("topic describe nope", "topic nope does not exist"),
    ("topic delete nope", "topic nope does not exist"),
    ("topic config nope", "topic nope does not exist"),
    ("topic config nope --set retention.ms=1", "topic nope does not exist"),
    ("topic partitions nope --partitions 3", "topic nope does not exist"),
    ("topic config there --set no.such.setting=1", "no.such.setting"),
    ("topic create there", "there"),
    ("topic create a/b", "a/b"),
    ("consume nope", "topic nope does not exist"),
    ("consume there --partition 77", "partition 77 of topic there does not exist"),
    ("consume there --offset 9", "offset out of range: there-0 at 9 (0 to 0)"),
    ("consume there --from-time tomorrow", "tomorrow"),
    ("consume there --until 1969-01-01", "1969-01-01"),
    ("produce there --partition 99", "partition 99 of topic there does not exist"),
    ("produce a/b", "a/b"),
    ("group describe nope", "group nope does not exist"),
    ("group delete nope", "group nope does not exist"),
    ("group delete-offsets nope --topic there", "group nope does not exist"),
    ("group reset g --topic nope --to-earliest", "topic nope does not exist"),
    ("group reset g --topic there:7 --to-earliest", "partition 7 of topic there does not exist"),
    ("group reset g --topic there:x --to-earliest", "there:x"),
    ("group reset g --topic there --to-datetime tomorrow", "tomorrow"),
    ("group reset g --topic there --by-duration fast", "fast"),
    ("group reset g --topic there --from-file /nope", "/nope"),
    ("group reset g --to-earliest", "--topic"),
    ("group describe", "--all"),
    ("txn describe nope", "transactional id nope does not exist"),
    ("txn hanging --topic nope", "topic nope does not exist"),
    ("txn abort nope 0 0", "topic nope does not exist"),
    ("txn abort there 7 0", "partition 7 of topic there does not exist"),
    ("txn abort there 0 0", "there-0"),
    ("cluster elect nope:0", "topic nope does not exist"),
    ("cluster elect there:7", "partition 7 of topic there does not exist"),
    ("cluster elect there", "there"),
    ("cluster elect there:99999999999", "there:99999999999"),
    ("cluster drain 9 --dry-run", "broker 9 does not exist"),
    ("cluster remove 9 --dry-run", "no node 9"),
    ("cluster reassign nope:0=1", "topic nope does not exist"),
    ("cluster reassign there:0=9", "broker 9 does not exist"),
    ("cluster reassign there:0=x", "there:0=x"),
    ("cluster reassign --cancel nope:0", "topic nope does not exist"),
    ("user list nope", "user nope does not exist"),
    ("user remove nope", "user nope does not exist"),
    ("user set a --password-file /nope", "/nope"),
    ("user set a --password-file -", "password is empty"),
    ("token renew nope", ""),
    ("token expire --hmac-file /nope", "/nope"),
    ("quota set --user a nope=1", "nope"),
    ("quota set --user a producer_byte_rate=x", "producer_byte_rate=x"),
    ("quota set --user a producer_byte_rate=-1", "producer_byte_rate"),
    ("quota set producer_byte_rate=1", "--user"),
    ("quota remove --user nope", "does not have this quota"),
    ("acl add --topic there --operation read", "--allow"),
    ("topic list --command-config /nope", "/nope"),
    ("user set a --password-file /", "/: Is a directory"),
    ("token expire --hmac-file /", "/: Is a directory"),
    ("topic list --command-config /", "/: Is a directory"),
    ("group reset g --topic there --from-file /", "/: Is a directory"),
    ("dump /", "/: not a regular file"),
    ("decode /", "/: Is a directory"),
    ("serve -c /", "/: Is a directory"),
    ("decode zz", "zz"),
    ("decode --source NOPE:1", "NOPE:1"),
    ("dump /nope", "/nope"),
    ("dump --verify /nope", "/nope"),
    ("log check /nope", "/nope"),
    ("log repair /nope", "/nope"),
    ("doctor /nope", "/nope"),
    ("tier list /nope", "directory does not exist: /nope"),
    ("tier verify nope://x", "cannot open the store nope://x"),
    ("tier list /nope --config /no-file", "/no-file: No such file or directory"),
    ("tier list /nope --set nonsense=1", "unknown setting of the remote store: nonsense"),
    ("tier list /nope --set nonsense", "KEY=VALUE expected: nonsense"),
    ("tier list /nope --topic a/b", "invalid topic name: 'a/b'"),
    ("fault list --data-dir /nope", "/nope"),
    ("fault list --address 127.0.0.1:1", "127.0.0.1:1"),
    ("fault add delay Fetch", "--seconds"),
    ("health --http nope", "malformed address: nope"),
    ("format -t x -c /nope", "/nope"),
    ("serve -c /nope", "/nope"),
    ("serve --set nope", "nope"),
    ("trace --listen 0 --to nowhere", "nowhere"),
    ("health --http nowhere", "malformed address: nowhere"),
    ("cluster recover -c /nope", "/nope"),
    ("config describe topic nope", "topic nope does not exist"),
    ("config set topic nope retention.ms=1", "topic nope does not exist"),
    ("config set topic there retension.ms=1", "unknown setting: retension.ms; did you mean retention.ms?"),
    ("config set topic there retention.ms=x", "retention.ms"),
    ("config unset topic there nope", "unknown setting: nope"),
    ("config unset topic there a=b", "name of a setting expected: a=b"),
    ("config set group g nope=1", "unknown setting: nope"),
    ("config set broker default log.retention.mss=1", "did you mean log.retention.ms?"),
    ("config set logger 1 nope=INFO", "nope"),
    ("config set topic there retention.ms", "KEY=VALUE expected: retention.ms"),
    ("config describe broker 9", "broker 9 does not exist (brokers: 1)"),
    ("config describe logger x", "broker x does not exist"),
    ("topic export nope", "topic nope does not exist"),
    ("topic import there /", "/: Is a directory"),
    ("topic export there /", "/"),
    ("lag nope", "group nope does not exist"),
    ("top --http 127.0.0.1:1", "127.0.0.1:1"),
    ("client --http 127.0.0.1:1", "127.0.0.1:1"),
    ("context use nope", "context nope does not exist"),
    ("topic list --context nope", "context nope does not exist"),
    ("health -b foo", "foo"),
]
"""Unknown or malformed names: the command and a part of its error line."""
WRONG_USE = [
    ("", ""),
    ("produc", "did you mean produce?"),
    ("topic", "VERB"),
    ("topic ls", "did you mean list?"),
    ("tier extract /nope --to /nope", "--topic"),
    ("tier list /nope --partition -1", "-1 (at least 0)"),
    ("topic describe", "topic"),
    ("topic list --outptu json", "did you mean --output?"),
    ("topic list -o xml", "xml"),
    ("topic list -b foo", "HOST:PORT expected: foo"),
    ("topic list -b foo:bar", "HOST:PORT expected: foo:bar"),
    ("topic list -b a:1,b", "HOST:PORT expected: b"),
    ("topic create a --partitions -1", "-1 (at least 1)"),
    ("topic create a --partitions x", "whole number expected: x"),
    ("topic create a --replication-factor 99999", "99999 (at most 32767)"),
    ("topic partitions a", "--partitions"),
    ("topic export", "topic"),
    ("topic import a f --partitions 0", "0"),
    ("consume a -n -1", "-1"),
    ("consume a --partition -1", "-1"),
    ("consume a --offset -1", "-1"),
    ("consume a --offset 99999999999999999999", "99999999999999999999"),
    ("consume a --isolation all", "all"),
    ("consume a --tail -1", "-1"),
    ("consume a --tail 1 --from-beginning", "--tail"),
    ("consume a --tail 1 --until now", "--until"),
    ("consume a --format %q", "%q"),
    ("consume a --format %v -o json", "-o json"),
    ("consume a --filter offset=3", "offset=3"),
    ("consume a --filter value~(", "invalid regular expression"),
    ("produce a --partition -1", "-1"),
    ("produce a --codec zip", "zip"),
    ("group list --type bogus", "unknown group type: bogus"),
    ("group list --state bogus", "unknown group state: bogus"),
    ("group reset g", "--to-earliest"),
    ("group reset g --to-offset -1", "-1"),
    ("user set", "user"),
    ("user bogus", "bogus"),
    ("user set a --iterations -1", "-1"),
    ("token renew", "id"),
    ("token create --lifetime-ms -5", "-5"),
    ("txn abort a -1 0", "-1"),
    ("txn hanging --older-than -1", "-1"),
    ("acl list --operation reed", "did you mean read?"),
    ("cluster drain -1", "-1"),
    ("cluster drain 1 --at-once 0", "0"),
    ("cluster rebalance --throttle -1", "-1"),
    ("cluster start --nodes 0", "0"),
    ("cluster start --port -1", "-1"),
    ("cluster start --port 65534", "port: 65534 (0 to 65533 for 3 nodes expected)"),
    ("cluster start --set nope=1", "unknown setting: nope"),
    ("cluster remove 1 --wait -1", "-1"),
    ("decode", "what"),
    ("dump", "file"),
    ("client", "--http"),
    ("client --http nope", "HOST:PORT expected: nope"),
    ("client --http a:1 --outptu json", "did you mean --output?"),
    ("clients --http a:1", "did you mean client?"),
    ("doctor", "--env"),
    ("log check", "directory"),
    ("trace", "--listen"),
    ("serve --node-id -1", "-1"),
    ("serve --log-level inf", "unknown: inf; did you mean info?"),
    ("serve --log-format xml", "unknown: xml"),
    ("cluster start --log-level loud", "unknown: loud"),
    ("container KAFKA_NODE_ID", "write NAME=VALUE"),
    ("format", "--cluster-id"),
    ("completion", "shell"),
    ("lag --interval x", "number of seconds expected: x"),
    ("lag --times 3", "--times needs --watch"),
    ("fault partition 1 2,x", "whole number expected: x"),
    ("cluster status --times 3", "--times needs --watch"),
    ("lag --fail-above -1", "-1"),
    ("completion fihs", "did you mean fish?"),
    ("config", "VERB"),
    ("config describe topics x", "did you mean topic?"),
    ("config set topic x", "KEY=VALUE"),
    ("context", "VERB"),
    ("context usee x", "did you mean use?"),
    ("context set a -b foo", "HOST:PORT expected: foo"),
    ("context list -o xml", "xml"),
    ("health --timeout -1", "-1"),
    ("top", "--http HOST:PORT is required"),
    ("top --http nope", "HOST:PORT expected: nope"),
    ("top --http a:1 --by topics", "did you mean topic?"),
    ("random-uuid 1", "1"),
]


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with ottla.Broker(settings={"num.partitions": "2", "auto.create.topics.enable": "false"}) as broker:
        at = broker.bootstrap_servers
        assert run_command("topic", "create", "there", "-b", at).status == 0
        yield at


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (BOOTSTRAP_VARIABLE, CONFIG_VARIABLE, CONTEXT_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(FILE_VARIABLE, "/nope/contexts.toml")


def check(done: CommandRun, status: int, cause: str) -> None:
    """Check that a command failed with one line that contains the cause."""
    lines = done.err.splitlines()
    assert done.status == status, done
    assert len(lines) == 1, done
    assert cause in lines[0]
    assert lines[0].startswith("ottla"), done
    assert not PYTHON_TEXT.search(lines[0]), done


def test_tables_contain_every_command() -> None:
    named = {words.split()[0] for words in (*VERBS, *(x for x, _ in UNKNOWN), *(x for x, _ in WRONG_USE)) if words}
    kafka_tools = {name for name in COMMANDS if name.startswith("kafka-")}  # their errors are those of Kafka's tools
    assert COMMANDS.keys() - named == kafka_tools


@pytest.mark.parametrize(("words", "cause"), UNKNOWN, ids=[words for words, _ in UNKNOWN])
def test_unknown_name_fails_with_cause(
    node: str, words: str, cause: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, node)
    monkeypatch.chdir(tmp_path)
    done = run_command(*words.split())
    if words.startswith("dump --verify"):
        assert (done.status, done.out) == (1, b"/nope: No such file or directory\n")
        return
    starts = ("log", "doctor", "serve", "format", "trace", "cluster recover")
    check(done, done.status if words.startswith(starts) else 1, cause)
    assert done.status in (1, 2)


@pytest.mark.parametrize(("words", "cause"), WRONG_USE, ids=[words for words, _ in WRONG_USE])
def test_wrong_usage_prints_one_line_and_returns_status_2(words: str, cause: str) -> None:
    done = run_command(*words.split())
    if not words:
        assert (done.status, done.out.startswith(b"usage: ottla COMMAND")) == (2, True)
        return
    check(done, 2, cause)


@pytest.mark.parametrize("words", VERBS)
def test_unreachable_cluster_error_contains_address(words: str) -> None:
    check(run_command(*words.split(), "-b", DEAD), 1, f"cannot connect to {DEAD}: Connection refused")


@pytest.mark.parametrize("words", VERBS)
def test_unknown_host_error_contains_host(words: str) -> None:
    check(run_command(*words.split(), "-b", "host.invalid:9092"), 1, "unknown host: host.invalid:9092")
    check(run_command(*words.split(), "-b", "a..b:9092"), 1, "unknown host: a..b:9092")


@pytest.mark.parametrize("words", [words for words in VERBS if re.search(r"\b[Tgi]\b", words)])
def test_argument_not_utf8_returns_status_2(words: str, node: str) -> None:
    wrong = [NOT_UTF8 if word in ("T", "g", "i") else word for word in words.split()]
    check(run_command(*wrong, "-b", node), 2, r"not UTF-8: \udcff\udcfe")


def test_trace_on_used_port_error_contains_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_command("trace", "--listen", address, "--to", DEAD)
    check(done, 2, f"ottla trace: cannot listen at {address}: Address already in use")


class FailingOutput(io.RawIOBase):
    """Standard output on a full disk, or a closed pipe."""

    def __init__(self, number: int) -> None:
        self._number = number

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise OSError(self._number, os.strerror(self._number))


LISTS = ("topic list -o json", "group list -o json", "random-uuid", "--version", "--help", "topic --help")


@pytest.mark.parametrize("words", LISTS)
def test_full_standard_output_error_is_not_a_broker_error(
    words: str, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, node)
    done = run_command(*words.split(), stdout=FailingOutput(errno.ENOSPC))
    check(done, 1, "ottla: standard output: No space left on device")


@pytest.mark.parametrize("words", LISTS)
def test_closed_pipe_ends_command_silently(words: str, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, node)
    done = run_command(*words.split(), stdout=FailingOutput(errno.EPIPE))
    assert (done.status, done.err) == (1, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("group list", "no groups"),
        ("group describe --all", "no groups"),
        ("lag", "no groups with committed offsets"),
        ("txn list", "no transactional ids"),
        ("txn hanging", "no hanging transactions"),
        ("quota list", "no quotas"),
        ("user list", "no users"),
        ("cluster elect", "no elections needed"),
        ("cluster reassign", "no reassignments in progress"),
        ("cluster rebalance --dry-run", "nothing to move"),
    ],
)
def test_empty_result_prints_message_to_standard_error_but_not_in_json(words: str, message: str, node: str) -> None:
    done = run_command(*words.split(), "-b", node)
    assert (done.status, done.out, done.err) == (0, b"", f"{message}\n")
    done = run_command(*words.split(), "-b", node, "-o", "json")
    assert (done.status, done.out, done.err) == (0, b"[]\n", "")
