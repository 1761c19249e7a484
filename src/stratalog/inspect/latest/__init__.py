"""The newest record of every key of a partition: find the newest offsets, spill what does not fit, read."""
