"""Code that exists for the sake of one version of TileLang, GCC or nvcc; `known` lists it, each with its expiry."""
