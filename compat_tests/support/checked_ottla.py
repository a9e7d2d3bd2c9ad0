"""``ottla`` with checks of its responses (`sim.checkers.response_checks`): the command of `OttlaProcess` in tests.

``python compat_tests/support/checked_ottla.py serve ...``. A response that breaks a property ends the node with a
traceback in its log. No setting of the product turns this on, and benchmarks run ``ottla`` itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)
    from ottla.cli.main import main
    from sim.checkers.response_checks import install

    install()
    sys.exit(main())
