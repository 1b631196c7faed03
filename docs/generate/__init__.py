"""The site, made of docs/, notebooks/ and the library: `python -m docs.generate html`.

    docs/*.md, docs/*/*.md, notebooks/*.ipynb  →  pages   `stage`: side by side, their links to each other kept
    ```python blocks of the new pages           →  pages   `blocks`: run, with what they print below them
    <!-- table: NAME -->                        →  pages   `tables`: made of the library's own tables
    <!-- reference: NAMES -->                   →  pages   `reference`: signatures and docstrings
    redalg.library.PATTERNS                     →  pages   `gallery`: a page a pattern

Tables that stand in pages up to `<!-- /table -->` are written by `python -m docs.generate tables`.
Sphinx then makes HTML of the pages.
"""
