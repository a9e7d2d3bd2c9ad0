"""Writes the pages of `docs/reference/` that follow from the code: ``python -m devtools.docs.reference``."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from devtools.docs.limits_page import limits_page
from ottla.broker.config.key_docs import (
    AUTHORIZER_DOCS,
    BROKER_DOCS,
    GROUP_DOCS,
    OTTLA_DOCS,
    TOPIC_DOCS,
    explain_no_effect,
)
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.security.authz.authorization_rules import BROKER_RULES, CONTROLLER_RULES
from ottla.cli.main import COMMANDS
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import AUTHORIZER_KEYS, GROUP_KEYS, OWN_BROKER_KEYS, OWN_TOPIC_KEYS, TOPIC_KEYS
from ottla.wire.api_keys import ApiKey, request_spec

WHERE = Path(__file__).parent.parent.parent / "docs" / "reference"
NOTE = "<!-- written by python -m devtools.docs.reference -->"
# Values that a node does not start with, since it could not keep to them.
REJECTED = {
    "authorizer.class.name": "any but Kafka's StandardAuthorizer",
    "controller.quorum.voters": "what is not ID@HOST:PORT; a controller that is missing, a broker that is named",
    "listeners": "two listeners with one name or port, one without a protocol, one with TLS and no key",
    "advertised.listeners": "0.0.0.0, or a listener that is not among `listeners`",
    "sasl.enabled.mechanisms": "GSSAPI (Kafka's default) without a keytab, OAUTHBEARER without who checks tokens",
    "group.consumer.assignors": "any but `uniform`, `range` and the names of their classes in Kafka",
    "group.share.assignors": "any but one `simple`, or the name of its class in Kafka",
    "log.retention.ms": "0, also in minutes or hours; it would delete everything",
    "metric.reporters": "any but Kafka's JmxReporter, which has no effect",
    "principal.builder.class": "any but Kafka's default; likewise every other setting that names a class",
    "replica.selector.class": "any but Kafka's RackAwareReplicaSelector and LeaderSelector",
    "process.roles": "anything but `broker`, `controller` or both",
    "remote.log.storage.system.enable": "true",
}


def _shown(default: str | None) -> str:
    return "" if default is None else f"`{default}`" if default else "(empty)"


def config() -> str:
    """Every setting of Kafka 4.3.1: honoured, without effect and why, or rejected."""
    lines = [
        "# Settings",
        NOTE,
        "",
        "Names, types, defaults and limits are Kafka 4.3.1's. A file or environment made for Kafka is read as it is:",
        "what has no effect here is accepted and answered with its default. An unknown name is a warning that names",
        "the nearest one, a wrong value ends the start with status 2. `ottla doctor FILE` judges a whole file at once.",
        "",
        f"## Broker settings that are honoured ({len(BROKER_DOCS)})",
        "",
        "Dynamic ones can be changed while the node runs and take effect at once.",
        "",
        "| name | default | dynamic | what it does |",
        "|---|---|---|---|",
    ]
    for name in sorted(BROKER_DOCS):
        key = BROKER_KEYS[name]
        lines.append(f"| `{name}` | {_shown(key.default)} | {'yes' if key.is_dynamic else ''} | {BROKER_DOCS[name]} |")
    lines += ["", f"## Topic settings ({len(TOPIC_KEYS)})", "", "| name | default | what it does |", "|---|---|---|"]
    lines += [f"| `{n}` | {_shown(k.default)} | {TOPIC_DOCS[n]} |" for n, k in sorted(TOPIC_KEYS.items())]
    lines += ["", f"## Group settings ({len(GROUP_KEYS)})", "", "| name | default | what it does |", "|---|---|---|"]
    lines += [f"| `{n}` | {_shown(k.default)} | {GROUP_DOCS[n]} |" for n, k in sorted(GROUP_KEYS.items())]
    lines += ["", f"## Settings of the authorizer ({len(AUTHORIZER_KEYS)})", ""]
    lines += ["| name | default | what it does |", "|---|---|---|"]
    lines += [f"| `{n}` | {_shown(k.default)} | {AUTHORIZER_DOCS[n]} |" for n, k in sorted(AUTHORIZER_KEYS.items())]
    own = {**OWN_TOPIC_KEYS, **OWN_BROKER_KEYS}
    lines += [
        "",
        f"## Settings Kafka does not know ({len(own)})",
        "",
        "| name | default | what it does |",
        "|---|---|---|",
    ]
    lines += [f"| `{n}` | {_shown(k.default)} | {OTTLA_DOCS[n]} |" for n, k in sorted(own.items())]
    lines += ["", "## Values that are rejected", "", "| name | values |", "|---|---|"]
    lines += [f"| `{name}` | {values} |" for name, values in sorted(REJECTED.items())]
    rest = sorted(name for name in BROKER_KEYS if name not in BROKER_DOCS)
    lines += ["", f"## Broker settings without effect ({len(rest)})", "", "| name | why |", "|---|---|"]
    lines += [f"| `{name}` | {explain_no_effect(name)} |" for name in rest]
    return "\n".join(lines) + "\n"


def _rights(key: ApiKey) -> str:
    """What an authorizer is asked for: by a broker, and where that passes it on, by the controller."""
    asked = [
        f"{need.operation.name} {need.resource.name}"
        for need in (*BROKER_RULES.get(key, ()), *CONTROLLER_RULES.get(key, ()))
    ]
    return ", ".join(text.lower().replace("_", " ") for text in dict.fromkeys(asked))


def apis() -> str:
    """API by version: what Kafka has, what is answered here, and who may ask it."""
    lines = [
        "# APIs and versions",
        NOTE,
        "",
        "What a node answers, beside what Kafka 4.3.1's schemas define for a broker's listener. An API without",
        "versions in the third column is not advertised, and a request for it ends the connection. The last column is",
        "what rules may be asked for on the way, as at Kafka: which of it, hangs on what the request names.",
        "",
        "| key | API | Ottla | Kafka 4.3.1 | rights |",
        "|---|---|---|---|---|",
    ]
    for key in ApiKey:
        spec = request_spec(key)
        if "broker" not in spec.listeners:
            continue
        route = BROKER_APIS.get(key)
        newest = spec.versions.high - (1 if spec.latest_unstable else 0)
        name = "".join(part.capitalize() for part in key.name.split("_"))
        ours = "" if route is None else f"{route.min_version}-{route.max_version}"
        lines.append(f"| {int(key)} | {name} | {ours} | {spec.versions.low}-{newest} | {_rights(key)} |")
    return "\n".join(lines) + "\n"


def _help(command: str) -> Iterator[str]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    out = io.StringIO()
    module = import_module(f"ottla.cli.commands.{command.replace('-', '_')}")
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        module.run(["--help"])
    if before is None:
        del os.environ["COLUMNS"]
    else:
        os.environ["COLUMNS"] = before
    yield from (line.rstrip() for line in out.getvalue().rstrip().splitlines())


def cli() -> str:
    """Every command's own help."""
    lines = ["# Commands", NOTE, "", "`OTTLA_BOOTSTRAP=HOST:PORT` names the cluster where `--bootstrap` does not.", ""]
    for command, text in COMMANDS.items():
        lines += [f"## ottla {command}: {text}", "", "```text", *_help(command), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


PAGES = {"config.md": config, "apis.md": apis, "cli.md": cli, "limits.md": limits_page}


def main() -> None:
    """Write the pages."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for name, page in PAGES.items():
        (WHERE / name).write_text(page())


if __name__ == "__main__":
    main()
