"""``meta.properties``: Kafka's own files come back equal, Java's escapes are read, nonsense is one error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.errors import CorruptionError, UsageError
from stratalog.storage.formats.kafka_uuid import parse_uuid
from stratalog.storage.formats.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from stratalog.storage.names import META_PROPERTIES
from tests.judges.peers.golden import GOLDEN_DIR
from tests.scale import SCALE, sized

GOLDEN = sorted(GOLDEN_DIR.rglob(META_PROPERTIES))
CLUSTER = "ZstmTMyKSx6He5M8vdE77A"
DIRECTORY = "R8WDbwsa6b0SUS-lnJfu_g"


def test_golden_files_are_there():
    assert len(GOLDEN) > 20


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parent.name)
def test_golden_file_comes_back_byte_for_byte(path):
    """All but the date, which is not kept: it is handed in."""
    data = path.read_bytes()
    found = decode_meta_properties(data)
    assert found.version == 1
    date = data.splitlines()[1].removeprefix(b"#").decode()
    assert encode_meta_properties(found, written=date) == data


def test_fields_of_version_1():
    data = f"version=1\nnode.id=7\ncluster.id={CLUSTER}\ndirectory.id={DIRECTORY}\n".encode()
    expected = MetaProperties(CLUSTER, 7, parse_uuid(DIRECTORY), 1)
    assert decode_meta_properties(data) == expected


def test_directory_id_may_be_missing():
    properties = MetaProperties(CLUSTER, 0)
    data = encode_meta_properties(properties)
    assert data == f"#\n#\nnode.id=0\nversion=1\ncluster.id={CLUSTER}\n".encode()
    assert decode_meta_properties(data) == properties


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", MetaProperties(None, None, None, 0)),
        (b"#\n#Mon\nversion=0\nbroker.id=3\n", MetaProperties(None, 3, None, 0)),
        (b"broker.id=3\ncluster.id=x y\n", MetaProperties("x y", 3, None, 0)),
        (b"node.id=4\n", MetaProperties(None, None, None, 0)),
    ],
)
def test_version_0_requires_nothing(data, expected):
    assert decode_meta_properties(data) == expected


def test_value_is_escaped_as_java_escapes_it():
    properties = MetaProperties(" a=b:c#d!e\\ f", 0)
    data = encode_meta_properties(properties)
    assert data.splitlines()[-1] == rb"cluster.id=\ a\=b\:c\#d\!e\\ f"
    assert decode_meta_properties(data) == properties


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"version=2\nnode.id=1\ncluster.id=x\n", "version is 2"),
        (b"version=-1\n", "version is -1"),
        (b"version=one\n", "version is not a number"),
        (b"version=99999999999\n", "version is not a number"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\ncluster.id=x\n", "node.id is missing"),
        (b"version=1\ncluster.id=x\nbroker.id=1\n", "node.id is missing"),
        (b"version=1\ncluster.id=x\nnode.id=2147483648\n", "node.id is not a number"),
        (b"version=1\ncluster.id=x\nnode.id= 1 \n", "node.id is not a number"),
        (b"version=1\ncluster.id=\nnode.id=1\n", "cluster.id is not of plain"),
        (b"version=1\ncluster.id=\\u0000\nnode.id=1\n", "cluster.id is not of plain"),
        (b"version=0\ndirectory.id=short\n", "directory.id is not an id"),
        (b"version=0\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAg\n", "directory.id is not an id"),
        (b"a=\\u12g4\n", "line 1: \\u is not followed"),
        (b"a=\\u12", "line 1: \\u is not followed"),
    ],
)
def test_wrong_file_is_an_error(data, detail):
    with pytest.raises(CorruptionError) as caught:
        decode_meta_properties(data)
    assert caught.value.reason == "meta_properties"
    assert caught.value.detail.startswith(detail)


PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=30)


@given(
    PLAIN,
    st.integers(0, 2**31 - 1),
    st.one_of(st.none(), st.binary(min_size=16, max_size=16).map(lambda b: b"\x01" + b[1:])),
    PLAIN,
)
def test_everything_comes_back(cluster_id, node_id, directory_id, written):
    properties = MetaProperties(cluster_id, node_id, directory_id)
    assert decode_meta_properties(encode_meta_properties(properties, written=written)) == properties


@settings(max_examples=sized(100, 300 * SCALE))
@given(
    st.one_of(
        st.binary(max_size=80),
        st.text("=:#!\\u0041 \t\n\rversion.id", max_size=60).map(lambda text: text.encode()),
    )
)
def test_any_bytes_are_properties_or_one_typed_error(data):
    try:
        decode_meta_properties(data)
    except CorruptionError:
        return


@pytest.mark.parametrize(
    ("properties", "written"),
    [
        (MetaProperties(None, 1), ""),
        (MetaProperties("x", None), ""),
        (MetaProperties("", 1), ""),
        (MetaProperties("x\ny", 1), ""),
        (MetaProperties("x", 1), "a\nversion=0"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(properties, written):
    with pytest.raises(UsageError):
        encode_meta_properties(properties, written=written)
