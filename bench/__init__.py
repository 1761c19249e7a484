"""How fast we are, beside how fast a named peer or the machine is, in the same run.

Every file ``bench/cases_*.py`` is found by itself and registers its cases:

    from bench.harness import Bar, Setup, Workload, case, need

    @case("decode-100b", work="100-byte values to Arrow columns", unit="B/s",
          peer="aiokafka", bar=Bar(ratio=4))
    def decode(setup: Setup) -> Workload:
        aiokafka = need("aiokafka.record")          # a peer that is not there skips the case
        data = make_log(size=setup.scaled(64 << 20))  # smaller under --quick
        return Workload(ours=lambda: ..., peer=lambda: ..., amount=len(data))

``make bench`` runs them all; ``make bench ARGS="--list"`` names them.
"""
