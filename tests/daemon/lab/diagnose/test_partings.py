"""Which operation is the first that differs, on traces as engines give them."""

from __future__ import annotations

from pilotfish.daemon.lab.diagnose.partings import parting, partings
from pilotfish.hooks.inspection import Operation, Trace


def digests(*texts):
    return tuple(text.encode() for text in texts)


def one(name, rows, kind="MUL_MAT", shape=None, axis=1, weights=""):
    """An operation whose tokens' rows are these letters, on `axis`."""
    rows = digests(*rows)
    return Operation(name, kind, shape or (64, len(rows), 1, 1), b"".join(rows), {axis: rows}, weights, "q6_K")


def trace(*operations):
    return Trace(operations, ())


def test_the_first_of_those_that_differ_in_the_order_of_computation():
    plain = trace(one("Q-0", "a"), one("K-0", "b"), one("out-0", "c", weights="blk.0.w"), one("Q-1", "d"))
    other = trace(one("Q-0", "ax"), one("K-0", "by"), one("out-0", "Cz", weights="blk.0.w"), one("Q-1", "Dz"))
    found = parting(plain, other, (0, 0))
    assert (found.name, found.layer, found.equal_before) == ("out-0", 0, 2)
    assert found.shapes == ((64, 1, 1, 1), (64, 2, 1, 1))
    assert found.title == "the product with blk.0.w (q6_K)"


def test_rows_that_only_one_of_them_computed_do_not_count():
    assert parting(trace(one("Q-0", "a")), trace(one("Q-0", "ax")), (0, 0)) is None
    assert parting(trace(one("Q-0", "b")), trace(one("Q-0", "ax")), (0, 1)).row == 1


def test_tokens_are_found_along_the_axis_that_is_as_long_as_each_forward():
    """Nine heads and nine tokens: only one axis has another length in the two."""
    plain = Operation("Q-0", "ROPE", (64, 9, 1, 1), b"1", {2: digests("a"), 3: digests("a")})
    other = Operation("Q-0", "ROPE", (64, 9, 9, 1), b"2", {1: digests(*"ihgfedcbx"), 2: digests(*"abcdefghi")})
    assert parting(trace(plain), trace(other), (0, 0)) is None


def test_of_equal_shapes_with_several_such_axes_all_is_compared():
    axes = {1: digests("a", "b"), 2: digests("a", "b")}
    same = Operation("Q-0", "ROPE", (64, 2, 2, 1), b"same", axes)
    assert parting(trace(same), trace(same), (0, 0)) is None
    assert parting(trace(same), trace(Operation("Q-0", "ROPE", (64, 2, 2, 1), b"else", axes)), (0, 0)).name == "Q-0"


def test_shapes_that_differ_otherwise_are_passed_over():
    """A mask that is longer, as another number of cells makes it."""
    assert (
        parting(trace(one("kq-0", "a", shape=(256, 1, 9, 1))), trace(one("kq-0", "xy", shape=(512, 2, 9, 1))), (0, 0))
        is None
    )


def test_operations_are_paired_by_what_they_are_though_graphs_differ_and_numbers_too():
    plain = trace(one("node_7", "a", "FUSED"), one("Q-0", "b"), one("node_9", "c", "FLASH_ATTN_EXT"))
    other = trace(
        one("node_8", "ax", "FUSED"),
        one("rows-0", "xx", "GET_ROWS"),
        one("Q-0", "bx"),
        one("node_12", "Cx", "FLASH_ATTN_EXT"),
    )
    found = parting(plain, other, (0, 0))
    assert (found.kind, found.layer, found.equal_before) == ("FLASH_ATTN_EXT", 0, 2)


def test_what_comes_after_the_layers_is_of_none():
    plain, other = trace(one("l_out-29", "a"), one("norm", "b")), trace(one("l_out-29", "ax"), one("norm", "Bx"))
    assert parting(plain, other, (0, 0)).layer is None


def test_titles_tell_attention_from_products_with_weights():
    def title(kind, weights=""):
        return parting(trace(one("x-1", "a", kind, weights=weights)), trace(one("x-1", "bx", kind)), (0, 0)).title

    assert title("MUL_MAT") == "attention (MUL_MAT)"  # of queries and keys
    assert title("SOFT_MAX") == "attention (SOFT_MAX)"
    assert title("ADD") == "ADD, x-1"
    assert title("MUL_MAT_ID", "blk.1.ffn_up_exps.weight") == "the product with blk.1.ffn_up_exps.weight (q6_K)"


def test_where_a_tokens_rows_are_equal_in_spite_of_it_the_first_that_are_not_are_looked_for_too():
    other = Trace((one("A-0", "Axx"), one("B-0", "bCx")), digests(*"rsx"))
    first = Trace((one("A-0", "a"), one("B-0", "b")), digests("r"))
    second = Trace((one("A-0", "x"), one("B-0", "c")), digests("t"))
    healed, decisive = partings([(0, first, other), (1, second, other)])
    assert (healed.name, healed.row, healed.heals) == ("A-0", 0, True)
    assert (decisive.name, decisive.row, decisive.heals) == ("B-0", 1, False)
    assert partings([(0, first, Trace(other.operations, digests(*"xsx")))])[0].heals is False
