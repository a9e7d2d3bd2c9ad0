"""Build of the jar of the data source: ``python -m spark_it.ottla_log.build_jar``.

``javac`` compiles the sources against the jars of pyspark and of Spark's Kafka connector. The jar is equal byte for
byte for equal sources and an equal JDK: its entries are sorted and have a fixed time.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

from compat_tests.support.jars import CACHE, jars
from ottla.spark import JAR

SOURCES = Path(__file__).resolve().parent / "java"
JAVA_RELEASE = "17"
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_CLASS_PATH = ("spark-*", "scala-library-*", "jackson-*", "hadoop-client-api-*", "slf4j-api-*", "kryo-shaded-*")
_MANIFEST = "META-INF/MANIFEST.MF"


def build_jar(target: Path = JAR, sources: Path = SOURCES) -> Path:
    """Build the jar of the data source ``ottla-log``, unless it was built from the same sources; return its path.

    A lock on a file makes processes that build at the same time wait for each other.

    Raises:
        SystemExit: the sources do not compile.
    """
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "ottla-log.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build(target, sources)


def _build(target: Path, sources: Path) -> Path:
    manifest = f"Manifest-Version: 1.0\r\nSources-SHA-256: {_digest(sources)}\r\n\r\n"
    if target.is_file() and _manifest_of(target) == manifest:
        return target
    with tempfile.TemporaryDirectory() as folder:
        _compile(sources, Path(folder))
        entries = {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*.class")}
    for path in (sources / "META-INF").rglob("*"):
        if path.is_file():
            entries[path.relative_to(sources).as_posix()] = path.read_bytes()
    unfinished = target.with_suffix(".tmp")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as jar:
        for name, content in [(_MANIFEST, manifest.encode()), *sorted(entries.items())]:
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            jar.writestr(entry, content)
    unfinished.replace(target)
    return target


def _digest(sources: Path) -> str:
    """Return the SHA-256, in hex, of names and contents of all files below ``sources``."""
    digest = hashlib.sha256()
    for path in sorted(path for path in sources.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(sources).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _manifest_of(jar: Path) -> str:
    with zipfile.ZipFile(jar) as opened:
        return opened.read(_MANIFEST).decode()


def _compile(sources: Path, out: Path) -> None:
    """Compile the Java sources into folder ``out`` with javac.

    Warnings are errors, except those about manifests that name jars which do not exist.

    Raises:
        SystemExit: the sources do not compile.
    """
    folder = Path(pyspark.__file__).parent / "jars"
    paths = [*(path for name in _CLASS_PATH for path in sorted(folder.glob(name))), *jars("spark")]
    command = ["javac", "--release", JAVA_RELEASE, "-Xlint:all,-path,-processing", "-Werror", "-proc:none"]
    command += ["-encoding", "UTF-8", "-d", str(out), "-cp", ":".join(map(str, paths))]
    command += sorted(str(path) for path in sources.rglob("*.java"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the data source cannot be compiled:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    print(build_jar(), file=sys.stdout)
