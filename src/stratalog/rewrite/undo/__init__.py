"""Keep the originals of a rewrite, and put them back.

- ``keep``: hard links of all files of the replaced segments, in a folder within the partition's folder, with
  the manifest. They are there before the swap.
- ``kept``: the folders that there are, and dropping one.
- ``restore``: whether a rewrite can be undone, and doing it by the same crash-safe swap.
"""
