"""A real file system is shut down under a writer, as a power cut does it; what was synced is there.

Goal: an acknowledgment with sync is kept by ext4 with its own journal and recovery (D1). Method: a file
system in an image is mounted, a writer appends, ``FS_IOC_SHUTDOWN`` stops the file system without flushing
anything, and it is mounted again. Needs root and loop devices; skipped where there are none.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crash.test_kill_loop import acknowledged, check_log, note, rest_of, start_writer
from tests.scale import SCALE, fresh

pytestmark = [pytest.mark.proof, pytest.mark.scaled]  # it mounts file systems, and waits for disks

FS_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING = 2
CYCLES = 8 * SCALE


class Volume:
    """A file system in an image file."""

    def __init__(self, folder: Path, options: str) -> None:
        self.image = folder / "image"
        self.mount_point = folder / "mounted"
        self.options = options
        self.mount_point.mkdir()
        with self.image.open("wb") as file:
            file.truncate(64 << 20)

    def make(self) -> None:
        run("mkfs.ext4", "-q", "-F", str(self.image))

    def mount(self) -> None:
        # The journal is committed every five seconds otherwise, which on a busy machine is soon.
        options = f"loop,commit=600,{self.options}"
        run("mount", "-o", options, str(self.image), str(self.mount_point))

    def unmount(self) -> None:
        if os.path.ismount(self.mount_point):
            run("umount", str(self.mount_point))

    def cut_power(self) -> None:
        fd = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING))
        finally:
            os.close(fd)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    if done.returncode:
        raise OSError(f"{' '.join(command[:1])}: {done.stderr.decode().strip()}")


@pytest.fixture(params=["data=ordered", "data=writeback"])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Volume]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    if not all(map(shutil.which, ("mkfs.ext4", "mount", "umount"))):
        pytest.skip("mkfs.ext4, mount or umount is not installed")
    made = Volume(tmp_path, request.param)
    try:
        made.make()
        made.mount()
    except OSError as error:
        pytest.skip(f"a file system in an image cannot be mounted here: {error}")
    try:
        yield made
    finally:
        made.unmount()


def new_log(volume: Volume) -> Path:
    root = volume.mount_point / "data"
    (root / "t-0").mkdir(parents=True)
    run("sync", "--file-system", str(root))  # and not those of other tests
    return root


def shut_down(volume: Volume, root: Path, mode: str, random: Random, told: dict[int, str]) -> None:
    """Shut the file system down under a writer, and mount it again."""
    writer = start_writer(root, mode, f"{random.random()}")
    try:
        note(told, acknowledged(writer, random.randint(1, 100)))
        time.sleep(random.random() / 100)
        # A power cut lets nobody tell anything any more. This ioctl does: ext4 lets an fdatasync that is
        # under way then succeed, though nothing of it is kept. So the writer stands still before.
        os.kill(writer.pid, signal.SIGSTOP)
        os.waitpid(writer.pid, os.WUNTRACED)
        try:
            volume.cut_power()
        except OSError as error:
            pytest.skip(f"the file system cannot be shut down here: {error}")
    finally:
        writer.kill()
    note(told, rest_of(writer))
    volume.unmount()
    volume.mount()


def test_what_was_synced_survives_the_end_of_the_file_system(
    volume: Volume, record_property: Callable[[str, object], None]
) -> None:
    root, random, told = new_log(volume), Random(fresh(11)), dict[int, str]()
    for _ in range(CYCLES):
        shut_down(volume, root, "sync", random, told)
        check_log(root, told)
    record_property("counted: file systems shut down, no acknowledged record lost", CYCLES)


def test_what_was_not_synced_is_lost(volume: Volume) -> None:
    """The test above can fail: without the syncs, it would."""
    root, random = new_log(volume), Random(fresh(12))
    for _ in range(50):
        told: dict[int, str] = {}
        # One that flushes now and then would, on a busy machine, be met while it does.
        shut_down(volume, root, "never", random, told)
        try:
            check_log(root, told)
        except AssertionError as error:
            if "acknowledged records are lost" not in str(error):
                raise
            return
    pytest.fail("nothing was lost in fifty cycles: the file system is not really shut down")
