"""Generator of the configuration reference from the tables of keys: an index of all settings, a page for each topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from devtools.docs.config_topics import REJECTED, TOPIC_OF_PREFIX, TOPICS
from devtools.docs.config_values import describe_default, describe_type, describe_valid_values
from devtools.docs.message_layout import wrap
from ottla.broker.config.key_docs import (
    AUTHORIZER_DOCS,
    BROKER_DOCS,
    CLIENT_METRICS_DOCS,
    GROUP_DOCS,
    OTTLA_DOCS,
    QUOTA_DOCS,
    TOPIC_DOCS,
    explain_no_effect,
    explain_topic_no_effect,
)
from ottla.controller.config.broker_config_keys import BROKER_KEYS, KEYSTORE_KEY_PATTERN
from ottla.controller.config.config_keys import (
    AUTHORIZER_KEYS,
    GROUP_KEYS,
    OWN_BROKER_KEYS,
    OWN_TOPIC_KEYS,
    TOPIC_KEYS,
    group_bounds,
)
from ottla.controller.config.internal_broker_config_keys import QUOTA_KEYS

NOTE = "<!-- written by python -m devtools.docs.reference -->"
READ_ONLY = "read-only: takes effect at the next start"
CLUSTER_WIDE = "dynamic, for one broker or cluster-wide"
PER_BROKER = "dynamic, per broker"
PER_LISTENER = "dynamic, per broker and with a listener prefix only (`listener.name.NAME.`)"
UPDATE_MODES = {"static": READ_ONLY, "dynamic": CLUSTER_WIDE, "own": PER_BROKER}
SHORT_UPDATE_MODES = {READ_ONLY: "read-only", CLUSTER_WIDE: "cluster-wide", PER_BROKER: "per broker"}


class Setting(NamedTuple):
    """Setting as the reference describes it: type, default (None: there is none), valid values, update mode, effect."""

    name: str
    type: str
    default: str | None
    check: str
    update: str
    text: str
    """Effect of the setting, empty if it has none."""
    no_effect: str = ""
    """Reason why it has no effect."""
    notes: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """Anchor of the heading of the setting."""
        return self.name.replace(".", "")


def broker_settings() -> Iterator[Setting]:
    """Yield the settings of brokers and controllers: Kafka's but internal ones, its authorizer's, quotas, Ottla's."""
    for name, key in BROKER_KEYS.items():
        update = PER_LISTENER if KEYSTORE_KEY_PATTERN.match(name) else UPDATE_MODES[key.update_mode]
        notes = (f"Rejected values: {REJECTED[name]}.",) if name in REJECTED else ()
        reason = "" if name in BROKER_DOCS else explain_no_effect(name)
        yield Setting(name, key.type, key.default, key.check, update, BROKER_DOCS.get(name, ""), reason, notes)
    for name, own in AUTHORIZER_KEYS.items():
        notes = ("Set on brokers and controllers; a setting of StandardAuthorizer.",)
        yield Setting(name, own.type, own.default, own.check, READ_ONLY, AUTHORIZER_DOCS[name], notes=notes)
    for name, quota in QUOTA_KEYS.items():
        notes = ("Can be set dynamically only.",)
        yield Setting(name, quota.type, quota.default, quota.check, CLUSTER_WIDE, QUOTA_DOCS[name], notes=notes)
    for name, own in OWN_BROKER_KEYS.items():
        notes = ("A setting of Ottla: Kafka does not know it.",)
        yield Setting(name, own.type, own.default, own.check, READ_ONLY, OTTLA_DOCS[name], notes=notes)


def topic_settings() -> Iterator[Setting]:
    """Yield the settings of topics."""
    for name, key in TOPIC_KEYS.items():
        notes = (f"Default of the broker: `{key.broker_key}`.",) if key.broker_key else ()
        reason = explain_topic_no_effect(name)
        text = "" if reason else TOPIC_DOCS[name]
        yield Setting(name, key.type, key.default, key.check, "dynamic, per topic", text, reason or "", notes)
    for name, key in OWN_TOPIC_KEYS.items():
        notes = ("A setting of Ottla: Kafka does not know it.",)
        yield Setting(name, key.type, key.default, key.check, "dynamic, per topic", OTTLA_DOCS[name], notes=notes)


def group_settings() -> Iterator[Setting]:
    """Yield the settings of groups."""
    for name, key in GROUP_KEYS.items():
        bounds = [f"`{broker_key}`" for _, broker_key in group_bounds(name)]
        notes = [f"Default of the broker: `group.{name}`."] if f"group.{name}" in BROKER_KEYS else []
        notes += [f"Limits: {' and '.join(bounds)}."] if bounds else []
        update = "dynamic, per group"
        yield Setting(name, key.type, key.default, key.check, update, GROUP_DOCS[name], notes=tuple(notes))


