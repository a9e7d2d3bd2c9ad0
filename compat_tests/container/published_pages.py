"""A browser behind published ports: ``python -m compat_tests.container.published_pages PATH PORT=HOST:PORT...``.

Prints the page of each port as JSON: a list of texts.
"""

from __future__ import annotations

import json
import sys
import urllib.request

from compat_tests.container.published_ports import TIMEOUT_S, forward


def main(path: str, published: list[str]) -> None:
    """Read a page through each published port by the name ``localhost``, as in a browser."""
    pages = []
    for item in published:
        port, _, address = item.partition("=")
        forward(int(port), address)
        with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=TIMEOUT_S) as response:
            pages.append(response.read().decode())
    print(json.dumps(pages))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
