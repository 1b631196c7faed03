"""Running a form: binding tensors to names, choosing a backend, streaming blocks, calling kernels.

Bound     := tensors and scalars by name, sizes by axis, dtypes, the library and device that they live on
backends  := numpy   the interpreter, in NumPy
             torch   the interpreter, block by block, in torch (memory bounded by the block)
             tilelang  the generated kernel, on CUDA or through TileLang's C target
"""
