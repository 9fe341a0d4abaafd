"""A second implementation of the tl formats and of the sampler.

It is slow, plain and shares nothing with the Rust crates, so that the two can
disagree. `make_vectors.py` in the folder above writes the golden vectors with it.
"""
