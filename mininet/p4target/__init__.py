"""P4 reference target: runs a program compiled for BMv2 on real frames and speaks P4Runtime (docs/p4target.md).

It is written to be right and readable. It is slow: some ten thousand packets a second.
"""
