"""One module a codec, both directions: ``write`` frames a payload as Kafka does, ``read`` decodes one.

May import ``errors`` and ``layout`` only. ``damage`` is how a payload is refused, ``scratch`` is where
it is decoded; the rest of ``records`` goes through ``compression``. The library behind all four is
imported inside functions: who never meets a codec does not pay for it.
"""
