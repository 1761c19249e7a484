"""The jobs ``compact``, ``erase``, ``recompress`` and ``upgrade``: rewrite logs that outgrow one machine."""
