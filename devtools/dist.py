"""Build wheel, source distribution and documentation, and check them: ``python -m devtools.dist [--check]``.

All are made of the commit that is checked out, in a temporary directory, and are equal byte for byte for equal
commits: times are those of the commit (``SOURCE_DATE_EPOCH``), owners and modes are fixed, and the build backend is
pinned. The wheel contains the jar of the Spark data source, which depends on the JDK, too. With ``--check``, everything
is built twice, and the wheel is installed into an empty environment with a node that must accept and return a record.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from pathlib import Path

from ottla.spark import JAR
from spark_it.ottla_log.build_jar import build_jar

ROOT = Path(__file__).resolve().parent.parent
READY = "Kafka Server started: "


def main(arguments: list[str] | None = None) -> int:
    """Build into ``dist/`` or ``--out``, print the hashes, and check the result with ``--check``.

    Returns:
        Exit status: 1 if two builds differ, or the first record took longer than ``--within``; else 0.
    """
    parser = argparse.ArgumentParser("python -m devtools.dist", description=__doc__)
    parser.add_argument("--check", action="store_true", help="build twice, install the wheel, serve a record")
    parser.add_argument(
        "--within", type=float, default=60, metavar="SECONDS", help="limit from the wheel to the first record"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the files (default dist)")
    options = parser.parse_args(arguments)
    if changed := _git("status", "--porcelain", "--untracked-files=no"):
        print(f"not built: changes that are not committed:\n{changed}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        _install_backend(Path(folder))
        hashes = build(options.out, Path(folder))
        is_equal = not options.check or build(Path(folder, "again"), Path(folder)) == hashes
    for name, digest in sorted(hashes.items()):
        print(f"{digest}  {name}")
    if not is_equal:
        print("two builds of one commit differ", file=sys.stderr)
        return 1
    if not options.check:
        return 0
    print("a second build is equal")
    wheel = next(options.out / name for name in hashes if name.endswith(".whl"))
    elapsed = first_message(wheel)
    print(f"first message {elapsed:.1f} s after the start of an installation into an empty environment")
    return int(elapsed > options.within)


def build(out: Path, backend: Path) -> dict[str, str]:
    """Build source distribution, wheel and documentation of the commit ``HEAD`` into ``out``.

    ``backend``: folder with the installed build backend.

    Returns:
        SHA-256 of each file, in hexadecimal, by its name.
    """
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree, built = Path(folder, "tree"), Path(folder, "built")
        tree.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
        _run_build("--sdist", tree, built, backend, epoch)
        (raw,) = built.glob("*.tar.gz")
        source = out / raw.name
        rewrite_archive(raw, source, epoch)
        unpacked = Path(folder, "unpacked")
        with tarfile.open(source) as archived:
            archived.extractall(unpacked, filter="fully_trusted")
        (inner,) = unpacked.iterdir()
        build_jar(inner / "ottla" / "spark" / JAR.name, tree / "spark_it" / "ottla_log" / "java")
        _run_build("--wheel", inner, built, backend, epoch)
        (wheel,) = built.glob("*.whl")
        shutil.copyfile(wheel, out / wheel.name)
        site = out / source.name.replace(".tar.gz", "-docs.tar.gz")
        _build_site(tree, site, epoch)
    files = (source, out / wheel.name, site)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _build_site(tree: Path, archive: Path, epoch: int) -> None:
    """Build the documentation site of a source tree into ``archive`` (.tar.gz), in which it is one folder.

    Raises:
        SystemExit: Sphinx fails or warns.
    """
    site, raw = tree.parent / "site", tree.parent / "site.tar"
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-d", str(tree.parent / "doctrees"), "docs"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run([*command, str(site)], cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the documentation cannot be built:\n{done.stderr[-4000:]}")
    with tarfile.open(raw, "w") as packed:
        packed.add(site, archive.name.removesuffix(".tar.gz"))
    rewrite_archive(raw, archive, epoch)


def _install_backend(folder: Path) -> None:
    """Install the pinned build backend into a folder by pip; SystemExit if that fails."""
    pinned = ROOT / "packaging" / "build-requirements.txt"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "--target", folder, "-r", pinned], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the build backend cannot be installed:\n{done.stderr}")


def _run_build(kind: str, tree: Path, out: Path, backend: Path, epoch: int) -> None:
    """Build the distribution ``kind`` (``--sdist`` or ``--wheel``) of ``tree`` into ``out``; SystemExit if it fails.

    ``backend``: folder with the build backend. ``epoch``: time of all files, in seconds since 1970.
    """
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": str(backend)}
    command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(out), str(tree)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-4000:]}{done.stderr[-4000:]}")


def rewrite_archive(source: Path, target: Path, epoch: int) -> None:
    """Write the tar archive ``source`` to ``target`` as .tar.gz with sorted members and fixed times, owners and modes.

    ``epoch``: time of all members, in seconds since 1970.
    """
    with (
        tarfile.open(source) as read,
        target.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=epoch, fileobj=file) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(read.getmembers(), key=lambda member: member.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.linkname, plain.mtime = member.type, member.size, member.linkname, epoch
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            written.addfile(plain, read.extractfile(member) if member.isfile() else None)


def first_message(wheel: Path) -> float:
    """Install a wheel into an empty environment, start a node, write a record and read it; return the time in seconds.

    Raises:
        SystemExit: another record was read. CalledProcessError, TimeoutExpired: a command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        venv.create(Path(folder, "venv"), with_pip=True)
        programs = Path(folder, "venv", "bin")
        subprocess.run([programs / "pip", "install", "--quiet", "--disable-pip-version-check", wheel], check=True)
        command = [programs / "ottla", "serve", "--listen", "127.0.0.1:0", "--data-dir", str(Path(folder, "data"))]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder
        ) as node:
            try:
                assert node.stdout is not None
                line = next((line for line in node.stdout if line.startswith(READY)), "")
                address = line.removeprefix(READY).partition(",")[0]
                _exchange(programs / "ottla", address)
                return time.monotonic() - started
            finally:
                node.terminate()


def _exchange(ottla: Path, address: str) -> None:
    """Write a record to the node at ``address`` and read it by the command line tool; SystemExit if it is another."""
    to = ("--bootstrap-server", address)
    subprocess.run([ottla, "produce", "greetings", *to], input="hello\n", text=True, check=True, timeout=30)
    consume = [ottla, "consume", "greetings", "--from-beginning", "--exit", *to]
    done = subprocess.run(consume, capture_output=True, text=True, check=True, timeout=30)
    if done.stdout != "hello\n":
        raise SystemExit(f"read {done.stdout!r}")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
