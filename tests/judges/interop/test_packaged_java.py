"""Spark on the Java that comes as a package, as on a machine that has none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytestmark = pytest.mark.interop

LOCK = Path(__file__).parents[3] / "requirements" / "java.lock"
PROGRAM = """
import sys
from stratalog.spark import session

with_java = session("packaged", master="local[2]")
root = sys.argv[1]
rows = with_java.range(1000).selectExpr("cast(id as string) key", "cast(2 * id as string) value")
rows.write.format("stratalog").option("topic", "t").mode("append").save(f"{root}/log")
read = with_java.read.format("stratalog").load(f"{root}/log")
read.write.option("compression", "zstd").parquet(f"{root}/parquet")
stream = with_java.readStream.format("stratalog").option("subscribePattern", ".*")
stream = stream.option("startingOffsets", "earliest")
writer = stream.load(f"{root}/log").select("key", "value").writeStream.format("stratalog")
writer = writer.option("topic", "u").option("checkpointLocation", f"{root}/checkpoint")
writer.trigger(availableNow=True).start(f"{root}/copy").awaitTermination()
version = with_java.sparkContext._jvm.java.lang.System.getProperty("java.home")
counts = [with_java.read.parquet(f"{root}/parquet").count()]
counts += [with_java.read.format("stratalog").load(f"{root}/{name}").count() for name in ("log", "copy")]
print("found", version, *counts)
with_java.stop()
"""


def without_java(folder: Path) -> str:
    """A PATH with every command of this one's but Java's."""
    folder.mkdir()
    for part in map(Path, os.environ["PATH"].split(os.pathsep)):
        for command in part.iterdir() if part.is_dir() else ():
            link = folder / command.name
            if not command.name.startswith("java") and not link.is_symlink():
                link.symlink_to(command)
    return str(folder)


def test_a_session_on_a_machine_without_java(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    install += ["--only-binary", ":all:", "--target", str(packages), "--requirement", str(LOCK)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the package cannot be installed here: {done.stderr.strip()[-200:]}")
    environment = os.environ | {
        "PATH": without_java(tmp_path / "commands"),
        "PYTHONPATH": str(packages),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    environment.pop("JAVA_HOME", None)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    word, home, *counts = ran.stdout.split()
    assert (word, counts) == ("found", ["1000"] * 3)
    assert home.startswith(str(packages))
