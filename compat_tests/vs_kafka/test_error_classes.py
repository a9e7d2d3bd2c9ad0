"""Names of the Java exception classes that tools print, compared with those of Kafka's error codes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from compat_tests.support.jars import classpath, jars
from ottla.cli.kafka_tools.java_errors import java_class
from ottla.wire.errors import ErrorCode


def test_java_class_of_every_error_code_is_that_of_kafka() -> None:
    jars("kafka")
    program = Path(__file__).parent.parent / "java" / "ErrorClasses.java"
    done = subprocess.run(["java", "-cp", classpath(), str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = dict(line.split() for line in done.stdout.splitlines())
    assert {str(code.value): java_class(code) for code in ErrorCode if code is not ErrorCode.NONE} == expected
