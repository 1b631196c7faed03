"""TileProgram: kernels, buffers and statements as values, and the numbers that they compute."""
