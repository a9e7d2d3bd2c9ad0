"""Check of the build: core packages are reached through links in ``ottla/``, which a download may turn into files."""

from pathlib import Path

CORE = ("wire", "log", "controller", "broker")
missing = [name for name in CORE if not (Path(__file__).parent / "ottla" / name / "__init__.py").is_file()]
if missing:
    links = ", ".join(f"ottla/{name} -> ../{name}" for name in missing)
    raise SystemExit(f"not symbolic links to packages: {links} (clone with core.symlinks=true, or make the links)")

from setuptools import setup  # noqa: E402 - a tree that cannot be built says so first

setup()
