"""Real text at any size: a small model made as expensive as a big one, without changing a bit of what it says.

Every tensor becomes the upper left corner of a larger one whose other numbers are zero, and further blocks follow that
are zero altogether. Hidden rows, heads that nobody listens to and blocks that add nothing cost what real ones cost, and
the logits stay the same, bit for bit, in the same number format:

- A zero times anything finite adds nothing, and what stands behind the real numbers leaves the order of their sums.
- The residual stream is four times as wide. A norm divides by the root of a mean, which is then over four times as many
  numbers: with a fourth of the epsilon exactly half of it, so that its output doubles, and its weights are halved.
- Zero bytes are the number zero in every ggml format, so rows of blocks are lengthened without being quantized again.

In a format with blocks of 256 (K-quants) that do not divide the source's rows, a lengthened row would keep whatever
shorter blocks the source had to make do with. For these the widened model is written as F16 and quantized by libllama,
as a real model of its width is; only hidden rows and blocks are added in that format.

The files are sparse where the disk knows that. Memory is not: a mapped zero takes its place like any other number.
"""
