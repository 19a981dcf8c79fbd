"""What outsiders send and what lies on disk, broken on purpose: `python -m tests.fuzz --help`, `make fuzz`.

A *target* takes one mutated input and must answer with what it promises: never an internal error, never more than five
seconds of the processor, and nothing left behind. Inputs are made from a seed, so that a finding can be made again.

==============  ====================================================================================================
`mutations.py`  valid inputs in, broken ones out: grammar-aware for JSON and for sequences of fields, and raw bytes
`wire.py`       the front, the runner, the draft host and the control socket, each in a process of its own
`servers.py`    those processes
`files.py`      GGUF headers, manifests, certificates, memory files, configs, read in this process
`campaign.py`   runs a target and makes what it finds small
==============  ====================================================================================================
"""
