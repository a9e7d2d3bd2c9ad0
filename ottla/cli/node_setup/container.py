"""Translation of the environment variables of Apache Kafka's container image to those of a node's settings.

Source: ``docker/resources/common-scripts/{run,configureDefaults,configure}`` and ``KafkaDockerWrapper.scala``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import closest_match
from ottla.cli.node_setup.log_options import LEVEL_VARIABLE
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import AUTHORIZER_KEYS, OWN_BROKER_KEYS
from ottla.controller.config.internal_broker_config_keys import INTERNAL_BROKER_KEYS, QUOTA_KEYS

CLUSTER_ID = "CLUSTER_ID"
DEFAULT_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
"""Cluster id that Kafka's image uses if ``CLUSTER_ID`` is not set."""
MOUNTED_CONFIG = "/mnt/shared/config/server.properties"
SECRETS = "/etc/kafka/secrets"
DATA_DIRECTORY = "/var/lib/kafka/data"
"""Log directory: the volume of Kafka's image. The image's own ``log.dirs`` is in ``/tmp``, lost with the container."""

_PREFIX = "KAFKA_"
_LISTENERS, _ADVERTISED, _ROLES = "KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS", "KAFKA_PROCESS_ROLES"
_DEFAULT_LISTENERS = {_LISTENERS: "PLAINTEXT://:9092", _ADVERTISED: "PLAINTEXT://localhost:9092"}
_OPTS = "KAFKA_OPTS"
_LOG4J_LEVEL = "KAFKA_LOG4J_ROOT_LOGLEVEL"
_LEVELS = {
    "ALL": "debug",
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "ERROR": "error",
    "FATAL": "error",
    "OFF": "error",
}
"""Level of the node's log for each level of Log4j."""
_NOT_SETTINGS = {
    "VERSION",
    "HOME",
    "HEAP_OPTS",
    "OPTS",
    "LOG4J_OPTS",
    "LOG4J_ROOT_LOGLEVEL",
    "LOG4J_LOGGERS",
    "TOOLS_LOG4J_LOGLEVEL",
    "JVM_PERFORMANCE_OPTS",
    "GC_LOG_OPTS",
    "JMX_OPTS",
    "JMX_PORT",
    "JMX_HOSTNAME",
    "SECURITY_PROTOCOL",
    "SSL_KEYSTORE_FILENAME",
    "SSL_KEYSTORE_CREDENTIALS",
    "SSL_KEY_CREDENTIALS",
    "SSL_TRUSTSTORE_FILENAME",
    "SSL_TRUSTSTORE_CREDENTIALS",
}
"""Variables of Kafka's image and scripts that are not settings of a broker, without the prefix ``KAFKA_``."""
_HOST = re.compile(r"://[^:]*:")
_JAAS_FILE = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")
_JAAS_COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)
_JAAS_TEXT = r"""(?:"(?:[^"\\]|\\.)*"|[^"{};])*"""
_JAAS_SECTION = re.compile(rf"([\w.\-]+)\s*\{{((?:{_JAAS_TEXT};)*)\s*\}}\s*;", re.DOTALL)
_JAAS_MODULE = re.compile(rf"\s*({_JAAS_TEXT});", re.DOTALL)
_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}

ReadFile = Callable[[str], str]


def container_environment(given: Mapping[str, str], read_file: ReadFile, *, mounted: bool) -> dict[str, str]:
    """Return the variables to add to the environment, as the scripts of Kafka's image derive them.

    Only the default of ``KAFKA_LOG_DIRS`` differs (`DATA_DIRECTORY`), and `LEVEL_VARIABLE` has Log4j's root level.

    Args:
        given: the environment of the container.
        read_file: returns the text of a file; raises OSError or UnicodeDecodeError.
        mounted: a ``server.properties`` is mounted, so that no default may override it.

    Raises:
        ConfigException: a variable is missing, or not supported on a controller; or a file that one names cannot be
            read, or lacks section ``KafkaServer``.
    """
    added: dict[str, str] = {}
    if given.get(_ROLES) == "controller":
        if given.get(_ADVERTISED):
            raise ConfigException(f"{_ADVERTISED} is not supported on a KRaft controller")
    elif not given.get(_LISTENERS) and given.get(_ADVERTISED):
        added[_LISTENERS] = _HOST.sub("://0.0.0.0:", given[_ADVERTISED])
    elif not (given.get(_LISTENERS) or given.get(_ROLES) or mounted):
        added.update(_DEFAULT_LISTENERS)
    if not (given.get("KAFKA_LOG_DIRS") or given.get("KAFKA_LOG_DIR") or mounted):
        added["KAFKA_LOG_DIRS"] = DATA_DIRECTORY
    level = _LEVELS.get(given.get(_LOG4J_LEVEL, "").upper())
    if level is not None and not given.get(LEVEL_VARIABLE):
        added[LEVEL_VARIABLE] = level
    advertised = given.get(_ADVERTISED, "")
    if "SSL://" in advertised:
        added.update(_tls_variables(given, read_file))
    if "SASL_" in advertised:
        added.update(_sasl_variables(given, read_file))
    return added


