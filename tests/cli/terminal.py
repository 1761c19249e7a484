"""A process that believes it runs on a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import threading

from tests.cli.runner import ROOT, Run, command, environment


def _drain(fd: int, into: bytearray) -> None:
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while data := os.read(fd, 65536):
            into += data


def on_terminal(*arguments: object, stdout: bool = True, program=None, **changes: str) -> Run:
    """Run with stderr, and stdout where wanted, on a terminal of their own."""
    screens = {"err": pty.openpty()}
    if stdout:
        screens["out"] = pty.openpty()
    texts = {name: bytearray() for name in screens}
    readers = [
        threading.Thread(target=_drain, args=(leader, texts[name]))
        for name, (leader, _) in screens.items()
    ]
    process = subprocess.Popen(
        program or command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=screens["out"][1] if stdout else subprocess.DEVNULL,
        stderr=screens["err"][1],
        env=environment(**{"TERM": "xterm", **changes}),
        cwd=ROOT,
    )
    for _, follower in screens.values():
        os.close(follower)
    for reader in readers:
        reader.start()
    code = process.wait(timeout=60)
    for reader in readers:
        reader.join()
    for leader, _ in screens.values():
        os.close(leader)
    shown = bytes(texts.get("out", b"")).replace(b"\r\n", b"\n")
    return Run(code, shown, texts["err"].decode().replace("\r\n", "\n"))
