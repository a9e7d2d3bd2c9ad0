"""``ottla serve --secure``: TLS certificates and SASL credentials, created at the first start and stored.

A node that joins a cluster takes its CA and password from the file of ``--join-credentials``, and creates only a
certificate of its own.
"""

from __future__ import annotations

import argparse
import socket

from ottla.broker.config.listener_config import ANY_HOST, LISTENERS, ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.config.startup_checks import check_startup_values
from ottla.cli.node_setup.settings import advertised_machine_name, configure, configure_with_saved_join
from ottla.env.hosts import canonical_host, format_address
from ottla.tools import security_setup


def configure_secure(options: argparse.Namespace, values: dict[str, str]) -> tuple[NodeConfig, list[str]]:
    """Return the node's configuration with a TLS and SASL listener, and warnings to print.

    At the first start certificates and credentials are created on disk. With ``--join`` the CA and the password are
    those in the file of ``--join-credentials``, and the cluster is contacted, also at later starts.

    Raises:
        ConfigException: a setting is invalid or contradicts ``--secure``, the credentials are damaged or missing, or
            the cluster cannot be joined.
        InvalidTlsConfig: the certificates cannot be created.
        StorageFormatError, LogDirectoryInUse: only with ``--join``, as by `configure_joining`.
        CorruptFile: ``meta.properties`` or the stored settings of a join are malformed.
        OSError: a file cannot be read or written.
    """
    if LISTENERS in values:
        raise ConfigException(f"--secure sets {LISTENERS}: remove one of the two")
    warnings = check_startup_values(values)
    config = configure(values, options.data_dir, options.listen)
    directory = config.metadata_dir or config.data_dirs[0]
    try:
        made = _security_setup(options, values, config, directory)
    except security_setup.SecuritySetupFailed as error:
        raise ConfigException(str(error)) from None
    settings = {**security_setup.cluster_settings(made, directory, config.host, config.port), **values}
    if options.join is not None:
        # lazy: 42.9 ms, 2814 kB: only with --join
        from ottla.cli.node_setup.join import configure_joining
        from ottla.client.security_config import parse_connection_security

        access = parse_connection_security(security_setup.client_config(made, "java", options.join))
        return configure_joining(options, settings, access), warnings
    config = configure_with_saved_join(settings, options.data_dir, options.listen)
    config.cluster_id = options.cluster_id
    config.credentials = security_setup.scram_credential_records(made)
    return config, warnings


def _security_setup(
    options: argparse.Namespace, values: dict[str, str], config: NodeConfig, directory: str
) -> security_setup.SecuritySetup:
    """Return the certificates and credentials of a node for ``ottla serve --secure``; create them at the first start.

    A node that joins a cluster uses the CA and the password in the file of ``--join-credentials``. ``directory``: the
    metadata log directory, in which they are stored.

    Raises:
        SecuritySetupFailed: the stored setup or the file of credentials is damaged, the directory has data without a
            setup, ``--join`` lacks credentials, or the directory has those of a cluster and ``--join`` is not set.
        InvalidTlsConfig: the certificates cannot be created.
        OSError: a file cannot be read or written.
    """
    joined = None
    is_member = security_setup.has_security_setup(directory) and security_setup.is_formatted(directory)
    has_copy = security_setup.has_copied_credentials(directory)
    if options.join_credentials is not None and not is_member:
        joined = security_setup.load_join_credentials(options.join_credentials)
    elif options.join is not None and not is_member and not has_copy:
        text = f"--secure --join: copy {security_setup.JOIN_FILE} from a node of the cluster, and name it in"
        raise security_setup.SecuritySetupFailed(f"{text} --join-credentials FILE")
    elif options.join is None and not is_member and has_copy:
        text = f"{directory} has the credentials of a cluster that the node has not joined: add --join HOST:PORT"
        text += f", or remove {directory}/{security_setup.STATE_FILE} to create a new cluster"
        raise security_setup.SecuritySetupFailed(text)
    hosts = [] if config.host in ANY_HOST else [config.host]
    hosts.append(advertised_machine_name({**values, "controller.quorum.voters": "x"}))
    if options.join is not None and config.host in ANY_HOST:
        hosts += local_addresses_toward(options.join)
    return security_setup.ensure_security_setup(directory, tuple(hosts), joined=joined)


def local_addresses_toward(address: str) -> list[str]:
    """Return a list with the address of this machine that ``host:port`` would see; empty without a route.

    Nothing is sent.
    """
    host, _, port = address.rpartition(":")
    try:
        kind, _, _, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # a datagram socket sends nothing here
            return [canonical_host(probe.getsockname()[0])]
    except (OSError, ValueError):
        return []


def write_client_settings(config: NodeConfig, port: int) -> None:
    """Write client properties files for ``port``, the bound port of the node's listener, and print their paths."""
    directory = config.metadata_dir or config.data_dirs[0]
    host = "localhost" if config.host in ANY_HOST else config.host
    made = security_setup.ensure_security_setup(directory, ())
    lines = security_setup.write_client_files(made, directory, format_address(host, port))
    print("\n".join([f"user {security_setup.USER}; client settings:", *lines]), flush=True)
