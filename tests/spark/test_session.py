"""What a session of ours is told before it starts."""

from __future__ import annotations

import pytest

from stratalog.spark.session import session_configs

DRIVER, EXECUTOR = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
FAST = "-Darrow.enable_unsafe_memory_access=true"


def test_the_session_of_the_tests_was_started_by_it(spark):
    told = spark.sparkContext.getConf().get(DRIVER)
    assert FAST in told
    assert told.endswith("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    java = spark.sparkContext._jvm.java.lang.System
    assert java.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert java.getProperty("log4j2.configurationFile").endswith("quiet-log4j2.properties")


def test_options_for_java_come_behind_ours_so_that_they_win():
    given = {DRIVER: "-Xss4m -Darrow.enable_unsafe_memory_access=false", EXECUTOR: "-Xss2m"}
    configs = session_configs(given)
    quiet, *rest = configs[DRIVER].split()
    assert quiet.startswith("-Dlog4j2.configurationFile=file:")
    assert rest == [FAST, *given[DRIVER].split()]
    assert configs[EXECUTOR].split() == [FAST, "-Xss2m"]


def test_logging_of_the_caller_s_own_stays():
    mine = "-Dlog4j2.configurationFile=file:mine.properties"
    assert session_configs({DRIVER: mine})[DRIVER].split() == [FAST, mine]


@pytest.mark.parametrize("name", ["spark.driver.host", "spark.sql.session.timeZone"])
def test_configs_of_the_caller_win(name):
    assert session_configs({name: "mine"})[name] == "mine"
    assert session_configs({})[name] != "mine"
