"""The algebra of bounds: it may let through more, and never less, than the condition."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.spark.pushdown.pruning import EVERYTHING, NOTHING, Interval, Pruning
from stratalog.spark.read.triggers import backlog, limit_by_offsets
from stratalog.types import TopicPartition

NUMBERS = st.integers(-3, 3)
ROWS = [
    (topic, partition, offset, time)
    for topic in "ab"
    for partition in range(-1, 2)
    for offset in range(-2, 3)
    for time in range(-1, 2)
]


def leaf(column, low, high):
    """A condition, and its bound."""
    interval = Interval(low, high)
    at, bound = {
        "partitions": (1, Pruning(partitions=interval)),
        "offsets": (2, Pruning(offsets=interval)),
        "times_us": (3, Pruning(times_us=interval)),
    }[column]
    return (lambda row: interval.holds(row[at])), bound


def topic_leaf(name):
    return (lambda row: row[0] == name), Pruning(topics=frozenset({name}))


LEAVES = st.one_of(
    st.builds(
        leaf,
        st.sampled_from(["partitions", "offsets", "times_us"]),
        st.none() | NUMBERS,
        st.none() | NUMBERS,
    ),
    st.builds(topic_leaf, st.sampled_from("abc")),
    st.just((lambda row: row[3] % 2 == 0, EVERYTHING)),
    st.just((lambda row: False, NOTHING)),
)


def joined(parts):
    kind, one, other = parts
    if kind == "and":
        return (lambda row: one[0](row) and other[0](row)), one[1].both(other[1])
    return (lambda row: one[0](row) or other[0](row)), one[1].either(other[1])


CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(joined),
    max_leaves=8,
)


def passes(pruning, row):
    return (
        not pruning.is_nothing
        and (pruning.topics is None or row[0] in pruning.topics)
        and pruning.partitions.holds(row[1])
        and pruning.offsets.holds(row[2])
        and pruning.times_us.holds(row[3])
    )


@settings(deadline=None)
@given(CONDITIONS)
def test_what_passes_the_condition_passes_the_bounds(condition):
    holds, pruning = condition
    for row in ROWS:
        assert passes(pruning, row) or not holds(row)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
        min_size=1,
    ),
    st.integers(1, 3000),
)
def test_a_limited_trigger_moves_every_partition_that_holds_something(ranges, offsets_max):
    start = {place: low for place, (low, _) in ranges.items()}
    end = {place: low + size for place, (low, size) in ranges.items()}
    limited = limit_by_offsets(start, end, offsets_max)
    assert all(start[place] <= limited[place] <= end[place] for place in ranges)
    assert all(limited[place] > start[place] for place in ranges if end[place] > start[place])
    assert backlog(start, limited) <= offsets_max + len(ranges)
    if backlog(start, end) <= offsets_max:
        assert limited == end
