"""Spark as processes: sessions with a Java of their own, a standalone cluster, and whom to kill."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from unittest import mock

from tests.judges.kafka.oracle import OracleUnavailable, cache_root, java_command

ROOT = Path(__file__).parents[3]
#: Starts soonest: nothing runs for long enough to be worth a second compiler.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
EXECUTOR = "CoarseGrainedExecutorBackend"
#: Names an option for the driver's Java: which classes it finds ready, or where it is to write them.
_CLASSES = "STRATALOG_TEST_CLASSES"
_LOG_CONFIG = ROOT / "src" / "stratalog" / "spark" / "quiet-log4j2.properties"


def wait_for(what: str, is_so: Callable[[], Any], timeout_s: float = 180) -> Any:
    """What ``is_so`` gives once it is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.02)
    return found


# --- processes -------------------------------------------------------------------------------------


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """The fields behind the name, which may hold anything: state, parent, group, session, …"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def parent_of(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def is_alive(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def of_session(session: int) -> list[int]:
    """All processes that a process started with ``start_new_session`` has led to, and that live."""
    return [p for p in _pids() if len(f := _stat(p)) > 3 and int(f[3]) == session and f[0] != "Z"]


def kill_session(session: int) -> None:
    """Kill them all; nobody of them can start another in between."""
    while found := of_session(session):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def executors_below(*roots: int) -> list[int]:
    """The executors among the children of these processes and theirs."""
    found = []
    for pid in _pids():
        if EXECUTOR in command_line(pid) and is_alive(pid):
            above = pid
            while above > 1 and above not in roots:
                above = parent_of(above)
            if above in roots:
                found.append(pid)
    return found


def executor_of(pid: int) -> int:
    """The executor that a Python worker works for."""
    while pid > 1 and EXECUTOR not in command_line(pid):
        pid = parent_of(pid)
    assert pid > 1, "its executor is gone"
    return pid


# --- sessions --------------------------------------------------------------------------------------


def make_spark_home(folder: Path) -> Path:
    """PySpark's own folder by links. A cluster inside a driver writes its ``work`` here and not into the
    installed package; and workers find PySpark where it is installed, and do not compile it from a zip."""
    import pyspark

    home = folder / "spark-home"
    if not home.exists():
        home.mkdir(parents=True)
        (installed,) = pyspark.__path__
        for each in Path(installed).iterdir():
            if each.name not in ("work", "python"):
                (home / each.name).symlink_to(each)
    return home


def environment(folder: Path, home: Path | None = None) -> dict[str, str]:
    """What every process of Spark's gets beyond our own environment."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        "SPARK_HOME": str(home or make_spark_home(folder)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
    }


def quick_configs(folder: Path) -> dict[str, str]:
    options = f"-Dlog4j2.configurationFile=file:{_LOG_CONFIG} {QUICK_JAVA}"
    return {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{options} {os.environ.get(_CLASSES, '')}",
        "spark.executor.extraJavaOptions": options,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.pollingDelay": "20ms",
    }


@contextmanager
def own_session(
    folder: Path, master: str, configs: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """A session whose Java starts with it and ends with it."""
    from pyspark import SparkContext

    from stratalog.spark.session import session

    assert SparkContext._active_spark_context is None
    with mock.patch.dict(os.environ, environment(folder)):
        started = None
        try:
            started = session(
                "stratalog-interop",
                master=master,
                configs={**quick_configs(folder), **(configs or {})},
            )
            yield started
        finally:
            if started is not None:
                started.stop()
            end_java()


def end_java() -> None:
    """Spark keeps its Java for a next session; ours may need another one."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(30)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()


# --- a driver that starts again and again -----------------------------------------------------------


def quick_home() -> dict[str, str]:
    """The environment of a driver that finds Spark's classes ready: half of a start is to load them.

    Made once by a driver that is let run to its end, and kept in the cache of the Kafka oracle: the classes
    hold for one Java and one path only."""
    import pyspark

    try:
        java = subprocess.run([java_command(), "-version"], capture_output=True, text=True).stderr
    except OracleUnavailable:
        return {}  # the session brings a Java of its own
    key = hashlib.sha256(f"{pyspark.__path__} {pyspark.__version__} {java}".encode()).hexdigest()
    folder = cache_root() / f"spark-{key[:16]}"
    home, classes = folder / "spark-home", folder / "classes.jsa"
    if not home.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as name, suppress(OSError):
            make_spark_home(Path(name)).rename(home)  # OSError: another process was quicker
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=folder) as name:
            partial = Path(name, "classes.jsa")
            _run_once(Path(name), home, f"-XX:ArchiveClassesAtExit={partial} -Xlog:cds=off")
            partial.rename(classes)
    return {"SPARK_HOME": str(home), _CLASSES: f"-XX:SharedArchiveFile={classes} -Xlog:cds=off"}


def _run_once(folder: Path, home: Path, java_options: str) -> None:
    import stratalog

    with stratalog.open(str(folder / "source")) as logs:
        logs.create("in", 2)
        logs.append("in", [("key", str(number)) for number in range(10)])
    arguments = [folder / "source", folder / "target", folder / "checkpoint", "windows", 0]
    said = folder / "said.log"
    with said.open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark_programs.copy_stream", *map(str, arguments)],
            cwd=folder,
            env={
                **os.environ,
                **environment(folder, home),
                _CLASSES: java_options,
                "STRATALOG_TEST_KILL": str(folder / "nobody"),
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        assert driver.wait(300) == 0, said.read_text()
        wait_for("Java to write its classes", lambda: not of_session(driver.pid), 300)
    finally:
        kill_session(driver.pid)
        driver.wait()


# --- a cluster -------------------------------------------------------------------------------------


class StandaloneCluster:
    """A master and two workers on two hosts of the loopback, each with a core."""

    HOSTS = ("127.0.0.1", "127.0.0.2")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._home = make_spark_home(folder)
        self._port, self._page_port = _free_ports(2)
        self.url = f"spark://127.0.0.1:{self._port}"
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._master = self._start(
                "master",
                "127.0.0.1",
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", str(self._port)),
                *("--webui-port", str(self._page_port)),
            )
            for host in self.HOSTS:
                self.workers[host] = self._start(
                    f"worker-{host}",
                    host,
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", host, "--webui-port", "0", "-c", "1", "-m", "1g"),
                    *("--work-dir", str(self.folder / f"work-{host}"), self.url),
                )
            wait_for("two workers", lambda: self.alive_workers() == len(self.HOSTS))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for process in (*self.workers.values(), self._master):
            if process is not None:
                kill_session(process.pid)
                process.wait()

    def _start(self, name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as said:
            return subprocess.Popen(
                [str(self._home / "bin" / "spark-class"), *arguments],
                cwd=self.folder,
                env={
                    **os.environ,
                    **environment(self.folder),
                    "SPARK_LOCAL_IP": host,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
                },
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # with all that it starts it can be found, and ended
            )

    def alive_workers(self) -> int:
        for process in (*self.workers.values(), self._master):
            assert process is not None
            assert process.poll() is None or process.returncode == -signal.SIGKILL, process.args
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page_port}/json/") as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:
            return 0

    def executors(self) -> dict[str, list[int]]:
        """By host."""
        return {host: executors_below(process.pid) for host, process in self.workers.items()}

    def kill_worker(self, host: str) -> None:
        """Its executors lose it and end by themselves."""
        self.workers[host].kill()
        self.workers[host].wait()


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
