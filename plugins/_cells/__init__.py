"""What verifiers share whose engine keeps one row of cells: sessions, slots, lanes, probes, sampling options.

An engine joins by a `Dialect` (see `dialect`) and a `CellContext` with two methods of its own; nothing here loads or
names an engine's library.
"""
