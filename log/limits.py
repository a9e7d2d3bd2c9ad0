"""Fixed limit of record batch validation, documented in the form of `ottla.broker.config.limits`."""

from __future__ import annotations

MAX_RECORD_ERRORS_PER_BATCH = 1000
"""Invalid records of one batch that a response names, {broker.config.limits.MAX_RECORD_ERRORS_PER_RESPONSE} in all.

Beyond: the rest of the batch is not validated; a partition that would name more names none.
"""
