"""A small real file system in a file: one that gets full, breaks, or is copied as a power cut would leave it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

MIB = 1 << 20


@cache
def unavailable_reason() -> str | None:
    """Return the reason why an image cannot be mounted here; None if it can."""
    if os.geteuid() != 0:
        return "mounting an image takes root"
    if not all(shutil.which(tool) for tool in ("mkfs.ext4", "mount", "umount")):
        return "mkfs.ext4 and mount are not installed"
    with tempfile.TemporaryDirectory() as where:
        try:
            Ext4Image(Path(where), "try", 8)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"images cannot be mounted here: {error}"
        finally:
            for path in ("try", "try.under"):
                subprocess.run(["umount", "-l", f"{where}/{path}"], check=False, capture_output=True)
    return None


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _fill(directory: Path) -> None:
    with (directory / "filler").open("wb", buffering=0) as file:
        for size in (64 * 1024, 512):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


class Ext4Image:
    """An ext4 image, mounted at ``path``. The image itself lies in memory, in a file system that can be filled too."""

    def __init__(self, where: Path, name: str, size_mib: int, image: Path | None = None) -> None:
        self.size_mib = size_mib
        self.under = where / f"{name}.under"
        self.path = where / name
        self.image = self.under / "image"
        for directory in (self.under, self.path):
            directory.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(self.under))
        if image is not None:
            _run("cp", "--sparse=always", str(image), str(self.image))
        else:
            with self.image.open("wb") as file:
                file.truncate(size_mib * MIB)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
        self.mount()

    def mount(self) -> None:
        """Mount it; an unclean image is repaired by its journal."""
        _run("mount", "-o", "loop", str(self.image), str(self.path))

    def unmount(self) -> None:
        """Take it off, even while it is in use."""
        subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)

    def remove(self) -> None:
        """Take everything off."""
        self.unmount()
        subprocess.run(["umount", "-l", str(self.under)], check=False, capture_output=True)

    def fill(self) -> None:
        """Leave no room: ENOSPC for whoever writes."""
        _fill(self.path)

    def free_space(self) -> None:
        """Give the room back."""
        (self.path / "filler").unlink()

    def fail_writes(self) -> None:
        """Fail all later writes to the image: a sync gives EIO, as from a failed disk."""
        _fill(self.under)

    def repair(self) -> None:
        """The disk works again, and is mounted anew."""
        self.unmount()
        (self.under / "filler").unlink()
        self.mount()

    def copy_as_after_power_cut(self, where: Path, name: str) -> Ext4Image:
        """What a power cut would leave, mounted: the image's bytes without what the page cache still holds.

        Whoever writes must stand still meanwhile: the copy has to be of one instant.
        """
        return Ext4Image(where, name, self.size_mib, self.image)
