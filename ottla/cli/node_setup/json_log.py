"""Formatter of log entries as JSON."""

from __future__ import annotations

import json
import logging


class JsonFormatter(logging.Formatter):
    """Formatter of entries as JSON objects: ``time`` (RFC 3339), ``level``, ``logger``, ``message``, ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log entry as one line of JSON, without a line end."""
        zone = self.formatTime(record, "%z")
        seconds = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        row = {
            "time": f"{seconds}.{int(record.msecs):03d}{zone[:3]}:{zone[3:]}",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row)
