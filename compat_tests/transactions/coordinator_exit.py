"""Ottla's command line in a process that kills itself.

``python -m compat_tests.transactions.coordinator_exit STEP ID FILE serve ...``. The coordinator of the transaction of
``ID`` kills itself at that step if ``FILE`` does not exist yet.
"""

from __future__ import annotations

import os
import signal
import sys

from ottla.cli.main import main
from sim.faults.transaction_steps import TransactionStep, observe_steps


def run_until_step(step: TransactionStep, transactional_id: str, mark: str, arguments: list[str]) -> int:
    """Run the command line; return the exit status of a process that survives."""

    def on_result(_node: int, name: str, taken: TransactionStep) -> None:
        if name == transactional_id and taken is step and not os.path.exists(mark):
            with open(mark, "x"):
                os.kill(os.getpid(), signal.SIGKILL)

    with observe_steps(on_result):
        return main(arguments)


if __name__ == "__main__":
    sys.exit(run_until_step(TransactionStep(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