def unknown_variables(given: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each ``KAFKA_`` variable that is neither that of a setting nor one of Kafka's image."""
    known = {
        variable_name(key)
        for keys in (BROKER_KEYS, INTERNAL_BROKER_KEYS, OWN_BROKER_KEYS, AUTHORIZER_KEYS, QUOTA_KEYS)
        for key in keys
    }
    for name in sorted(given):
        if not name.startswith(_PREFIX) or name in known or name.startswith("KAFKA_LISTENER_NAME_"):
            continue
        if name.removeprefix(_PREFIX) in _NOT_SETTINGS:
            continue
        nearest = closest_match(name, known)
        hint = "" if nearest is None else f"; did you mean {nearest}?"
        yield f"{name} matches no setting and has no effect{hint}"


def variable_name(key: str) -> str:
    """Return the environment variable of a setting: ``num.partitions`` is ``KAFKA_NUM_PARTITIONS``."""
    return _PREFIX + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _required(given: Mapping[str, str], name: str) -> str:
    """Return the value of environment variable ``name`` in ``given``, which must be set.

    Raises:
        ConfigException: the variable is not set or empty.
    """
    value = given.get(name, "")
    if not value:
        raise ConfigException(f"{name} environment variable not set")
    return value


def _secret(given: Mapping[str, str], name: str, read_file: ReadFile) -> str:
    """Return the content, without its line end, of the file in `SECRETS` that a variable names.

    Raises:
        ConfigException: the variable is not set, or the file cannot be read.
    """
    return _read(f"{SECRETS}/{_required(given, name)}", read_file).rstrip("\n")


def _read(path: str, read_file: ReadFile) -> str:
    try:
        return read_file(path)
    except OSError as error:
        raise ConfigException(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigException(f"{path}: not UTF-8 text") from None


def _tls_variables(given: Mapping[str, str], read_file: ReadFile) -> dict[str, str]:
    """Return the variables of the TLS stores that their ``_FILENAME`` and ``_CREDENTIALS`` variables describe.

    Kafka's image requires file names. Here the location or key of the key store may be set instead; nothing is added
    then.

    Raises:
        ConfigException: a variable is missing, or its file cannot be read.
    """
    if "KAFKA_SSL_KEYSTORE_FILENAME" not in given and (
        given.get("KAFKA_SSL_KEYSTORE_LOCATION") or given.get("KAFKA_SSL_KEYSTORE_KEY")
    ):
        return {}
    added = {
        "KAFKA_SSL_KEYSTORE_LOCATION": f"{SECRETS}/{_required(given, 'KAFKA_SSL_KEYSTORE_FILENAME')}",
        "KAFKA_SSL_KEY_PASSWORD": _secret(given, "KAFKA_SSL_KEY_CREDENTIALS", read_file),
        "KAFKA_SSL_KEYSTORE_PASSWORD": _secret(given, "KAFKA_SSL_KEYSTORE_CREDENTIALS", read_file),
    }
    if given.get("KAFKA_SSL_CLIENT_AUTH", "") in ("required", "requested"):
        added["KAFKA_SSL_TRUSTSTORE_LOCATION"] = f"{SECRETS}/{_required(given, 'KAFKA_SSL_TRUSTSTORE_FILENAME')}"
        added["KAFKA_SSL_TRUSTSTORE_PASSWORD"] = _secret(given, "KAFKA_SSL_TRUSTSTORE_CREDENTIALS", read_file)
    return added


def _sasl_variables(given: Mapping[str, str], read_file: ReadFile) -> dict[str, str]:
    """Return variables of ``sasl.jaas.config`` for advertised listeners, from the JAAS file that ``KAFKA_OPTS`` names.

    Each listener gets one for each enabled mechanism that has a login module. There are none if it names no file.

    Raises:
        ConfigException: the file cannot be read, or has no section ``KafkaServer``.
    """
    found = _JAAS_FILE.search(given.get(_OPTS, ""))
    if found is None:
        return {}
    path = found[1].strip("\"'")
    sections = _jaas_sections(_read(path, read_file))
    mechanisms = [x.strip() for x in given.get("KAFKA_SASL_ENABLED_MECHANISMS", "GSSAPI").split(",")]
    added = {}
    for listener in given[_ADVERTISED].split(","):
        name = listener.partition("://")[0].strip().lower()
        modules = sections.get(f"{name}.KafkaServer", sections.get("KafkaServer"))
        if modules is None:
            raise ConfigException(f"{path}: no section KafkaServer")
        for mechanism in mechanisms:
            if mechanism in modules:
                key = f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"
                added[variable_name(key)] = modules[mechanism].replace("\\", "\\\\")
    return added


def _jaas_sections(text: str) -> dict[str, dict[str, str]]:
    """Return the login module of each SASL mechanism in a JAAS file, by section; malformed parts are ignored."""
    out: dict[str, dict[str, str]] = {}
    for section in _JAAS_SECTION.finditer(_JAAS_COMMENT.sub("", text)):
        modules = out.setdefault(section[1], {})
        for module in _JAAS_MODULE.finditer(section[2]):
            line = " ".join(module[1].split())
            class_name = line.partition(" ")[0].rpartition(".")[2]
            for mechanism in _MODULES.get(class_name, ()):
                modules[mechanism] = f"{line};"
    return out
