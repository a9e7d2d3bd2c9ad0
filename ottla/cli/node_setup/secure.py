"""``ottla serve --secure``: generate TLS certificates and SASL credentials; write client properties."""

from __future__ import annotations

import argparse

from ottla.broker.config.listener_config import ANY_HOST, LISTENERS, ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.config.startup_checks import check_startup_values
from ottla.cli.node_setup.settings import advertised_machine_name, configure, configure_with_saved_join
from ottla.env.hosts import format_address
from ottla.tools import security_setup


def configure_secure(options: argparse.Namespace, values: dict[str, str]) -> tuple[NodeConfig, list[str]]:
    """Return the node's configuration with a TLS and SASL listener, and warnings to print.

    Raises:
        ConfigException: a setting contradicts ``--secure``.
        InvalidTlsConfig, OSError: the certificates cannot be created.
    """
    if options.join is not None or LISTENERS in values:
        what = "--join" if options.join is not None else LISTENERS
        raise ConfigException(f"--secure names the listeners itself: leave out {what}, or --secure")
    warnings = check_startup_values(values)
    config = configure(values, options.data_dir, options.listen)
    hosts = () if config.host in ANY_HOST else (config.host,)
    directory = config.metadata_dir or config.data_dirs[0]
    try:
        made = security_setup.ensure_security_setup(
            directory, (*hosts, advertised_machine_name({**values, "controller.quorum.voters": "x"}))
        )
    except security_setup.SecuritySetupFailed as error:
        raise ConfigException(str(error)) from None
    settings = {**security_setup.broker_settings(made, directory, config.host, config.port), **values}
    config = configure_with_saved_join(settings, options.data_dir, options.listen)
    config.cluster_id = options.cluster_id
    config.credentials = security_setup.scram_credential_records(made)
    return config, warnings


def write_client_settings(config: NodeConfig, port: int) -> None:
    """Write client properties files with the bound port of the listener, and print their paths."""
    directory = config.metadata_dir or config.data_dirs[0]
    host = "localhost" if config.host in ANY_HOST else config.host
    made = security_setup.ensure_security_setup(directory, ())
    lines = security_setup.write_client_files(made, directory, format_address(host, port))
    print("\n".join([f"clients log in as {security_setup.USER}; their settings:", *lines]), flush=True)
