"""Small ext4 file system in a file, which can be filled, broken, or copied as after a power cut."""

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
    """Mounted ext4 image at ``path``. The image itself lies in memory, in a file system that can be filled too."""

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
        """Mount the image; an unclean one is repaired by its journal."""
        _run("mount", "-o", "loop", str(self.image), str(self.path))

    def unmount(self) -> None:
        """Unmount the image, even while it is in use."""
        subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)

    def remove(self) -> None:
        """Unmount all and remove the files."""
        self.unmount()
        subprocess.run(["umount", "-l", str(self.under)], check=False, capture_output=True)

    def fill(self) -> None:
        """Fill the file system: writes fail with ENOSPC."""
        _fill(self.path)

    def free_space(self) -> None:
        """Free the space again."""
        (self.path / "filler").unlink()

    def fail_writes(self) -> None:
        """Fail all later writes to the image: a sync gives EIO, as from a failed disk."""
        _fill(self.under)

    def repair(self) -> None:
        """End the failures and mount the image again."""
        self.unmount()
        (self.under / "filler").unlink()
        self.mount()

    def copy_as_after_power_cut(self, where: Path, name: str) -> Ext4Image:
        """Mount a copy of the image as after a power cut: its bytes without the page cache.

        Writers must be paused meanwhile: the copy has to be of one instant.
        """
        return Ext4Image(where, name, self.size_mib, self.image)
