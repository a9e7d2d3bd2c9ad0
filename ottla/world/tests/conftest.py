"""Certificates, made once for each module that asks for them."""

from __future__ import annotations

import pytest

from ottla.world.tests.authority import Authority
from ottla.world.tls import Store


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def keys(authority: Authority) -> Store:
    return authority.issue("server", "/CN=localhost")