def client_metrics_settings() -> Iterator[Setting]:
    """Yield the settings of client-metrics subscriptions (KIP-714)."""
    update = "dynamic, per subscription"
    yield Setting("metrics", "LIST", "", "-", update, CLIENT_METRICS_DOCS["metrics"])
    yield Setting("interval.ms", "INT", "300000", "100..3600000", update, CLIENT_METRICS_DOCS["interval.ms"])
    yield Setting("match", "LIST", "", "-", update, CLIENT_METRICS_DOCS["match"])


def topic_of(name: str) -> str:
    """Return the key in `TOPICS` of the page of a broker setting: that of the longest prefix of its name."""
    prefixes = [prefix for prefix in TOPIC_OF_PREFIX if name.startswith(prefix)]
    assert prefixes, f"no page for {name}: add it to TOPIC_OF_PREFIX"
    return TOPIC_OF_PREFIX[max(prefixes, key=len)]


def _entry(setting: Setting) -> Iterator[str]:
    """Yield the Markdown lines of a setting on its page."""
    yield from ("", f"### {setting.name}", "")
    if setting.no_effect:
        yield from wrap(f"**No effect**: {setting.no_effect}. The value is accepted and returned by DescribeConfigs.")
    else:
        yield from wrap(setting.text)
    kind = describe_type(setting.name, setting.type)
    yield from ("", f"- Type: {kind}")
    yield from wrap(f"Default: {describe_default(setting.name, setting.default)}", 2, "- ")
    yield from wrap(f"Valid values: {describe_valid_values(setting.type, setting.check)}", 2, "- ")
    yield f"- Update: {setting.update}"
    for note in setting.notes:
        yield from wrap(note, 2, "- ")


def topic_page(topic: str) -> str:
    """Return the Markdown page of one topic of the reference (a key in `TOPICS`), such as ``storage``."""
    title, intro = TOPICS[topic]
    lines = [f"# {title}", NOTE, "", *wrap(intro), "", "## Settings of nodes"]
    for setting in sorted(broker_settings()):
        if topic_of(setting.name) == topic:
            lines += _entry(setting)
    if topic == "topics":
        lines += ["", "## Settings of topics", "", *wrap("Set with `ottla topic` or any admin client.")]
        lines += [line for setting in sorted(topic_settings()) for line in _entry(setting)]
    groups = {"groups": ("consumer.", "streams."), "share-groups": ("share.",)}
    if topic in groups:
        lines += ["", "## Settings of groups", "", *wrap("Set with IncrementalAlterConfigs on a resource GROUP.")]
        chosen = [setting for setting in sorted(group_settings()) if setting.name.startswith(groups[topic])]
        lines += [line for setting in chosen for line in _entry(setting)]
    if topic == "metrics":
        text = "Set with IncrementalAlterConfigs on a resource CLIENT_METRICS (KIP-714)."
        lines += ["", "## Settings of client-metrics subscriptions", "", *wrap(text)]
        lines += [line for setting in client_metrics_settings() for line in _entry(setting)]
    return "\n".join(lines) + "\n"


def _index_row(setting: Setting, page: str) -> str:
    default = "" if setting.default is None else f"`{setting.default}`" if setting.default else "(empty)"
    update = SHORT_UPDATE_MODES.get(setting.update, "per broker")
    honoured = "no" if setting.no_effect else "yes"
    return f"| [{setting.name}](config/{page}.md#{setting.anchor}) | {default} | {update} | {honoured} |"


def index_page() -> str:
    """Return the Markdown text of ``docs/reference/config.md``, which lists all settings of nodes."""
    settings = sorted(broker_settings())
    honoured = sum(not setting.no_effect for setting in settings)
    lines = ["# Configuration", NOTE, ""]
    lines += wrap(
        "This page lists every setting of a node, for operators that write a configuration file or bring one from "
        "Kafka. Names, types, defaults and valid values are those of Kafka 4.3.1; a file or environment made for Kafka "
        "is read as it is."
    )
    lines += ["", "Pages by topic:", ""]
    lines += [f"- [{title}](config/{topic}.md)" for topic, (title, _) in TOPICS.items()]
    lines += ["", "## Rules", ""]
    for rule in (
        "An unknown name is a warning with the nearest known name. An invalid value ends the start with status 2.",
        "A setting without effect is accepted and returned by DescribeConfigs; its page has the reason.",
        "`ottla doctor FILE` checks a whole file and reports each problem.",
        "*Read-only* settings take effect at the next start. *Cluster-wide* ones can be changed while nodes run, for "
        "all brokers or for one; *per broker* ones for one broker only.",
        "A listener prefix, `listener.name.NAME.`, sets a security setting for one listener.",
    ):
        lines += wrap(rule, 2, "- ")
    lines += ["", f"## All settings of nodes ({len(settings)}, {honoured} honoured)", ""]
    lines += ["| name | default | update | honoured |", "|---|---|---|---|"]
    lines += [_index_row(setting, topic_of(setting.name)) for setting in settings]
    return "\n".join(lines) + "\n"
