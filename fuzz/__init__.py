"""Fuzzing: hostile bytes into every decoder and encoder, with the kernel's plain-Python twin as the judge.

A target is a module ``fuzz_<name>.py`` with ``TARGET_NAME``, ``one_input(data)``, which raises for a bug and
for nothing else, and ``seeds()``. It may answer something hashable: an input with an answer not seen before
is kept and mutated further. And it may have ``repair(data)``, which makes checksums and the like true again
behind a mutation.

    make fuzz                                     everything, about three minutes
    make fuzz ARGS="--only records --seconds 600"
    make fuzz ARGS="--replay fuzz/crashes/FILE"   what a saved input does

``corpus/<name>/`` holds small inputs that were interesting once; ``make test`` replays them.
"""
