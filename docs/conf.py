"""Sphinx's settings for the site. `make docs` builds it from what `docs.generate` puts side by side."""

from redalg.version import VERSION

project = "redalg"
author = "redalg developers"
copyright = "redalg developers"  # noqa: A001 - Sphinx's name
release = version = VERSION

extensions = ["myst_nb", "sphinx.ext.mathjax"]
root_doc = "index"
highlight_language = "text"
suppress_warnings = ["mystnb.unknown_mime_type"]  # notebooks hold text beside every richer form
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True

# Markdown as code hosts read it, and what redalg's pages need besides.
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 5
myst_linkify_fuzzy_links = False
# MathJax leaves pages alone but for these: the last is HTML that notebooks store, with the formulas of derivations.
myst_mathjax_classes = "tex2jax_process|mathjax_process|math|output_area|text_html"

# Notebooks are shown with the outputs that they store.
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

html_theme = "furo"
html_title = f"redalg {VERSION}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None
html_show_search_summary = False  # it fetches pages, which a browser refuses where the site is opened as files
html_theme_options = {"navigation_with_keys": True, "sidebar_hide_name": False}
pygments_style = "a11y-light"
pygments_dark_style = "github-dark"

# One file with all of MathJax that formulas need; it draws them as SVG, without fonts.
mathjax_path = "mathjax/tex-svg.js"
mathjax3_config = {
    "options": {"enableMenu": False},
    "svg": {"fontCache": "global"},
}

linkcheck_timeout = 20
linkcheck_workers = 4
